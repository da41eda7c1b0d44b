"""The composition root: builds each process's parts from the settings and hands packages what they need of each other.

Nothing below this package reads a setting, and nothing but this file knows which inventory, runtime or placement is
in use.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hub_config.datafolder import DataFolder
from hub_config.deliver import outbox_of, telling_of
from hub_config.extensions import guarded_offer, guarded_place, guarded_quotes, load
from hub_config.hosting import Hosting
from hub_config.settings import ProfileTable, Settings
from hub_config.settings_idle import DAYS
from quota.alerts import Alerts
from quota.bank import Bank, Defaults
from quota.book import Book
from quota.clock import SystemClock
from quota.farewells import Farewells
from quota.groups import Group
from quota.jumps import measure
from quota.leases import Device, Lease
from quota.leaving import Graces
from quota.nightly import Nightly
from quota.outbox import Outbox
from quota.ports import Nobody, Notifier, Place
from quota.pricing import hourly
from quota.rows import Rows
from quota.store import Store
from quota.units import MilliGpu
from quota.watch import Watch
from quota.way_out import WayOut
from quota.wishes import Wishes
from spawner.fleet import free_now
from spawner.messages import words
from spawner.placement import best_fit
from spawner.ports import Inventory, Runtime
from spawner.profiles import DEFAULT_PROFILES, Profile, images_of, open_profiles
from spawner.rules import Asker, Offer, Quotes
from spawner.sharing import isolation
from spawner.simulated import SimulatedInventory

log = logging.getLogger("berth.compose")

BEAT_SECONDS = 5
WAKE_SECONDS = 0.5  # between looks at the clock


# ---- settings to values ----------------------------------------------------------------------------------------


def profiles_of(settings: Settings) -> tuple[Profile, ...]:
    """The profiles of `berth.toml`, or the default menu."""
    if not settings.profiles:
        return tuple(DEFAULT_PROFILES)
    return tuple(_profile(table, settings.backend.kind == "docker") for table in settings.profiles)


def _profile(table: ProfileTable, docker: bool) -> Profile:
    count, share = divmod(table.share, 1000) if table.share >= 1000 else (int(table.share > 0), table.share)
    return Profile(
        name=table.name,
        title=table.title or table.name,
        share=MilliGpu(1000 if table.share >= 1000 else share),
        count=count,
        cpu=table.cpu,
        memory_mib=table.memory_mib,
        images=table.images if docker else (),
        description=table.description,
        service_class=table.service_class,
        groups=table.groups,
        egress=table.egress,
    )


def groups_of(settings: Settings) -> tuple[Group, ...]:
    """The groups of `berth.toml`."""
    return tuple(Group(each.name, each.leads, each.pays) for each in settings.groups)


def defaults_of(settings: Settings) -> Defaults:
    """What a new book is filled with."""
    first = settings.first_start
    return Defaults(
        monthly_grant=first.monthly_credits,
        zone=settings.site.time_zone,
        max_servers=first.max_servers,
        max_gpu_milli=first.max_gpus,
        gpu_hour=first.credits_per_gpu_hour,
        cpu_hour=first.credits_per_cpu_hour,
    )


def graces_of(settings: Settings) -> Graces:
    """How long servers may save before they are ended."""
    nothing = timedelta(0)
    return Graces(settings.save.grace or nothing, settings.save.by_hand or nothing)


def inventory_of(settings: Settings, data: DataFolder) -> Inventory | None:
    """The devices of this machine: real ones where an NVIDIA driver answers, else simulated ones if wanted."""
    source = settings.gpus.source
    if source in ("auto", "nvml"):
        from spawner.nvml_process import NoDriver, NvmlProcess  # pynvml is only touched where it is wanted

        found = NvmlProcess.detect()
        if found is not None:
            return found
        if source == "nvml":
            return NoDriver()
    if source == "none":
        return None
    return SimulatedInventory(settings.gpus.simulated, seed=data.secret("deployment", 8))


def close_inventory(inventory: Inventory | None) -> None:
    """End what it reads with, so that nothing outlives the agent for even a moment."""
    from spawner.nvml_process import NvmlProcess

    if isinstance(inventory, NvmlProcess):
        inventory.close()


# ---- parts of each process -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What every process of Berth shares. Made lazily: `berth status` needs no runtime, the culler no inventory."""

    data: DataFolder
    settings: Settings

    @cached_property
    def host(self) -> str:
        return self.data.host()

    @cached_property
    def clock(self) -> SystemClock:
        return SystemClock()

    @cached_property
    def store(self) -> Store:
        return Store(self.data.book_url(self.settings), self.data.book_password(self.settings))

    @cached_property
    def bank(self) -> Bank:
        return Bank(self.store, self.clock, defaults_of(self.settings))

    @cached_property
    def book(self) -> Book:
        return Book(self.store, self.clock, self.bank)

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.store, self.clock)

    @cached_property
    def alerts(self) -> Alerts:
        return Alerts(self.store, self.clock)

    @cached_property
    def hosting(self) -> Hosting:
        return Hosting(self.data, self.settings)

    @property
    def runtime(self) -> Runtime:
        return self.hosting.runtime

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        return profiles_of(self.settings)

    @cached_property
    def farewells(self) -> Farewells:
        return Farewells(self.store, self.clock)

    @cached_property
    def way_out(self) -> WayOut:
        return WayOut(self.book, self.rows, self.farewells, self.clock, graces_of(self.settings))


