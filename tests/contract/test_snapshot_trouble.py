"""A snapshot in real kernels where something is wrong: a class that hangs, one that cannot be made again, too little
room, a kernel that is killed while it saves, files that are damaged, cut off or somebody else's."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth_lab import farewell_kernels
from berth_lab.farewell_kernels import CannotSay
from berth_lab.serialize_refusals import WHY
from tests.harness.own_kernel import OwnKernel, own_kernel
from tests.harness.waiting import until

#: A megabyte of float64, whose sum tells whether it is whole.
ARRAY = "np.arange({mib} * 131_072, dtype='f8')"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def only_kernel(home: Path) -> Iterator[OwnKernel]:
    with own_kernel(home) as kernel:
        yield kernel


@pytest.fixture
def kernel(only_kernel: OwnKernel) -> OwnKernel:
    """A kernel without variables, as a new one."""
    forget(only_kernel)
    only_kernel.run("import numpy as np")
    return only_kernel


def forget(kernel: OwnKernel) -> None:
    kernel.run("get_ipython().run_line_magic('reset', '-f')")


def lost(report: dict[str, Any]) -> dict[str, str]:
    """Codes by name; the words are those of the code."""
    assert all(row["why"] == WHY[row["code"]] for row in report["lost"])
    return {row["name"]: row["code"] for row in report["lost"]}


def saved(report: dict[str, Any]) -> set[str]:
    return {row["name"] for row in report["saved"]}


# ---- time and code of others ------------------------------------------------------------------------------------


def test_one_that_hangs_costs_its_time_and_no_other_variable(kernel: OwnKernel, tmp_path: Path) -> None:
    """It catches all that is raised in it, but for the last time."""
    kernel.run(
        "import time\nclass Hangs:\n    def __reduce__(self):\n        for _ in range(3):\n            try:\n"
        "                time.sleep(600)\n            except BaseException:\n                pass\n"
        "        while True: pass\nhangs = Hangs(); before = 1; holder = [hangs]; large = np.ones(200_000)"
    )
    report = kernel.save(tmp_path, {"most_mib": 64, "seconds": 6})
    assert lost(report) == {"hangs": "time", "holder": "time"}
    assert saved(report) == {"np", "time", "Hangs", "before", "large"}
    assert report["seconds"] < 7.5
    forget(kernel)
    assert lost(kernel.load(tmp_path)) == {}
    assert kernel.values({"a": "before", "b": "large.sum()"}) == {"a": "1", "b": "np.float64(200000.0)"}


def test_one_that_can_never_be_ended_costs_the_kernel_and_is_told_in_time(home: Path, tmp_path: Path) -> None:
    with own_kernel(home) as kernel:
        kernel.run(
            "import time\nclass Never:\n    def __reduce__(self):\n        while True:\n            try:\n"
            "                time.sleep(600)\n            except BaseException:\n                pass\n"
            "never = Never(); other = 1"
        )
        with pytest.raises(CannotSay) as told:
            kernel.save(tmp_path, seconds=3)
    assert told.value.code == "time"
    with own_kernel(home) as kernel:
        assert lost(kernel.load(tmp_path)) == {"*": "no-snapshot"}


def test_what_cannot_be_made_again_is_named_and_costs_what_shares_with_it_alone(
    kernel: OwnKernel, home: Path, tmp_path: Path
) -> None:
    (home / "passing.py").write_text("class Passing:\n    pass\n")
    kernel.run(
        "class Bad:\n    def __init__(self): self.inside = [1]\n"
        "    def __setstate__(self, state): raise ValueError('no')\n"
        "class Quits:\n    def __getstate__(self): return {'a': 1}\n"
        "    def __setstate__(self, state): raise SystemExit\n"
        "import passing\nfirst = {'n': 1}; bad = Bad(); shares = [bad.inside] * 200\n"
        "quits = Quits(); passes = passing.Passing(); also = [passes] * 300\n"
        "knows_first = [first]; large = np.arange(50_000); last = 'last'"
    )
    assert lost(kernel.save(tmp_path)) == {}
    forget(kernel)
    kernel.run("import sys; del sys.modules['passing']; del sys")
    (home / "passing.py").unlink()
    shutil.rmtree(home / "__pycache__", ignore_errors=True)
    report = kernel.load(tmp_path)
    assert lost(report) == {
        "bad": "failed",
        "shares": "shares",
        "quits": "failed",
        "passing": "missing-package",
        "passes": "missing-package",
        "also": "missing-package",
    }
    details = {row["name"]: row["detail"] for row in report["lost"]}
    assert (details["bad"], details["shares"]) == ("ValueError: no", "with bad")
    assert details["also"] == "ModuleNotFoundError: No module named 'passing'"
    assert kernel.value("(knows_first[0] is first, first, int(large.sum()), last)") == (
        "(True, {'n': 1}, 1249975000, 'last')"
    )


# ---- sizes ------------------------------------------------------------------------------------------------------


def test_an_array_over_the_limit_is_refused_by_name_and_one_below_it_is_equal(
    kernel: OwnKernel, tmp_path: Path
) -> None:
    """The same with 1 GiB is a measurement (`python -m benchmarks.snapshot`)."""
    kernel.run(f"below = {ARRAY.format(mib=47)}; above = {ARRAY.format(mib=49)}; small = 5")
    report = kernel.save(tmp_path, {"most_mib": 200, "each_mib": 48, "seconds": 60})
    assert lost(report) == {"above": "too-large"} and saved(report) == {"np", "below", "small"}
    files = sum(path.stat().st_size for path in tmp_path.glob("variables-*"))
    assert 47 * 2**20 < files < 48 * 2**20, "nothing of what was refused is left"
    forget(kernel)
    assert lost(kernel.load(tmp_path)) == {}
    assert kernel.value(f"(below == {ARRAY.format(mib=47)}).all() and small == 5 and below.flags.writeable") == "True"


def test_an_array_of_a_gigabyte_is_equal_in_the_next_kernel(home: Path, tmp_path: Path) -> None:
    """Within the sizes that `[save]` allows by itself; the time is longer than there, for slow disks."""
    gigabyte = "np.arange(10**9 // 8)"
    with own_kernel(home) as kernel:
        kernel.run(f"import numpy as np; big = {gigabyte}")
        report = kernel.save(tmp_path, {"most_mib": 2048, "seconds": 120}, seconds=130)
        assert lost(report) == {} and saved(report) == {"np", "big"}
    with own_kernel(home) as kernel:
        assert lost(kernel.load(tmp_path, seconds=120)) == {}
        assert kernel.value(f"big.nbytes == 10**9 and bool((big == {gigabyte}).all())") == "True"
    for path in tmp_path.glob("variables-*"):
        path.unlink()  # pytest keeps the folders of its last runs


def test_all_together_have_a_limit_and_the_small_come_first(kernel: OwnKernel, tmp_path: Path) -> None:
    kernel.run(f"one = {ARRAY.format(mib=6)}; many = [bytes(2**20)] * 3 + [b'x' * 2**20]; two = {ARRAY.format(mib=5)}")
    report = kernel.save(tmp_path, {"most_mib": 10, "seconds": 60})
    assert lost(report) == {"one": "too-large"} and saved(report) == {"np", "many", "two"}
    assert {row["name"]: row["bytes"] // 2**20 for row in report["saved"]}["many"] == 2, "one object is saved once"


def test_a_full_disk_is_named(kernel: OwnKernel, tmp_path: Path) -> None:
    """The kernel may write files of 2 MiB: what is beyond fails as on a full disk."""
    kernel.run(
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, resource.RLIM_INFINITY))\n"
        f"large = {ARRAY.format(mib=3)}; small = 5"
    )
    try:
        report = kernel.save(tmp_path)
    finally:
        kernel.run("resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))")
    assert lost(report) == {"large": "disk"} and "small" in saved(report)
    forget(kernel)
    assert lost(kernel.load(tmp_path)) == {} and kernel.value("small") == "5"


# ---- the end comes early ----------------------------------------------------------------------------------------


def test_a_kernel_that_is_killed_while_it_saves_leaves_the_snapshot_before(home: Path, tmp_path: Path) -> None:
    folder, mark = tmp_path / "snapshot", tmp_path / "mark"
    with own_kernel(home) as kernel:
        kernel.run("import numpy as np; large = np.arange(500_000); what = 'old'")
        assert lost(kernel.save(folder)) == {}
        kernel.run(
            "what = 'new'; large = large + 1\nimport pathlib, time\nclass Slow:\n    def __reduce__(self):\n"
            f"        pathlib.Path({str(mark)!r}).touch(); time.sleep(600)\nslow = [Slow()] * 1_000_000"
        )
        kernel.client.execute("", silent=True, user_expressions={"it": farewell_kernels.call("save", str(folder))})
        until(mark.exists, 60, "the saving is under way")
        assert len(list(folder.glob("variables-*"))) == 4, "the files of both are there"
        assert sum(path.stat().st_size for path in folder.glob("*.buffers")) == 2 * 4_000_000
        os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
    with own_kernel(home) as kernel:
        assert lost(kernel.load(folder)) == {}
        assert kernel.value("(what, int(large[0]))") == "('old', 0)"
        assert lost(kernel.save(folder)) == {}
    assert len(list(folder.iterdir())) == 5, "and the next one removes what was left of it"


#: A program that saves `what`, and is killed at its n-th call of a function that puts things on the disk for good.
KILLED = """
import os, signal, sys
from berth_lab import snapshot
what, name, number, folder = "new", sys.argv[1], int(sys.argv[2]), sys.argv[3]
real, calls = getattr(os, name), []
def deadly(*a, **k):
    calls.append(1)
    if len(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*a, **k)
