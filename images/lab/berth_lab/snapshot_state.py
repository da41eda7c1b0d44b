"""What belongs to a session besides its variables: where it works, what it may import, what it set in its environment,
its random numbers. Never anything that looks like a secret."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

#: Names and values of the environment that are never written down.
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|PWD$|KEY|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|SIGNATURE|DSN", re.I)
SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@|\b(sk|ghp|gho|hf|glpat|xox[a-z]|AKIA)[-_]?\w{16,}|BEGIN [A-Z ]*KEY")
#: The platform's and the kernel's own.
OTHERS = re.compile(
    r"(BERTH|JUPYTER|JUPYTERHUB|JPY|IPY|PYDEVD|NVIDIA|CUDA_(VISIBLE|MPS))_?|"
    r"(PWD|OLDPWD|SHLVL|_|TERM|CLICOLOR|CLICOLOR_FORCE|FORCE_COLOR|PAGER|GIT_PAGER|MPLBACKEND|KERNEL_LAUNCH_TIMEOUT|"
    r"COLUMNS|LINES|LC_CTYPE|KMP_\w*)$"
)
MOST_TEXT = 32_768
#: Versions that are told beside the variables, where the program uses them.
PACKAGES = "numpy pandas torch sklearn scipy polars xarray matplotlib tensorflow keras transformers lightning".split()
DOTTED = re.compile(r"^[ \t]*import[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.M)
MOST_CELLS = 5000


def began_with() -> dict[str, str]:
    """The environment with which this process was started; empty where that cannot be read."""
    try:
        words = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words if word)
    return {name: value for name, _, value in pairs}


def environment(now: Mapping[str, str], before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What the user has set since, and the names of what is withheld for looking like a secret."""
    changed = {name: value for name, value in now.items() if before.get(name) != value and not OTHERS.match(name)}
    withheld = sorted(n for n, v in changed.items() if SECRET_NAME.search(n) or SECRET_VALUE.search(v))
    kept = {n: v for n, v in changed.items() if n not in withheld and len(v) <= MOST_TEXT}
    return kept, withheld


def dotted_imports(cells: Iterable[str]) -> list[str]:
    """`import a.b` binds `a`, and needs `a.b` again: the modules that cells have imported by such names."""
    named = {n.strip() for cell in cells for found in DOTTED.findall(cell) for n in found.split(",")}
    return sorted(name for name in named if "." in name and name in sys.modules)


def packages() -> dict[str, str]:
    """Versions of what the program has imported."""
    versions = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in PACKAGES)
    return {name: str(version) for name, version in versions if version is not None}


def captured(cells: Iterable[str]) -> dict[str, Any]:
    """Plain values, for the index."""
    before = began_with()
    kept, withheld = environment(os.environ, before) if before else ({}, [])
    try:
        folder: str | None = os.getcwd()
    except OSError:
        folder = None
    return {
        "cwd": folder,
        "path": [each for each in sys.path if isinstance(each, str)],
        "environment": kept,
        "withheld": withheld,
        "imports": dotted_imports(cells),
    }


def bring_back(state: Mapping[str, Any]) -> Iterator[str]:
    """Set it again, before variables are read; what could not be is told."""
    for name, value in state["environment"].items():
        os.environ[name] = value
    yield from _path(state["path"])
    if state["cwd"]:
        try:
            os.chdir(state["cwd"])
        except OSError:
            yield f"The working directory {state['cwd']} is no longer there."
    for name in state["imports"]:
        with contextlib.suppress(Exception):  # a variable that needs it will say so
            importlib.import_module(name)
    if state["withheld"]:
        yield f"Not kept, since they look like secrets; set them again: {', '.join(state['withheld'])}"


def _path(saved: list[str]) -> Iterator[str]:
    """Every addition comes after what it came after."""
    place = 0
    for entry in saved:
        if entry in sys.path:
            place = sys.path.index(entry) + 1
        elif entry and not os.path.exists(entry):
            yield f"{entry} of sys.path is no longer there."
        else:
            sys.path.insert(place, entry)
            place += 1


def random_states() -> dict[str, Any]:
    """By library, of those that the program has imported."""
    states: dict[str, Any] = {"random": random.getstate()}
    if (numpy := sys.modules.get("numpy.random")) is not None:
        states["numpy"] = numpy.get_state()
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["torch.cuda"] = torch.cuda.get_rng_state_all()
    return states


#: How each library takes its state back: module and function.
_SETTERS = {
    "random": ("random", "setstate"),
    "numpy": ("numpy.random", "set_state"),
    "torch": ("torch", "set_rng_state"),
    "torch.cuda": ("torch.cuda", "set_rng_state_all"),
}


def set_random(name: str, state: Any) -> None:
    """Raises whatever the library raises."""
    module, function = _SETTERS[name]
    getattr(importlib.import_module(module), function)(state)