def parts(root: Path, settings: Settings | None = None) -> Parts:
    """The parts of the deployment in one data folder. Raises `SettingsError`."""
    data = DataFolder(root)
    return Parts(data, settings or data.settings())


def keep_beating(rows: Rows, boot: str, role: str, host: str) -> Callable[[], None]:
    """Refresh this process's heartbeat row from a thread until the returned function is called; also at once when
    the clock has jumped, so that nobody is thought dead after a sleep."""
    stopped, clock = threading.Event(), SystemClock()

    def beat() -> None:
        last = clock.reading()
        while not stopped.wait(WAKE_SECONDS):
            now = clock.reading()
            if now.run - last.run < timedelta(seconds=BEAT_SECONDS) and measure(last, now) is None:
                continue
            last = now
            try:
                rows.beat(boot, role, host)
            except Exception:
                log.exception("The heartbeat of %s could not be written", role)

    rows.beat(boot, role, host)
    threading.Thread(target=beat, name=f"beat-{role}", daemon=True).start()
    return stopped.set


def new_boot(role: str) -> str:
    """A random id for one life of one process."""
    return f"{role}-{secrets.token_hex(8)}"


def place_of(made: Parts, alerts: Alerts | None = None) -> Place:
    """The site's placement, or best fit. Raises `SettingsError`."""
    ours: Place = partial(best_fit, home=made.host)
    reference = made.settings.extensions.placement
    if not reference:
        return ours
    own = load(made.data.settings_file, "placement", reference, ("devices", "request"))
    return guarded_place(own, ours, alerts)


def offer_of(made: Parts, alerts: Alerts | None = None) -> Offer | None:
    """The site's own rule of who is offered what. Raises `SettingsError`."""
    reference = made.settings.extensions.profiles
    if not reference:
        return None
    return guarded_offer(load(made.data.settings_file, "profiles", reference, ("profiles", "asker")), alerts)


def quotes_of(made: Parts, alerts: Alerts | None = None) -> Quotes | None:
    """The site's own rule of prices. Raises `SettingsError`."""
    reference = made.settings.extensions.price
    if not reference:
        return None
    return guarded_quotes(load(made.data.settings_file, "price", reference, ("profile", "asker", "when")), alerts)


def notify_of(made: Parts) -> Callable[..., Any] | None:
    """The site's function for notices. Raises `SettingsError`."""
    reference = made.settings.extensions.notify
    return load(made.data.settings_file, "notify", reference, ("notice",)) if reference else None


def notifier_of(made: Parts) -> Outbox:
    """What takes this process's notices: the outbox in the book."""
    return outbox_of(made)


def check_extensions(made: Parts) -> None:
    """Load all that `[extensions]` names. Raises `SettingsError`, one line."""
    place_of(made)
    offer_of(made)
    quotes_of(made)
    notify_of(made)
    templates_of(made, check=True)


def templates_of(made: Parts, check: bool = False) -> Path | None:
    """The folder with the site's own templates. Raises `SettingsError` where `check` finds a template that would
    break a page, or do nothing."""
    if not made.settings.extensions.templates:
        return None
    folder = made.data.root.resolve() / made.settings.extensions.templates
    if check:
        from hub_config.site_pages import check_templates  # reads the Hub's templates, which only a start needs

        check_templates(made.data.settings_file, folder)
    return folder


def spawner_wiring(made: Parts, boot: str, service_url: str) -> Any:
    """What the Hub's spawner needs; `service_url` is where servers reach service `berth`."""
    from spawner.gpu_spawner import Wiring  # imports the Hub, which the other processes need not

    return Wiring(
        book=made.book,
        bank=made.bank,
        rows=made.rows,
        runtime=made.runtime,
        clock=made.clock,
        boot=boot,
        host=made.host,
        profiles=made.profiles,
        images={name: image.title for name, image in made.hosting.images.items()},
        place=place_of(made, made.alerts),
        homes=made.data.homes,
        backend_words=made.hosting.words,
        start_timeout_s=made.settings.hub.start_timeout.total_seconds(),
        service_url=service_url,
        groups=groups_of(made.settings),
        offer=offer_of(made, made.alerts),
        quotes=quotes_of(made, made.alerts),
        graces=made.way_out.graces,
        server_env=made.settings.save.environment(),
        docker=made.hosting.wiring(),
    )