setattr(os, name, deadly)
snapshot.save(folder)
"""
#: The index is in its place from the fourth `fsync` on, which is that of the folder.
STEPS = {("fsync", 1): "old", ("fsync", 2): "old", ("fsync", 3): "old", ("replace", 1): "old", ("fsync", 4): "new"}


@pytest.mark.parametrize("step,left", STEPS.items(), ids=lambda value: str(value))
def test_killed_at_any_step_the_snapshot_before_or_the_new_one_is_whole(
    kernel: OwnKernel, tmp_path: Path, step: tuple[str, int], left: str
) -> None:
    kernel.run("what = 'old'; del np")
    kernel.save(tmp_path)
    forget(kernel)
    words = [sys.executable, "-c", KILLED, step[0], str(step[1]), str(tmp_path)]
    assert subprocess.run(words, timeout=60, check=False).returncode == -signal.SIGKILL
    report = kernel.load(tmp_path)
    assert lost(report) == {} and kernel.value("what") == repr(left)


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(kernel: OwnKernel, tmp_path: Path) -> Path:
    """Of `first`, `large`, `last`; the kernel has none of them any more."""
    kernel.run("import os; before = os.umask(0)")
    kernel.run("first = [1, 2]; large = np.arange(300_000); last = {'same': first}")
    folder = tmp_path / "snapshot"
    try:
        assert lost(kernel.save(folder)) == {}
    finally:
        kernel.run("os.umask(before)")
    forget(kernel)
    return folder


def test_files_are_their_owners_alone_whatever_the_kernel_allows(snapshot: Path) -> None:
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o700
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in snapshot.iterdir()}
    assert modes == {".json": 0o600, ".pickle": 0o600, ".buffers": 0o600}


def turned(pattern: str, at: float) -> Callable[[Path], None]:
    """One bit is another, so far into the file."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 1
        path.write_bytes(data)

    return damage


