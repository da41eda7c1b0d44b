"""Which snapshots may be used, and which go."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from berth_lab.farewell_files import private_folder, write_private
from berth_lab.resume_files import (
    MOST_KEPT,
    OLDEST,
    UNFINISHED,
    Foreign,
    Snapshot,
    all_of,
    mark_used,
    prune,
    read,
    superfluous,
)
from berth_lab.workspace import documents_of, open_documents

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ENTRY = {
    "kernel": "python3",
    "language": "python",
    "path": "a.ipynb",
    "type": "notebook",
    "name": "",
    "cwd": None,
    "folder": "kernel-1",
    "variables": 3,
}
MIB = 1024 * 1024
ALICE = {"user": "alice", "server": ""}


def manifest(token: str, at: datetime = NOW, used_at: str | None = None) -> dict[str, Any]:
    value = {"format": 1, "token": token, "lease": "l1", "reason": "idle", "at": at.isoformat(), "kernels": [ENTRY]}
    value["owner"] = ALICE
    return value | {"tabs": ["b.py", "a.ipynb"], "lost": [], "used_at": used_at}


def token_of(number: int) -> str:
    return f"20260302T09{number:04}Z-00000000"


def put(folder: Path, number: int = 1, at: datetime = NOW, changes: dict[str, Any] | None = None) -> Path:
    token = token_of(number)
    private_folder(folder)
    write_private(folder / token / "manifest.json", manifest(token, at) | (changes or {}))
    return folder / token


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = read(put(tmp_path / "s"), os.getuid())
    assert found.offer() == {
        "token": token_of(1),
        "at": NOW.isoformat(),
        "reason": "idle",
        "kernels": 1,
        "variables": 3,
        "lost": [],
        "tabs": ["a.ipynb", "b.py"],
    }
    mark_used(found, NOW)
    assert read(found.folder, os.getuid()).used_at == NOW


DAMAGED: dict[str, Any] = {
    "another format": {"format": 2},
    "another's token": {"token": "x"},
    "no kernels": {"kernels": None},
    "too many kernels": {"kernels": [ENTRY] * 101},
    "a folder elsewhere": {"kernels": [ENTRY | {"folder": "../../x"}]},
    "a path that is none": {"kernels": [ENTRY | {"path": 5}]},
    "variables that are none": {"kernels": [ENTRY | {"variables": "3"}]},
    "a time without a zone": {"at": "2026-03-02T09:00:00"},
    "no time": {"at": None},
    "nobody's": {"owner": None},
    "of no server": {"owner": {"user": "alice"}},
    "lost that is no list of rows": {"lost": ["x"]},
}


@pytest.mark.parametrize("changes", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_manifest_is_refused_in_words(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = put(tmp_path / "s", changes=changes)
    with pytest.raises(Foreign, match=r"manifest\.json is damaged"):
        read(folder, os.getuid())


def test_half_a_manifest_and_what_is_no_json_are_refused(tmp_path: Path) -> None:
    folder = put(tmp_path / "s")
    for text in ("", "[1]", "[" * 100_000, (folder / "manifest.json").read_text()[:-30]):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(Foreign, match="damaged"):
            read(folder, os.getuid())


def test_what_is_not_the_users_alone_is_refused(tmp_path: Path) -> None:
    folder = put(tmp_path / "s")
    with pytest.raises(Foreign):
        read(folder, os.getuid() + 1)
    for path in (folder, folder / "manifest.json", folder.parent):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o020)
        with pytest.raises(Foreign, match="others may write"):
            read(folder, os.getuid())
        path.chmod(mode)
    link = folder.with_name(token_of(2))
    link.symlink_to(folder)
    found, refused = all_of(folder.parent, os.getuid())
    assert [each.token for each in found] == [token_of(1)] and "link" in refused[token_of(2)]


def test_what_another_server_of_the_same_home_saved_is_not_ours(tmp_path: Path) -> None:
    put(tmp_path / "s", 1)
    put(tmp_path / "s", 2, changes={"owner": ALICE | {"server": "second"}})
    put(tmp_path / "s", 3, changes={"owner": {"user": "bob", "server": ""}})
    found, refused = all_of(tmp_path / "s", os.getuid(), ALICE)
    assert ([each.token for each in found], refused) == ([token_of(1)], {})
    assert len(all_of(tmp_path / "s", os.getuid())[0]) == 3, "all of them count where room is made"


def test_a_folder_of_snapshots_made_by_us_is_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(tmp_path / "home" / "s")
    finally:
        os.umask(before)
    found, refused = all_of(tmp_path / "home" / "s", os.getuid())
    assert (len(found), refused) == (1, {})


def snapshot(age: timedelta, used: timedelta | None = None) -> Snapshot:
    used_at = None if used is None else (NOW - used).isoformat()
    return Snapshot(Path("x"), manifest("x", NOW - age, used_at=used_at))


def test_the_newest_few_stay_within_age_and_size() -> None:
    hour = timedelta(hours=1)
    many = [(snapshot(hour * number), MIB) for number in range(MOST_KEPT + 2)]
    assert superfluous(many, NOW, 100 * MIB) == [each for each, _ in many[MOST_KEPT:]]
    assert superfluous(many, NOW, 3 * MIB) == [each for each, _ in many[3:]]
    huge = [(snapshot(hour), 50 * MIB), (snapshot(2 * hour), 1)]
    assert superfluous(huge, NOW, 3 * MIB) == [huge[1][0]], "the newest stays, however large"
    old = (snapshot(OLDEST + hour), 1)
    used = (snapshot(2 * timedelta(days=2), timedelta(days=2)), 1)
    fresh = (snapshot(hour * 5, hour), 1)
    assert superfluous([fresh, used, old], NOW, MIB) == [used[0], old[0]]


def test_pruning_leaves_what_is_not_ours_and_what_is_being_written(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    kept, old = put(folder, 2), put(folder, 1, NOW - 2 * OLDEST)
    half, writing, other = folder / token_of(3), folder / token_of(4), folder / "mine"
    broken, lately = put(folder, 5, changes={"at": "?"}), put(folder, 6, changes={"at": "?"})
    long_ago = (NOW - 2 * OLDEST).timestamp()
    os.utime(broken, (long_ago, long_ago))
    os.utime(lately, (NOW.timestamp(), NOW.timestamp()))
    for path in (half, writing, other):
        path.mkdir(mode=0o700)
    past = (NOW - 2 * UNFINISHED).timestamp()
    os.utime(half, (past, past))
    os.utime(writing, (NOW.timestamp(), NOW.timestamp()))
    prune(folder, os.getuid(), NOW, MIB)
    assert sorted(folder.iterdir()) == sorted([kept, writing, other, lately]) and not old.exists()


def test_open_documents_are_those_of_the_newest_layout(tmp_path: Path) -> None:
    def layout(*names: str) -> dict[str, Any]:
        entries = {f"editor:{name}": {"data": {"path": name, "factory": "Editor"}} for name in names}
        dock = {"widgets": [f"editor:{name}" for name in reversed(names)]}
        return {
            "data": {"layout-restorer:data": {"main": {"dock": dock}}, "terminal:1": {"data": {"name": "1"}}} | entries
        }

    assert documents_of(layout("a.py", "b.py")) == ["b.py", "a.py"]
    for wild in (None, [], {"data": 5}, {"data": {"editor:a": {"data": {"path": "b", "factory": "x"}}}}):
        assert documents_of(wild) == []
    (tmp_path / "one.jupyterlab-workspace").write_text(json.dumps(layout("old.py")))
    (tmp_path / "two.jupyterlab-workspace").write_text(json.dumps(layout("new.py")))
    os.utime(tmp_path / "one.jupyterlab-workspace", (1, 1))
    assert open_documents(tmp_path) == ["new.py"]
    (tmp_path / "two.jupyterlab-workspace").write_text("{")
    assert open_documents(tmp_path) == open_documents(None) == open_documents(tmp_path / "none") == []
