"""What is wrong with the Hub's configuration after the site's `extra_config`: settings that nothing reads, which the
Hub would pass over, and parts of Berth that were taken out, without which it could not work."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import Spawner
from traitlets import HasTraits, TraitError
from traitlets.config import Configurable

from hub_config import placeholders
from hub_config.extra_docker import unsafe
from hub_config.keep_on_home import KeepHandler
from spawner.gpu_spawner import GpuSpawner

#: Traits of the application that name the classes whose sections are looked at.
_CHOSEN: Final = {"authenticator_class": Authenticator, "spawner_class": Spawner, "proxy_class": Proxy}
_SERVICES: Final = ("berth", "idle-culler")
_VARIABLES: Final = ("berth_home", "berth_site", "berth_style")

Config = Mapping[str, Mapping[str, Any]]


def fault(config: Config) -> str | None:
    """The first thing that is wrong, in words with a remedy."""
    found = (_lost(config), _unread(config), unsafe(config))
    return placeholders.unknown(config) or next((words for faults in found for words in faults), None)


def _lost(config: Config) -> Iterator[str]:
    """What Berth has put there and the site took away, most often with an `=` where it meant to add."""
    hub = config["JupyterHub"]
    spawner = _chosen(config, "spawner_class")
    if spawner is not None and not issubclass(spawner, GpuSpawner):
        yield (
            f"c.JupyterHub.spawner_class = {spawner.__name__}: servers would hold no lease and cost nothing; "
            "take it out, or make yours a subclass of spawner.gpu_spawner.LocalGpuSpawner"
        )
    there = {service.get("name") for service in hub["services"] if isinstance(service, Mapping)}
    for name in _SERVICES:
        if name not in there:
            yield f"c.JupyterHub.services has lost {name!r}; add yours with c.JupyterHub.services.append(…)"
    if not any(len(each) > 1 and each[1] is KeepHandler for each in hub["extra_handlers"]):
        yield "c.JupyterHub.extra_handlers has lost Berth's own; add yours with c.JupyterHub.extra_handlers.append(…)"
    for name in _VARIABLES:
        if name not in hub["template_vars"]:
            yield f"c.JupyterHub.template_vars has lost {name!r}; add yours with c.JupyterHub.template_vars.update(…)"


def _unread(config: Config) -> Iterator[str]:
    """Settings of classes that are in use which none of these classes has. Other sections may be somebody's own."""
    known = _sections(config)
    for section in sorted(set(config) & set(known)):
        for key in config[section]:
            if key not in known[section]:
                close = difflib.get_close_matches(key, known[section], n=1)
                remedy = f"did you mean {close[0]}?" if close else "take it out"
                yield f"c.{section}.{key}: {section} has no such setting; {remedy}"


def _sections(config: Config) -> dict[str, set[str]]:
    """Names of traits by the section in which they may stand: that of the class which is used, or of one it is of."""
    used: list[type[Configurable]] = [JupyterHub]
    used += [found for name in _CHOSEN if (found := _chosen(config, name)) is not None]
    sections: dict[str, set[str]] = {}
    for each in used:
        for parent in each.mro():
            if issubclass(parent, Configurable) and parent is not Configurable:
                sections.setdefault(parent.__name__, set()).update(each.class_traits(config=True))
    return sections


def _chosen(config: Config, name: str) -> type[Configurable] | None:
    """The class that one of the application's traits names, as the Hub would find it; None where it would not."""
    value = config["JupyterHub"].get(name)
    if value is None:
        return None
    try:
        found = JupyterHub.class_traits()[name].validate(HasTraits(), value)
    except (TraitError, ImportError):
        return None  # the Hub says so itself
    return found if isinstance(found, type) and issubclass(found, _CHOSEN[name]) else None


def words_of(error: BaseException, path: str) -> str:
    """One line about an error that the file at `path` raised, with the line of the file."""
    lines = [str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines = [str(error.lineno)]
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {' '.join(str(error).split())}; correct it"
