"""`berth backup`, `berth restore` and `berth migrate` at the command line, on both databases and across them."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import re
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hub_config import backup
from hub_config import restore as restoring
from hub_config.cli import main
from hub_config.compose import Parts, parts
from hub_config.datafolder import DataFolder
from quota import audit, revisions
from quota.dump import dump
from quota.schema import REVISION
from tests.contract import first_release
from tests.fakes import postgres
from tests.fakes.backups import EMPTY, entry, refused, rewritten
from tests.fakes.book import Desk
from tests.fakes.clock import FakeClock

DATABASES = [
    pytest.param("sqlite", id="sqlite"),
    pytest.param(
        "postgresql",
        id=postgres.missing().replace(" ", "-") or "postgresql",
        marks=[pytest.mark.skip(postgres.missing())] if postgres.missing() else [],
    ),
]


class Site:
    """A data folder that was used once: a book with history, a Hub's database, settings and secrets."""

    def __init__(self, root: Path, url: str = "") -> None:
        self.root = root
        data = DataFolder(root)
        data.make()
        data.settings_file.write_text(
            f'[site]\nname = "Lab 7"\n[book]\nurl = "{url}"\n[hub]\nextra_config = "extra.py"\n'
        )
        (root / "extra.py").write_text("# the site's own\n")
        data.secret("deployment", 8), data.host(), data.passwords()
        with closing(sqlite3.connect(data.hub_database)) as hub:
            hub.execute("CREATE TABLE users (name TEXT)")
            hub.execute("INSERT INTO users VALUES ('alice')")
            hub.commit()

    @contextmanager
    def open(self) -> Iterator[tuple[Parts, Desk]]:
        made = parts(self.root)
        made.store.migrate()
        try:
            yield made, Desk(made.store, FakeClock())
        finally:
            made.store.close()

    def fill(self) -> Site:
        with self.open() as (_, desk):
            desk.devices(2)
            desk.session(600, "alice")
            desk.run("bob")
            desk.alerts.put("audit", "audit", "ein Wort: 漢字", {"n": [1, None, "x"]})
        return self


