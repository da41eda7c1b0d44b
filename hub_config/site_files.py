"""The site's own files that `[extensions]` names, as a backup has them: which they are, and what they may be called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from hub_config.settings import Settings
from hub_config.settings_extensions import RESERVED

#: Below this name, files lie in a backup as they lie beside `berth.toml`.
PREFIX: Final = "site/"
_MEMBER = re.compile(r"site(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){1,8}", re.ASCII)
_POINTS: Final = ("placement", "profiles", "price", "notify")


def is_member(name: str) -> bool:
    """Whether a file of a site may be called that in a backup."""
    return _MEMBER.fullmatch(name) is not None


def belongs(relative: str, settings: Settings) -> bool:
    """Whether a file beside `berth.toml` is one that these settings' extensions name."""
    path = PurePosixPath(relative)
    if path.parts[0] in RESERVED:
        return False
    if any(path.is_relative_to(folder) and path != PurePosixPath(folder) for folder in folders(settings)):
        return True
    return any(relative == f"{module}.py" for module in _modules(settings).values())


def folders(settings: Settings) -> list[str]:
    """The folders beside `berth.toml` that may be the site's: its templates, and each module, were it a package."""
    own = settings.extensions.templates
    return [*([own] if own else []), *dict.fromkeys(_modules(settings).values())]


def _modules(settings: Settings) -> dict[str, str]:
    """The module of each point that is set, by its first name."""
    named = {key: getattr(settings.extensions, key) for key in _POINTS}
    return {key: reference.partition(":")[0].partition(".")[0] for key, reference in named.items() if reference}


def found(root: Path, settings: Settings) -> tuple[dict[str, Path], list[str]]:
    """The files, by their names in a backup; and in words what cannot be in one."""
    root, members, left_out = root.resolve(), dict[str, Path](), list[str]()
    for key, module in _modules(settings).items():
        if not (root / f"{module}.py").is_file() and not (root / module).is_dir():
            left_out.append(f"the module {module} (extensions.{key}), which is not beside berth.toml")
    for path in _candidates(root, settings):
        relative = path.relative_to(root).as_posix()
        if path.resolve().is_relative_to(root) and is_member(PREFIX + relative) and belongs(relative, settings):
            members[PREFIX + relative] = path
        else:
            left_out.append(f"{relative}, which leads out of the data folder or whose name a backup cannot have")
    return members, left_out


def _candidates(root: Path, settings: Settings) -> Iterator[Path]:
    for module in dict.fromkeys(_modules(settings).values()):
        if (root / f"{module}.py").is_file():
            yield root / f"{module}.py"
    for folder in folders(settings):
        for path in sorted((root / folder).rglob("*")) if folder not in RESERVED else ():
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(root).parts)
            if path.is_file() and not hidden:
                yield path
