"""Start `jupyterhub-singleuser` without the imports it never uses: `python -m berth_lab.launch ARGS`.

Three things cost most of a stock start and serve nobody in a user's server:

* `rfc3987_syntax` builds a grammar at import so that JSON schemas may have IRIs checked; jsonschema does without
  it when it is not there.
* The Hub's own database layer (its handlers, `jupyterhub.orm`, SQLAlchemy, alembic) comes in through
  `jupyterhub.log`, `jupyterhub.scopes` and `jupyterhub.utils`. Stand-ins take its place while the single-user
  server is imported and are gone afterwards; whoever reads anything else from one then gets the real module.
* JupyterLab runs `node yarn config` at import, for the address of an npm registry that only a rebuild would use.

If any of it does not fit the installed versions, the process starts over as the plain server.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # `-m` puts the working directory, the user's home, before the standard library; the plain command does not.
    del sys.path[0]

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """Stands for a module until somebody reads something from it that is not here already."""

    def __init__(self, name: str, **here: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__.update(here)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(f"{name} of {self.__name__} is not needed to start a server")
        return getattr(importlib.import_module(self.__name__), name)


class LaterObject:
    """Stands for an object of a module until somebody reads an attribute of it."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(importlib.import_module(self._module), self._name), name)


class _NeverRaised(Exception):
    """For `except SQLAlchemyError` where there is no database."""


class _NeverServed:
    """For `isinstance(handler, HealthCheckHandler)` where only the Hub has one."""


def _stand_ins() -> list[Later]:
    return [
        Later("jupyterhub.handlers"),
        Later("jupyterhub.handlers.pages", HealthCheckHandler=_NeverServed),
        Later("jupyterhub.orm"),
        Later("sqlalchemy", func=LaterObject("sqlalchemy", "func")),
        Later("sqlalchemy.exc", SQLAlchemyError=_NeverRaised),
    ]


@contextlib.contextmanager
def without_database() -> Iterator[None]:
    """While it lasts, an import of the Hub's database layer finds stand-ins; what is there already stays."""
    placed = [later for later in _stand_ins() if later.__name__ not in sys.modules]
    for later in placed:
        sys.modules[later.__name__] = later
    try:
        yield
    finally:
        for later in placed:
            if sys.modules.get(later.__name__) is later:
                del sys.modules[later.__name__]


def import_server() -> Any:
    """Import the single-user server and return its `main`. Raises whatever an import may raise."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # Python's own way to say "not there"
    import jupyterhub  # noqa: F401  (the package itself, before its parts have stand-ins)

    with without_database():
        return importlib.import_module("jupyterhub.singleuser").main


def import_lab() -> None:
    """Import JupyterLab's server side without asking node for yarn's settings. No JupyterLab, nothing to do."""
    try:
        commands: Any = importlib.import_module("jupyterlab.commands")
    except ImportError:
        return
    ask = getattr(commands, "_yarn_config", None)
    if ask is None:
        return
    commands._yarn_config = lambda logger: {"yarn config": {}, "npm config": {}}
    try:
        importlib.import_module("jupyterlab.labapp")
    finally:
        commands._yarn_config = ask


def main() -> None:
    gc.disable()  # nothing that an import makes is garbage
    try:
        serve = import_server()
        import_lab()
    except Exception as error:
        print(f"berth_lab.launch: starting plainly, since {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, "-m", "jupyterhub.singleuser", *sys.argv[1:]])
    gc.enable()
    serve()


if __name__ == "__main__":
    main()
