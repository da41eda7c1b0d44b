"""`berth test` names the folders of tests that it runs; every test file lies in one of them."""

from __future__ import annotations

from hub_config.selftest import QUEUES
from tests.architecture.source import ROOT


def test_every_test_file_is_run_once() -> None:
    named = [folder for folders in QUEUES.values() for folder in folders]
    assert len(set(named)) == len(named)
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    left_out = [name for name in files if not any(name.startswith(f"{folder}/") for folder in named)]
    assert files and left_out == []
