"""PyTorch is held to the share without being imported and without CUDA being initialised."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from berth_lab.caps import share

#: As much of torch as matters: CUDA is initialised lazily, and queued calls run then.
TORCH = """
class cuda:
    held, queued, initialised = {}, [], False
    @classmethod
    def _lazy_call(cls, call):
        call() if cls.initialised else cls.queued.append(call)
    @staticmethod
    def device_count():
        return 2
    @classmethod
    def set_per_process_memory_fraction(cls, fraction, device):
        assert cls.initialised, "CUDA was initialised by the cap"
        cls.held[device] = fraction
    @classmethod
    def init(cls):
        cls.initialised = True
        for call in cls.queued:
            call()
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("125", 0.125),
        ("500", 0.5),
        ("1000", None),
        ("2000", None),
        ("0", None),
        ("", None),
        ("-5", None),
        ("1e2", None),
        ("²", None),
    ],
)
def test_what_counts_as_a_fraction(monkeypatch: pytest.MonkeyPatch, value: str, expected: float | None) -> None:
    monkeypatch.setenv("BERTH_GPU_SHARE_MILLI", value)
    assert share() == expected


def python(tmp_path: Path, code: str, share_milli: str, torch: str = TORCH) -> str:
    """What a fresh interpreter with this torch prints."""
    (tmp_path / "torch.py").write_text(torch)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BERTH_GPU_SHARE_MILLI": share_milli}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() + done.stderr.strip()


LOAD = "import sys; from berth_lab.caps import load_ipython_extension as load; load(None)\n"


def test_the_cap_waits_for_torch_and_for_cuda(tmp_path: Path) -> None:
    code = LOAD + (
        "assert 'torch' not in sys.modules\n"
        "import torch; assert not torch.cuda.initialised\n"
        "torch.cuda.init(); print(torch.cuda.held, len(sys.meta_path))\n"
    )
    plain = python(tmp_path, "import sys; print(len(sys.meta_path))", "250")
    assert python(tmp_path, code, "250") == f"{{0: 0.25, 1: 0.25}} {plain}"


def test_a_torch_that_is_there_already_is_capped(tmp_path: Path) -> None:
    code = "import torch; torch.cuda.init()\n" + LOAD + "print(torch.cuda.held)"
    assert python(tmp_path, code, "500") == "{0: 0.5, 1: 0.5}"


@pytest.mark.parametrize("share_milli", ["1000", "0", ""])
def test_whole_gpus_and_none_are_left_alone(tmp_path: Path, share_milli: str) -> None:
    code = LOAD + "import torch; torch.cuda.init(); print(torch.cuda.held)"
    assert python(tmp_path, code, share_milli) == "{}"


def test_another_torch_is_only_remarked_on(tmp_path: Path) -> None:
    told = python(tmp_path, LOAD + "import torch; print('imported')", "500", torch="")
    assert "imported" in told and "PyTorch is not held to this server's share" in told


def test_a_failing_cap_does_not_break_cuda(tmp_path: Path) -> None:
    broken = TORCH.replace("cls.held[device] = fraction", "raise RuntimeError('no such device')")
    assert "no such device" in python(tmp_path, LOAD + "import torch; torch.cuda.init()", "500", torch=broken)


def test_no_torch_at_all_fails_as_it_would(tmp_path: Path) -> None:
    code = LOAD + "try:\n    import torch_is_not_here\nexcept ModuleNotFoundError as e:\n    print(e.name)"
    assert python(tmp_path, code, "500") == "torch_is_not_here"