def profile_views(made: Parts) -> list[Any]:
    """Each profile as pages and REST show it: price now, and how many could start now."""
    from quota.web.app import ProfileView

    devices: Sequence[Device] = made.rows.devices()
    price = made.bank.price()
    return [
        ProfileView(
            name=profile.name,
            title=profile.title,
            share_milli=profile.share,
            count=profile.count,
            free_now=free_now(profile, devices),
            price_per_hour_micro=hourly(price, MilliGpu(profile.share * profile.count)),
            images=images_of(profile, made.hosting.images),
            simulated=bool(profile.count) and any(device.simulated for device in devices),
            description=profile.description,
        )
        for profile in made.profiles
    ]


def service_parts(made: Parts) -> Any:
    """What the service `berth` is made of; the Hub's address and token come from the environment it gives."""
    from quota.web.app import HubClient, ServiceParts

    return ServiceParts(
        book=made.book,
        bank=made.bank,
        rows=made.rows,
        alerts=made.alerts,
        clock=made.clock,
        profiles=lambda: profile_views(made),
        hub=HubClient(os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]),
        cookie_secret=made.data.secret("berth_cookie").encode(),
        prefix=os.environ["JUPYTERHUB_SERVICE_PREFIX"],
        zone=made.settings.site.time_zone,
        site=made.settings.site.name,
        refusal_words=words,
        isolation_words=lambda mode: str(isolation(mode, fenced=made.hosting.docker)),
        image_titles={name: image.title for name, image in made.hosting.images.items()},
        log_tail=made.runtime.log_tail,
        groups=groups_of(made.settings),
        templates=templates_of(made),
        offered=offered_of(made),
        way_out=made.way_out,
        longest=longest_of(made),
        keep_most=made.settings.idle.keep_most,
        notifier=notifier_of(made),
        most_starts=made.settings.schedule.most,
        telling=telling_of(made),
    )


def longest_of(made: Parts) -> Callable[[Lease], timedelta | None]:
    """How long the server of a lease may run, by the rule that holds at this moment; None is no limit."""
    policy = idle_policy(made)

    def longest(lease: Lease) -> timedelta | None:
        seconds = policy(lease).max_age
        return None if seconds is None else timedelta(seconds=seconds)

    return longest


def offered_of(made: Parts) -> Callable[[str, frozenset[str]], set[str]] | None:
    """Which profiles are open to a user in these groups of the Hub; None where all are to all."""
    rule = offer_of(made, made.alerts)
    if rule is None and not any(profile.groups for profile in made.profiles):
        return None

    def offered(user: str, groups: frozenset[str]) -> set[str]:
        menu = made.profiles if rule is None else rule(made.profiles, Asker(user, groups))
        return {profile.name for profile in open_profiles(menu, groups)}

    return offered


def watch(made: Parts) -> Watch:
    """What service `berth` keeps an eye on."""
    return Watch(made.rows, made.alerts, made.clock, new_boot("berth"), made.host, made.settings.idle.check_every)


def culler_parts(made: Parts, notifier: Notifier | None = None) -> Any:
    """What the idle culler is made of."""
    from idle_culler.app import CullerParts
    from idle_culler.hub_api import HubClient

    return CullerParts(
        book=made.book,
        rows=made.rows,
        clock=made.clock,
        hub=HubClient(os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]),
        policy=idle_policy(made),
        cycle_seconds=made.settings.idle.check_every.total_seconds(),
        notifier=notifier or Nobody(),
        alerts=made.alerts,
        wishes=Wishes(made.store, made.clock),
        host=made.host,
        graces=made.way_out.graces,
        farewells=made.farewells,
    )


def nightly(made: Parts) -> Nightly | None:
    """The nightly audit; None where it is switched off."""
    at = made.settings.audit.at
    return None if at is None else Nightly(made.bank, made.rows, made.alerts, made.clock, at)


def idle_policy(made: Parts) -> Callable[[Lease], Any]:
    """The idle rules of a lease at this moment: by its GPU, profile, service class, groups, and the site's clock."""
    from idle_culler.decide import Policy
    from idle_culler.policies import PolicyRule, policy_of

    idle = made.settings.idle

    def seconds(value: Any) -> float | None:
        return None if value is None else value.total_seconds()

    plain = Policy(
        idle_gpu=seconds(idle.with_gpu),
        idle_cpu=seconds(idle.without_gpu),
        notice=idle.notice.total_seconds(),
        gpu_idle=seconds(idle.gpu_idle),
        max_age=seconds(idle.max_age),
    )
    rules = [
        PolicyRule(
            number=number,
            values={key: seconds(value) for key, value in rule.values().items()},
            profiles=frozenset(rule.profiles),
            classes=frozenset(rule.classes),
            groups=frozenset(rule.groups),
            days=frozenset(DAYS.index(day) for day in rule.days),
            between=rule.between,
        )
        for number, rule in enumerate(idle.rules, 1)
    ]
    zone = ZoneInfo(made.settings.site.time_zone)
    return lambda lease: policy_of(plain, rules, lease, made.clock.now().astimezone(zone))