def cut(pattern: str, to: float) -> Callable[[Path], None]:
    """Only so much of the file is there."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        os.truncate(path, int(path.stat().st_size * to))

    return damage


def gone(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.unlink()

    return damage


def linked(pattern: str) -> Callable[[Path], None]:
    """A link to the same bytes: whoever owns what it leads to may change them."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        moved = path.rename(folder.parent / path.name)
        path.symlink_to(moved)

    return damage


def opened(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.chmod(0o660)

    return damage


def piped(pattern: str) -> Callable[[Path], None]:
    """Opening one that nobody writes to must not hang."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.unlink()
        os.mkfifo(path, 0o600)

    return damage


NOTHING = {"*": "damaged"}
LARGE = {"large": "damaged"}
DAMAGES: dict[str, tuple[Callable[[Path], None], dict[str, str]]] = {
    "a bit of the index": (turned("variables.json", 0.5), NOTHING),
    "half an index": (cut("variables.json", 0.5), NOTHING),
    "an empty index": (cut("variables.json", 0), NOTHING),
    "no index": (gone("variables.json"), {"*": "no-snapshot"}),
    "a bit of a buffer": (turned("*.buffers", 0.5), LARGE),
    "half a buffer": (cut("*.buffers", 0.5), LARGE),
    "no buffers": (gone("*.buffers"), NOTHING),
    "no stream": (gone("*.pickle"), NOTHING),
    "an empty stream": (cut("*.pickle", 0), NOTHING),
    "a bit of how the stream opens": (turned("*.pickle", 0), NOTHING),
    **{
        f"{'a link' if kind is linked else 'mode 0660' if kind is opened else 'a pipe'} in place of {pattern}": (
            kind(pattern),
            {"*": "foreign"},
        )
        for kind in (linked, opened, piped)
        for pattern in ("variables.json", "*.pickle", "*.buffers")
    },
}


@pytest.mark.parametrize("damage,codes", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_or_foreign_is_refused_by_name(
    kernel: OwnKernel, snapshot: Path, damage: Callable[[Path], None], codes: dict[str, str]
) -> None:
    damage(snapshot)
    report = kernel.load(snapshot)
    assert lost(report) == codes
    there = {"first", "last", "np"} if codes == LARGE else set()
    assert saved(report) >= there
    expected = "True" if there else "NameError: name 'first' is not defined"
    assert kernel.value("first == [1, 2] and last['same'] is first") == expected


def test_a_stream_that_is_damaged_anywhere_gives_back_nothing_that_differs(kernel: OwnKernel, snapshot: Path) -> None:
    (path,) = snapshot.glob("*.pickle")
    whole = path.read_bytes()
    kept = {"first": "[1, 2]", "large": "44999850000", "last": "{'same': [1, 2]}"}
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        forget(kernel)
        codes = lost(kernel.load(snapshot))
        assert set(codes.values()) <= {"damaged", "shares", "missing-package"}
        shown = kernel.values({"first": "first", "large": "int(large.sum())", "last": "last"})
        for name, value in shown.items():
            assert value == kept[name] or value == f"NameError: name '{name}' is not defined"
            assert value == kept[name] or name in codes or "*" in codes


def test_files_of_another_user_are_not_read(kernel: OwnKernel, snapshot: Path) -> None:
    """The kernel is told another number of its own user; for the files it is the same."""
    kernel.run("import os; really = os.getuid; os.getuid = lambda: really() + 1")
    try:
        assert lost(kernel.load(snapshot)) == {"*": "foreign"}
    finally:
        kernel.run("os.getuid = really")
    assert lost(kernel.load(snapshot)) == {}
