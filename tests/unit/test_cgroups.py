"""Readers of control groups over trees of files as the kernel has them, of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from spawner.cgroups import LARGEST, count, io_service_bytes, io_stat, load, membership, resident, table, without
from spawner.ports import Load

MIB = 1 << 20
V2 = {
    "cgroup.controllers": "cpuset cpu io memory pids\n",
    "docker/abc/cpu.stat": "usage_usec 12500000\nuser_usec 10000000\nsystem_usec 2500000\nnr_periods 0\n",
    "docker/abc/io.stat": "8:0 rbytes=1048576 wbytes=2097152 rios=10 wios=20 dbytes=0\n259:1 rbytes=7 wbytes=0\n",
    "docker/abc/memory.current": f"{300 * MIB}\n",
    "docker/abc/memory.stat": f"anon 1\ninactive_file {100 * MIB}\nactive_file 5\n",
    "docker/abc/cgroup.procs": "4101\n4102\n",
    "docker/abc/below/cgroup.procs": "4103\n",
    "docker/other/cgroup.procs": "999\n",
}
V1 = {
    "cpu,cpuacct/docker/abc/cpuacct.usage": "12500000000\n",
    "cpu,cpuacct/docker/abc/cgroup.procs": "4101\n4102\n",
    "blkio/docker/abc/blkio.throttle.io_service_bytes": (
        "8:0 Read 1048576\n8:0 Write 2097152\n8:0 Sync 3145728\n8:0 Async 0\n8:0 Total 3145728\nTotal 3145728\n"
    ),
    "memory/docker/abc/memory.usage_in_bytes": f"{300 * MIB}\n",
    "memory/docker/abc/memory.stat": f"inactive_file 1\ntotal_inactive_file {100 * MIB}\n",
}
MEMBER_V2 = membership("0::/docker/abc\n")
MEMBER_V1 = membership(
    "9:name=systemd:/x\n7:blkio:/docker/abc\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
)


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return folder


def test_version_2_is_read(tmp_path: Path) -> None:
    found = load(MEMBER_V2, tree(tmp_path, V2))
    assert found == Load(12.5, 200 * MIB, 3 * MIB + 7, 3, frozenset({4101, 4102, 4103}))


def test_version_1_is_read(tmp_path: Path) -> None:
    found = load(MEMBER_V1, tree(tmp_path, V1))
    assert found == Load(12.5, 200 * MIB, 3 * MIB, 2, frozenset({4101, 4102}))


def test_version_1_counts_groups_below_where_the_kernel_tells_them(tmp_path: Path) -> None:
    more = {"blkio/docker/abc/blkio.throttle.io_service_bytes_recursive": "8:0 Read 5\n8:0 Write 6\nTotal 11\n"}
    assert load(MEMBER_V1, tree(tmp_path, V1 | more)).io_bytes == 11


@pytest.mark.parametrize(("files", "member"), [(V1, MEMBER_V1), (V2, MEMBER_V2)])
def test_each_file_that_is_missing_makes_its_own_number_unknown(tmp_path: Path, files: dict[str, str], member) -> None:  # type: ignore[no-untyped-def]
    whole = load(member, tree(tmp_path / "whole", files))
    fields = {"cpu": "cpu_seconds", "io": "io_bytes", "usage_in": "memory_bytes", "memory.cur": "memory_bytes"}
    for gone in [name for name in files if "abc/" in name and not name.endswith(("memory.stat", "cgroup.procs"))]:
        found = load(member, tree(tmp_path / gone.replace("/", "_"), {k: v for k, v in files.items() if k != gone}))
        file = gone.rpartition("/")[2]
        field = next(field for start, field in fields.items() if start in file)
        assert getattr(found, field) is None, gone
        same = {"cpu_seconds", "io_bytes", "memory_bytes"} - {field}
        assert all(getattr(found, name) == getattr(whole, name) for name in same), gone


def test_a_group_that_is_gone_or_out_of_sight_is_unknown(tmp_path: Path) -> None:
    root = tree(tmp_path, V2)
    nothing = Load(None, None, None, None, None)
    assert load(membership("0::/docker/gone\n"), root) == nothing
    assert load(membership("0::/../../etc\n"), root) == nothing
    assert load(membership(""), root) == nothing
    assert load(MEMBER_V2, tmp_path / "not mounted") == nothing


def test_what_is_no_number_is_unknown_and_no_io_at_all_is_none() -> None:
    assert [count(text) for text in (None, "", "max\n", "-5", "7x", "5\n", str(LARGEST))] == [None] * 5 + [5, None]
    assert io_stat("") == 0
    assert io_stat("8:0 rbytes=x wbytes=1\n") is None
    assert io_service_bytes("Total 0\n") == 0
    assert io_service_bytes("") is None
    assert io_service_bytes("8:0 Read -3\n") is None
    assert table("a 1\nb\nc x\n d 4 5\n") == {"a": 1}
    assert resident("10", "inactive_file 20\n", "inactive_file") == 0


def test_the_notebook_server_itself_can_be_taken_off() -> None:
    whole = Load(12.5, 1, 100, 3, frozenset({1, 2, 3}))
    assert without(whole, 2.5, 40) == Load(10.0, 1, 60, 3, frozenset({1, 2, 3}))
    assert without(whole, None, None) == Load(None, 1, None, 3, frozenset({1, 2, 3}))
    assert without(whole, 99, 999).io_bytes == 0, "two moments' numbers never make less than nothing"
