"""Homes of users on the local backend."""

from __future__ import annotations

import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from spawner.names import home_name

EXAMPLES: Final = "berth-examples"


def prepare_home(homes: Path, user: str) -> Path:
    """The user's home below `homes`, made (0700) where it is missing. Raises `OSError`.

    A home that is still empty gets the shipped notebooks; whoever deletes them later is not given them again, and
    nothing is ever overwritten.
    """
    home = homes / home_name(user)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(home.iterdir()):
        _copy_examples(home)
    return home


def _copy_examples(home: Path) -> None:
    """All or nothing: a start that dies half way leaves an empty home, and the next one copies again."""
    with as_file(files("images") / "notebooks") as shipped:
        notebooks = sorted(shipped.glob("*.ipynb"))
        if not notebooks:
            return
        unfinished = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            for notebook in notebooks:
                shutil.copyfile(notebook, unfinished / notebook.name)
            unfinished.rename(home / EXAMPLES)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            if not (home / EXAMPLES).exists():  # else another server of this user was first
                raise


def settings_folder() -> Path:
    """The folder with the Jupyter settings that every server gets (an entry for JUPYTER_CONFIG_PATH)."""
    return Path(str(files("images") / "settings"))
