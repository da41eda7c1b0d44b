"""The quick start leaves nothing behind, and starts plainly where it does not fit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth_lab import launch


def python(code: str, cwd: Path, *argv: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code] if code else [sys.executable, *argv]
    done = subprocess.run(command, cwd=cwd, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_server_comes_without_the_database_and_the_grammar(tmp_path: Path) -> None:
    code = (
        "import sys; from berth_lab.launch import import_server; import_server()\n"
        "heavy = ('sqlalchemy', 'alembic', 'jupyterhub.orm', 'jupyterhub.handlers', 'lark')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert python(code, tmp_path) == "[]"


def test_schemas_are_checked_without_the_grammar(tmp_path: Path) -> None:
    """jsonschema takes it for not installed: all formats but the IRIs' are checked, and events validate."""
    code = (
        "from berth_lab.launch import import_server; import_server()\n"
        "import jsonschema\n"
        "check = jsonschema.FormatChecker()\n"
        "print(check.conforms('2026-03-02T09:00:00Z', 'date-time'), check.conforms('soon', 'date-time'),\n"
        "      check.conforms('not a uri', 'uri'), 'iri' in check.checkers)\n"
    )
    assert python(code, tmp_path) == "True False False False"


def test_stand_ins_give_way_to_the_real_modules(tmp_path: Path) -> None:
    """Whoever needs the Hub's database later gets it, also through what was imported before."""
    code = (
        "import sys; from berth_lab.launch import import_server; import_server()\n"
        "from jupyterhub import scopes, roles\n"
        "assert scopes.orm.User.__tablename__ == 'users', scopes.orm\n"
        "import jupyterhub.orm, sqlalchemy\n"
        "assert scopes.sa.select is sqlalchemy.select and str(roles.func.count()) == 'count(*)'\n"
        "import jupyterhub.handlers.pages\n"
        "assert scopes.orm.User is jupyterhub.orm.User\n"
        "print('real')\n"
    )
    assert python(code, tmp_path) == "real"


def test_lab_is_imported_without_asking_node(tmp_path: Path) -> None:
    code = (
        "import subprocess; from berth_lab.launch import import_lab\n"
        "def refuse(*a, **k): raise AssertionError(a)\n"
        "import jupyterlab.commands as commands; ask = commands._yarn_config\n"
        "commands.subprocess.check_output = refuse\n"
        "import_lab(); import jupyterlab.labapp\n"
        "assert commands._yarn_config is ask; print('quiet')\n"
    )
    assert python(code, tmp_path) == "quiet"


def test_files_of_the_home_do_not_shadow_the_library(tmp_path: Path) -> None:
    for name in ("random", "types", "typing", "contextlib", "tornado", "gc"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    assert python("", tmp_path, "-m", "berth_lab.launch", "--version")


@pytest.fixture
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def test_what_does_not_fit_starts_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], collecting: None
) -> None:
    started: list[list[str]] = []

    class Started(BaseException):
        """`execv` does not return."""

    def execv(path: str, argv: list[str]) -> None:
        started.append(argv)
        raise Started

    def fail() -> None:
        raise ImportError("cannot import name 'HealthCheckHandler'")

    monkeypatch.setattr(launch, "import_server", fail)
    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(sys, "argv", ["launch", "--allow-root"])
    with pytest.raises(Started):
        launch.main()
    assert started == [[sys.executable, "-m", "jupyterhub.singleuser", "--allow-root"]]
    assert "starting plainly, since ImportError" in capsys.readouterr().err


def test_what_is_there_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that uses the Hub's database, nothing is replaced."""
    import sqlalchemy

    with launch.without_database():
        assert sys.modules["sqlalchemy"] is sqlalchemy
    assert sys.modules["sqlalchemy"] is sqlalchemy
