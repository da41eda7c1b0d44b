"""A parser of the command line that remembers what it takes, so that the documents can list it."""

from __future__ import annotations

import argparse
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """As argparse's; `taken` has its arguments in order, `commands` the parsers below it by their names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.taken: list[argparse.Action] = []
        self._below: Any = None
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        action = super().add_argument(*args, **kwargs)
        self.taken.append(action)
        return action

    def add_subparsers(self, **kwargs: Any) -> Any:
        self._below = super().add_subparsers(**kwargs)  # makes parsers of this class
        return self._below

    @property
    def commands(self) -> dict[str, CommandParser]:
        return dict(self._below.choices) if self._below is not None else {}
