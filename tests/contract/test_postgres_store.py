"""What only PostgreSQL has: a server that is not there or says no, a password, and one that dies and comes back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from hub_config.cli import main
from hub_config.datafolder import BOOK_PASSWORD, DataFolder
from quota import schema
from quota.errors import BerthError, Reason, Refused
from quota.store import Contended, Store, insert_new, retried
from tests.fakes import postgres
from tests.fakes.book import Desk, books_on, open_desk
from tests.fakes.clock import FakeClock
from tests.fakes.postgres import PASSWORD, Cluster
from tests.harness.waiting import until

pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    with postgres.database(cluster) as made:
        yield made


@pytest.fixture
def kept(cluster: Cluster) -> Iterator[str]:
    """An empty database of role `keeper`, who needs a password."""
    made = cluster.empty(owner="keeper")
    yield made
    cluster.drop(made)


def settings(root: Path, url: str, more: str = "") -> str:
    data = DataFolder(root)
    data.make()
    data.settings_file.write_text(f'[book]\nurl = "{url}"\n{more}')
    return str(root)


# ---- a server that cannot be used ------------------------------------------------------------------------------


def test_every_trouble_with_the_server_is_one_line_with_a_remedy(
    cluster: Cluster, kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = {
        "postgresql://u@127.0.0.1:1/berth?connect_timeout=2": "is the server up",
        f"postgresql://u@/berth?host={tmp_path}": "is the server up",
        cluster.url("no_such_database"): "CREATE DATABASE",
        cluster.url(kept, user="nobody_here"): "CREATE ROLE",
        cluster.url(kept, user="keeper"): "password",
        cluster.url(kept) + "&sslmod=require": "follows the ?",
        f"sqlite:///{tmp_path}/no/such/folder/book.sqlite": "there is no folder|There is no book|there is no book",
    }
    for number, (url, remedy) in enumerate(troubles.items()):
        root = settings(tmp_path / str(number), url)
        assert main(["status", "--data", root]) == 1
        page = capsys.readouterr().out
        assert any(word in page for word in remedy.split("|")), (url, page)
        for command in (["migrate"], ["grant", "alice", "1"], ["backup", str(tmp_path / "no")]):
            assert main([*command, "--data", root]) in (1, 2), (command, url)
            told = capsys.readouterr()
            assert told.err.startswith("berth: ") and told.err.count("\n") == 1, (command, told.err)
            assert any(word in told.err for word in remedy.split("|")), (command, url, told.err)
            assert told.out == ""
    monkeypatch.setenv(BOOK_PASSWORD, "wrong-geheim")
    root = settings(tmp_path / "wrong", cluster.url(kept, user="keeper"))
    assert main(["status", "--data", root]) == 1
    told = capsys.readouterr()
    assert "put the right password" in told.out and "geheim" not in told.err + told.out


def test_a_password_opens_the_book_and_is_never_told(
    cluster: Cluster,
    kept: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    root = settings(tmp_path / "data", cluster.url(kept, user="keeper"), 'password_file = "secrets/book"\n')
    (tmp_path / "data" / "secrets" / "book").write_text(PASSWORD + "\n")
    assert main(["migrate", "--data", root]) == 0
    assert main(["grant", "alice", "5", "--create", "--data", root]) == 0
    with Store(cluster.url(kept, user="keeper"), PASSWORD) as store:
        with pytest.raises(Refused) as caught, store.write() as connection:
            connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
        shown = [str(caught.value), repr(caught.value.__cause__), store.where, str(store.url), repr(store.engine)]
    told = capsys.readouterr()
    for text in (*shown, told.out, told.err, caplog.text):
        assert PASSWORD not in text and "staple" not in text


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_is_refused(cluster: Cluster, encoding: str) -> None:
    with cluster.connect() as admin:
        admin.execute(f"CREATE DATABASE latin TEMPLATE template0 ENCODING '{encoding}' LOCALE_PROVIDER libc LOCALE 'C'")
    try:
        with Store(cluster.url("latin")) as store, pytest.raises(BerthError, match=rf"{encoding}.*UTF-8"):
            store.migrate()
    finally:
        cluster.drop("latin")


def test_what_the_database_cannot_hold_is_a_bad_value(cluster: Cluster, name: str) -> None:
    with Store(cluster.url(name)) as store:
        for value in ("a\0b", "x" * 300):
            with pytest.raises(ValueError, match="cannot hold"), store.write() as connection:
                insert_new(connection, schema.meta, {"key": value, "value": ""})
        with pytest.raises(ValueError, match="cannot hold"), store.write() as connection:
            insert_new(connection, schema.balance, {"sub": "x", "amount": 2**63})


# ---- transactions ----------------------------------------------------------------------------------------------


def test_a_deadlock_is_ended_by_the_server_and_tried_again(cluster: Cluster, name: str) -> None:
    with Store(cluster.url(name)) as store:
        with store.write() as connection:
            for key in "ab":
                insert_new(connection, schema.meta, {"key": key, "value": "0"})
        both, runs = threading.Barrier(2), []

        @retried
        def add(first: str, second: str) -> None:
            runs.append(first)
            with store.write() as connection:
                for key in (first, second):
                    row = sa.update(schema.meta).where(schema.meta.c.key == key)
                    connection.execute(row.values(value=schema.meta.c.value + key))
                    if len(runs) <= 2 and key == first:
                        both.wait(10)

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(add, *keys) for keys in ("ab", "ba")]:
                done.result(60)
        assert len(runs) == 3
        with store.read() as connection:
            assert {row.key: row.value for row in connection.execute(sa.select(schema.meta))} == {
                "a": "0aa",
                "b": "0bb",
            }


def test_without_end_a_deadlock_is_a_book_that_is_not_available() -> None:
    runs = []

    @retried
    def never() -> None:
        runs.append(1)
        raise Contended(Reason.BOOK_UNAVAILABLE, why="deadlock detected")

    with pytest.raises(Refused) as caught:
        never()
    assert caught.value.reason is Reason.BOOK_UNAVAILABLE and 1 < len(runs) < 10


def test_a_read_is_one_snapshot_and_writes_nothing(cluster: Cluster, name: str) -> None:
    count = sa.select(sa.func.count()).select_from(schema.meta)
    with Store(cluster.url(name)) as store:
        with store.read() as reader:
            assert reader.scalar(count) == 0
            with store.write() as writer:
                insert_new(writer, schema.meta, {"key": "new", "value": ""})
            assert reader.scalar(count) == 0
        with pytest.raises(Refused, match="read-only"), store.read() as reader:
            insert_new(reader, schema.meta, {"key": "newer", "value": ""})
        with store.read() as reader:
            assert reader.scalar(count) == 1


def test_nobody_waits_for_ever_for_a_lock(cluster: Cluster, name: str) -> None:
    with Store(cluster.url(name)) as store, store.read() as connection:
        shown = [
            connection.scalar(sa.text(f"SHOW {setting}"))
            for setting in ("lock_timeout", "idle_in_transaction_session_timeout", "application_name")
        ]
    assert shown == ["30s", "1min", "berth"]


def test_a_row_that_somebody_holds_is_a_busy_book(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quota.store._SESSION", ("SET lock_timeout = '200ms'",))
    with Store(cluster.url(name)) as store, store.write() as connection:
        insert_new(connection, schema.meta, {"key": "held", "value": ""})
        with pytest.raises(Refused, match="busy") as caught, store.write() as other:
            insert_new(other, schema.meta, {"key": "held", "value": ""})
        assert caught.value.reason is Reason.BOOK_UNAVAILABLE


# ---- a server that dies ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal() -> Iterator[Cluster]:
    """A server of this module's own, to be killed."""
    with Cluster() as started:
        yield started


def test_n02_a_server_that_is_killed_and_comes_back_loses_nothing(mortal: Cluster, tmp_path: Path) -> None:
    with books_on(mortal), open_desk(tmp_path) as desk:
        desk.devices(1)
        lease = desk.run("alice")
        desk.clock.advance(60)
        idle = [Desk(desk.store, FakeClock()).book.live for _ in range(4)]  # several connections in the pool
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda read: read(), idle))
        mortal.kill()
        for call in (desk.book.live, lambda: desk.book.meter(lease, desk.now), desk.beat):
            with pytest.raises(Refused) as caught:
                call()
            assert caught.value.reason is Reason.BOOK_UNAVAILABLE
        mortal.start()
        lease = until(lambda: desk.book.meter(lease, desk.now).lease, 30, "the book answers")
        assert lease.charged > 0
        assert desk.end(lease).state.value == "SETTLED"
        assert desk.bank.audit() == []