def rows_of(root: Path) -> str:
    """All rows of the book, as a dump."""
    made, out = parts(root), io.StringIO()
    with made.store.read() as connection:
        dump(connection, out)
        assert audit.findings(connection) == []
    made.store.close()
    return out.getvalue()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def new_url(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Makes empty databases: a URL for `[book]`, empty for the file in the data folder."""
    made: list[str] = []

    def make(kind: str) -> str:
        if kind == "sqlite":
            return ""
        cluster = request.getfixturevalue("cluster")
        made.append(cluster.empty())
        return str(cluster.url(made[-1]))

    yield make
    for name in made:
        request.getfixturevalue("cluster").drop(name)


def settle_heartbeats(root: Path) -> None:
    """As if the last process had ended a while ago."""
    with _book(root) as made:
        for beat in made.rows.boots():
            made.rows.drop_beat(beat.boot)


@contextmanager
def _book(root: Path) -> Iterator[Parts]:
    made = parts(root)
    try:
        yield made
    finally:
        made.store.close()


@pytest.mark.parametrize("database", DATABASES, indirect=True)
@pytest.mark.parametrize("target", DATABASES)
def test_a_backup_comes_back_on_a_new_data_folder(
    tmp_path: Path, database: str, target: str, new_url: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path / "old", new_url(database)).fill()
    file, new = tmp_path / "berth.backup", DataFolder(tmp_path / "new")
    assert main(["backup", str(file), "--data", str(site.root)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    new.root.mkdir()
    new.settings_file.write_text(f'[book]\nurl = "{new_url(target)}"\n[hub]\nextra_config = "extra.py"\n')
    assert main(["restore", str(file), "--data", str(new.root), "--keep-settings"]) == 0, capsys.readouterr().err
    assert rows_of(new.root) == rows_of(site.root)
    assert {path.name: path.read_text() for path in new.secrets.iterdir()} == {
        path.name: path.read_text() for path in DataFolder(site.root).secrets.iterdir()
    }
    assert new.host() == DataFolder(site.root).host()
    assert (new.root / "extra.py").read_text() == "# the site's own\n"
    with closing(sqlite3.connect(new.hub_database)) as hub:
        assert hub.execute("SELECT name FROM users").fetchall() == [("alice",)]
    for path in (new.hub_database, *new.secrets.iterdir(), *new.root.glob("book.sqlite")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert main(["grant", "alice", "1", "--data", str(new.root)]) == 0  # new rows get numbers of their own
    with _book(new.root) as made:
        assert made.bank.audit() == []
        assert [lease.holder.user for lease in made.book.live()] == ["bob"]


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_what_is_there_is_replaced_only_by_force_and_kept(
    tmp_path: Path, database: str, new_url: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path / "data", new_url(database)).fill()
    settle_heartbeats(site.root)
    file = tmp_path / "berth.backup"
    assert main(["backup", str(file), "--data", str(site.root)]) == 0
    before = rows_of(site.root)
    assert main(["grant", "alice", "7", "--data", str(site.root)]) == 0
    after = rows_of(site.root)
    assert main(["restore", str(file), "--data", str(site.root)]) == 1
    assert "--force" in capsys.readouterr().err
    assert rows_of(site.root) == after
    assert main(["restore", str(file), "--data", str(site.root), "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert rows_of(site.root) == before
    (kept,) = site.root.glob("before-restore-*")
    assert told["schema"] == REVISION and kept.name in told["aside"]
    assert (kept / "secrets" / "deployment").exists() and (kept / "hub" / "jupyterhub.sqlite").exists()
    if database == "sqlite":
        (kept / "berth.toml").unlink()
        (kept / "secrets").rename(kept / "secrets.of")
        assert rows_of(kept) == after
    else:
        with _book(site.root) as made, made.store.read() as connection:
            old = f'SELECT sum(amount) FROM "{kept.name}".grant_bucket'
            now = "SELECT sum(amount) FROM grant_bucket"
            given = [connection.exec_driver_sql(statement).scalar() for statement in (old, now)]
            assert given[0] - given[1] >= 7_000_000  # type: ignore[operator]


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_a_backup_of_an_older_schema_is_restored_and_brought_up(
    tmp_path: Path, database: str, new_url: Callable[[str], str]
) -> None:
    site, file = Site(tmp_path / "old", new_url(database)), tmp_path / "berth.backup"
    with _book(site.root) as made:
        first_release.fill(made.store)
    assert main(["backup", str(file), "--data", str(site.root)]) == 0
    with _book(site.root) as made:
        assert revisions.current(made.store) == "0001"  # a backup changes nothing
    new = tmp_path / "new"
    new.mkdir()
    (new / "berth.toml").write_text("")
    assert main(["restore", str(file), "--data", str(new), "--keep-settings"]) == 0
    with _book(new) as made:
        made.store.check()
        assert made.bank.audit() == [] and len(made.book.leases()) == len(first_release.LEASES)


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_migrate_tells_and_does(
    tmp_path: Path, database: str, new_url: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path / "data", new_url(database))
    with _book(site.root) as made:
        first_release.fill(made.store)
    told = ["migrate", "--data", str(site.root), "--json"]
    assert main(["grant", "alice", "1", "--data", str(site.root)]) == 1
    assert "berth migrate" in capsys.readouterr().err
    assert main([*told, "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["from"], plan["to"], plan["done"]) == ("0001", REVISION, False)
    with _book(site.root) as made:
        assert revisions.current(made.store) == "0001"
    assert main(told) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["done"] and [step["revision"] for step in done["steps"]] == [step["revision"] for step in plan["steps"]]
    if database == "sqlite":
        copy = Path(done["copy"])
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        with closing(sqlite3.connect(copy)) as old:
            assert old.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    assert main(["migrate", "--data", str(site.root)]) == 0
    assert "Nothing to do" in capsys.readouterr().out


def test_nothing_is_restored_or_migrated_under_a_running_berth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, file = Site(tmp_path / "data").fill(), tmp_path / "berth.backup"
    with DataFolder(site.root).lock_file.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["backup", str(file), "--data", str(site.root)]) == 0  # that is no trouble
        for command in (["restore", str(file), "--force"], ["migrate"]):
            assert main([*command, "--data", str(site.root)]) == 1
            assert "is up already" in capsys.readouterr().err


def test_a_postgresql_book_that_others_write_is_left_alone(
    tmp_path: Path, new_url: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    if postgres.missing():
        pytest.skip(postgres.missing())
    site, file = Site(tmp_path / "data", new_url("postgresql")).fill(), tmp_path / "berth.backup"
    assert main(["backup", str(file), "--data", str(site.root)]) == 0
    with _book(site.root) as made:
        made.rows.beat("agent-9", "agent", "gpu-host-9")
    for command in (["restore", str(file), "--force"], ["migrate"]):
        assert main([*command, "--data", str(site.root)]) == 1
        assert "agent on gpu-host-9 wrote into this book" in capsys.readouterr().err


def test_a_backup_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, file = Site(tmp_path / "data").fill(), tmp_path / "berth.backup"
    file.write_text("mine")
    assert main(["backup", str(file), "--data", str(site.root)]) == 1
    assert file.read_text() == "mine" and "is there already" in capsys.readouterr().err
    assert main(["backup", str(tmp_path / "no" / "x"), "--data", str(site.root)]) == 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".berth-backup")]


def test_a_backup_taken_while_the_book_is_written_is_one_moment(tmp_path: Path) -> None:
    site, file, stop = Site(tmp_path / "data").fill(), tmp_path / "berth.backup", threading.Event()

    def write() -> None:
        with site.open() as (_, desk):
            while not stop.is_set():
                desk.session(60, "carol", server="busy")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert main(["backup", str(file), "--data", str(site.root)]) == 0
    finally:
        stop.set()
        writer.join()
    assert main(["restore", str(file), "--data", str(tmp_path / "new")]) == 0  # it audits what it restored
    assert rows_of(tmp_path / "new")


# ---- files that are no good ------------------------------------------------------------------------------------


@pytest.fixture
def made_backup(tmp_path: Path) -> Path:
    site, file = Site(tmp_path / "data").fill(), tmp_path / "berth.backup"
    assert main(["backup", str(file), "--data", str(site.root)]) == 0
    return file


def test_a_damaged_file_is_refused_wherever_it_is_damaged(
    made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = made_backup.read_bytes()
    for part in range(12):
        place = 10 + part * (len(good) - 11) // 11
        made_backup.write_bytes(good[:place] + bytes([good[place] ^ 0x20]) + good[place + 1 :])
        assert "damaged" in refused(made_backup, tmp_path / "new", capsys), place
    for length in (0, 1, 20, len(good) // 2, len(good) - 1):
        made_backup.write_bytes(good[:length])
        assert "damaged" in refused(made_backup, tmp_path / "new", capsys), length
    made_backup.write_bytes(b"SQLite format 3\0" * 100)
    assert "no backup of Berth" in refused(made_backup, tmp_path / "new", capsys)


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/berth-evil", "secrets/../../evil", "secrets/.hidden", "homes/alice/x", "secrets/a/b", ""]
)
def test_no_path_leads_out_of_the_data_folder(
    name: str, made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(manifest: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        manifest["members"][name] = EMPTY
        members.append(entry(name))

    rewritten(made_backup, add)
    assert "damaged or no backup" in refused(made_backup, tmp_path / "new", capsys)
    assert not (tmp_path / "evil").exists() and not Path("/tmp/berth-evil").exists()


@pytest.mark.parametrize(
    ("kind", "link"), [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "berth.toml"), (tarfile.DIRTYPE, "")]
)
def test_only_plain_files_are_unpacked(
    kind: bytes, link: str, made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(manifest: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        manifest["members"]["secrets/link"] = EMPTY
        members.append(entry("secrets/link", kind, link))

    rewritten(made_backup, add)
    assert "no plain file" in refused(made_backup, tmp_path / "new", capsys)


def test_a_member_that_is_missing_or_there_twice_is_refused(
    made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = made_backup.read_bytes()
    rewritten(made_backup, lambda _, members: members.pop(0))
    assert "missing" in refused(made_backup, tmp_path / "new", capsys)
    made_backup.write_bytes(good)
    rewritten(made_backup, lambda _, members: members.append(members[0]))
    assert "twice" in refused(made_backup, tmp_path / "new", capsys)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("schema", "9999", "this Berth"),
        ("format", backup.FORMAT + 1, "that Berth or a later one"),
        ("jupyterhub", "99.0.0", "install jupyterhub 99.0.0"),
    ],
)
def test_a_backup_of_something_newer_is_refused(
    key: str, value: object, words: str, made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(made_backup, lambda manifest, _: manifest.update({key: value}))
    assert words in refused(made_backup, tmp_path / "new", capsys)


def test_a_dump_with_other_rows_than_it_says_is_refused(
    made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(made_backup, lambda manifest, _: manifest["rows"].update(posting=1))
    assert "not the rows" in refused(made_backup, tmp_path / "new", capsys)


def doubled(lines: list[str]) -> list[str]:
    return [line for each in lines for line in ([each, each] if each.startswith("[") else [each])]


def without_accounts(lines: list[str]) -> list[str]:
    """As a book is from which somebody deleted rows that others need."""
    table, kept = "", []
    for line in lines:
        table = json.loads(line)["table"] if line.startswith("{") else table
        kept += [line] if line.startswith("{") or table != "account" else []
    return kept


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (doubled, "contradict each other"),
        (without_accounts, "contradict each other"),
        (lambda lines: [lines[0], "[" * 99_999], "are damaged"),
        (lambda lines: [*lines, "no JSON"], "are damaged"),
        (lambda lines: [re.sub(r"^\[1,", "[" + "9" * 40 + ",", line) for line in lines], "are damaged"),
        (lambda lines: [line.replace('"table"', '"tabel"') for line in lines], "are damaged"),
    ],
    ids=["doubled", "missing", "nested", "no-json", "huge", "no-table"],
)
def test_rows_that_cannot_be_a_book_are_refused_in_a_line(
    damage: Callable[[list[str]], list[str]],
    words: str,
    made_backup: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The checksums fit: the book was so when it was saved, or somebody knows how."""

    def change(manifest: dict[str, Any], rest: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        for number, (member, data) in enumerate(rest):
            if member.name == backup.BOOK:
                made = ("\n".join(damage(data.decode().splitlines())) + "\n").encode()
                member.size = len(made)
                rest[number] = (member, made)
                manifest["members"][backup.BOOK] = {"size": len(made), "sha256": hashlib.sha256(made).hexdigest()}

    rewritten(made_backup, change)
    told = refused(made_backup, tmp_path / "new", capsys)
    assert words in told
    assert "Traceback" not in told and "INSERT" not in told and len(told.splitlines()) <= 2, told


def test_a_damaged_database_of_the_hub_is_refused(
    made_backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(manifest: dict[str, Any], rest: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        (number,) = [number for number, (member, _) in enumerate(rest) if member.name == backup.HUB]
        member, data = rest[number]
        made = data[:4096] + bytes(byte ^ 0x55 for byte in data[4096:])
        rest[number] = (member, made)
        manifest["members"][backup.HUB] = {"size": len(made), "sha256": hashlib.sha256(made).hexdigest()}

    rewritten(made_backup, change)
    assert "the Hub's database in this backup is damaged" in refused(made_backup, tmp_path / "new", capsys)


def test_a_restore_that_breaks_off_is_seen_and_done_again(
    made_backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    before = rows_of(root)

    def break_off(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_swap", break_off)
        assert main(["restore", str(made_backup), "--data", str(root), "--force"]) == 1
    assert rows_of(root) == before
    assert main(["up", "--data", str(root)]) == 1
    assert "did not come to its end" in capsys.readouterr().err
    assert main(["restore", str(made_backup), "--data", str(root), "--force"]) == 0
    assert not DataFolder(root).unfinished_restore.exists()
    assert rows_of(root) == before
