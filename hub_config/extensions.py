"""Functions of the site: found by their reference, checked at boot, and kept from doing harm when they fail."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hub_config.settings import SettingsError
from hub_config.site_calls import AlertBoard, SiteFailed, SiteFunction
from quota.errors import BerthError, Reason, Refused
from quota.leases import Device, LeaseRequest, Quote, Slot
from quota.ports import Place
from quota.reserving import check_slots
from spawner.profiles import Profile
from spawner.rules import Asker, Offer, Quotes, checked_menu, checked_quotes

#: A placement runs inside the book's transaction: every other start waits for it.
PLACEMENT_SECONDS = 2.0
#: What a start and the start page wait for: a rule may ask a directory of the site.
RULE_SECONDS = 5.0


def load(file: Path, key: str, reference: str, takes: Sequence[str]) -> Callable[..., Any]:
    """The function that `key` of the settings file names. Raises `SettingsError`, one line: file, key, remedy."""
    module_name, _, name = reference.partition(":")
    where = f"{file}: extensions.{key}"
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a file of the site named like an installed module must not stand in for it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise SettingsError(
                f"{where}: there is no module {module_name!r}; "
                f"write {module_name}.py beside the settings, or install it"
            ) from None
        raise SettingsError(f"{where}: {_raised(module_name, error)}") from error
    except (Exception, SystemExit) as error:  # whatever the site's file does must end in one line
        raise SettingsError(f"{where}: {_raised(module_name, error)}") from error
    function = getattr(module, name, None)
    wanted = f"def {name}({', '.join(takes)})"
    if function is None:
        raise SettingsError(f"{where}: module {module_name!r} has no {name!r}; write {wanted} in it")
    if not callable(function):
        raise SettingsError(f"{where}: {reference!r} is not a function; write {wanted}")
    if not _fits(function, takes):
        raise SettingsError(f"{where}: {reference!r} cannot be called with {len(takes)} arguments; write {wanted}")
    return function  # type: ignore[no-any-return]


def _raised(module: str, error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"module {module!r} fails when it is imported: {type(error).__name__}: {words}; correct it"


def _fits(function: Callable[..., Any], takes: Sequence[str]) -> bool:
    if inspect.iscoroutinefunction(function):
        return False
    try:
        inspect.signature(function).bind(*takes)
    except (TypeError, ValueError):
        return False
    return True


def guarded_place(
    own: Place, ours: Place, alerts: AlertBoard | None = None, seconds: float = PLACEMENT_SECONDS
) -> Place:
    """The site's placement behind ours.

    What ours refuses stays refused, as nothing is free then; a server without a GPU needs no choice. Where the
    site's fails or hangs, or gives what was not asked or is not free, that is told and ours is taken. No devices: no
    room.
    """
    site = SiteFunction("placement", own, seconds, alerts, most_hanging=1)

    def place(devices: Sequence[Device], request: LeaseRequest) -> tuple[Slot, ...]:
        fallback = ours(devices, request)
        if request.count == 0:
            return fallback

        def check(answer: Any) -> tuple[Slot, ...]:
            slots = tuple(answer)
            if slots:
                _check(request, devices, slots)
            return slots

        try:
            slots = site.call(check, tuple(devices), request)
        except Refused as refused:
            raise Refused(refused.reason, **(_facts(devices, request) | refused.facts)) from None
        except SiteFailed:
            return fallback
        if not slots:
            raise Refused(Reason.NO_ROOM, **_facts(devices, request))
        return slots

    return place


def guarded_offer(own: Callable[..., Any], alerts: AlertBoard | None = None, seconds: float = RULE_SECONDS) -> Offer:
    """The site's menu. Where its rule fails or hangs nothing is offered: nobody may get by a fault what the rule would
    have kept from them."""
    site = SiteFunction("profiles", own, seconds, alerts)

    def offer(profiles: Sequence[Profile], asker: Asker) -> tuple[Profile, ...]:
        ours = tuple(profiles)
        try:
            return site.call(partial(checked_menu, ours), ours, asker)
        except SiteFailed:
            raise Refused(Reason.RULE_FAILED, rule=site.name) from None

    return offer


def guarded_quotes(own: Callable[..., Any], alerts: AlertBoard | None = None, seconds: float = RULE_SECONDS) -> Quotes:
    """The site's prices, all that are asked for in one bounded call. Where its rule fails or hangs nobody is charged by
    a guess: there is no price, and no start."""

    def ask(profiles: Sequence[Profile], asker: Asker, when: datetime) -> list[tuple[Profile, object]]:
        return [(profile, own(profile, asker, when)) for profile in profiles]

    site = SiteFunction("price", ask, seconds, alerts)

    def quotes(profiles: Sequence[Profile], asker: Asker, when: datetime) -> Mapping[str, Quote]:
        try:
            return site.call(checked_quotes, tuple(profiles), asker, when)
        except SiteFailed:
            raise Refused(Reason.RULE_FAILED, rule=site.name) from None

    return quotes


def _check(request: LeaseRequest, devices: Sequence[Device], slots: tuple[Slot, ...]) -> None:
    check_slots(request, devices, slots)
    hosts = {device.uuid: device.host for device in devices}
    if any(slot.device is None or hosts[slot.device] != slot.host for slot in slots):
        raise BerthError(f"placement gave a slot that is on no device of its host: {slots}")
    if len({slot.host for slot in slots}) > 1:
        raise BerthError(f"placement gave one server devices of several hosts: {slots}")


def _facts(devices: Sequence[Device], request: LeaseRequest) -> dict[str, object]:
    """What words are made of. How much is free is left out: the site's rule holds it back."""
    return {
        "profile": request.profile,
        "asked": int(request.share * request.count),
        "count": request.count,
        "devices": len(devices),
    }
