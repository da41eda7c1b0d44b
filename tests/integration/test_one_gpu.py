"""The smallest fleets: one simulated GPU under a storm of starts, and none at all."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.harness import Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

STARTS = 50


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    toml = '[gpus]\nsource = "simulated"\nsimulated = 1\n'
    with Stack(tmp_path_factory.mktemp("one") / "data", toml) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


@pytest.fixture(scope="module")
def none(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("none") / "data", '[gpus]\nsource = "none"\n') as stack:
        yield stack


class Watch(threading.Thread):
    """Reads the largest sum of shares on any device from the book, as often as it can."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.path = stack.data / "book.sqlite"
        self.most, self.looks = 0, 0
        self.done = threading.Event()

    def run(self) -> None:
        live = "SELECT SUM(share) AS held FROM slot WHERE released_at IS NULL GROUP BY device"
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)) as book:
            while not self.done.is_set():
                self.most = max(self.most, book.execute(f"SELECT COALESCE(MAX(held), 0) FROM ({live})").fetchone()[0])
                self.looks += 1


@pytest.mark.parametrize("turn", range(3))
def test_n04_the_same_user_starts_by_browser_rest_and_admin_at_once(stack: Stack, turn: int) -> None:
    me, admin, together = stack.researcher, stack.admin, threading.Barrier(3)
    options = {"profile": "gpu-1-2"}
    me.browser.get("/hub/spawn").raise_for_status()
    before = {lease["id"] for lease in me.leases()}

    def by_form() -> int:
        return me.browser.post(f"/hub/spawn?_xsrf={me.xsrf}", data=options, follow_redirects=False).status_code

    ways = [by_form, lambda: me.ask_start(options).status_code, lambda: admin.ask_start(user=me.name).status_code]

    def at_once(way: Callable[[], int]) -> int:
        together.wait(30)
        return way()

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(at_once, ways[turn:] + ways[:turn]))
    assert all(code < 500 for code in answers) and any(code < 400 for code in answers), answers
    until(me.ready, 60, "one of them is ready")
    made = [lease for lease in me.leases() if lease["id"] not in before]
    (lease,) = [lease for lease in made if lease["state"] == "RUNNING"]
    assert made == [lease], "one lease, one hold"
    assert len(stack.server_processes()) == 1
    with closing(sqlite3.connect(f"file:{stack.data / 'book.sqlite'}?mode=ro", uri=True)) as book:
        holds = book.execute("SELECT count(DISTINCT key) FROM posting WHERE key = ?", (f"hold:{lease['id']}",))
        held = book.execute("SELECT count(*) FROM balance WHERE sub LIKE 'held:%' AND amount <> 0")
        assert (holds.fetchone()[0], held.fetchone()[0]) == ((1, 1) if lease["count"] else (0, 0))
    me.stop()


def test_p03_fifty_parallel_starts_of_a_half_make_two(stack: Stack) -> None:
    names = [f"user{number}" for number in range(STARTS)]
    admin = stack.admin
    assert admin.hub("POST", "/users", {"usernames": names}).status_code == 201
    watch = Watch(stack)
    watch.start()
    with ThreadPoolExecutor(STARTS) as pool:
        answers = list(pool.map(lambda name: admin.ask_start({"profile": "gpu-1-2"}, user=name), names))
    codes = Counter(answer.status_code for answer in answers)
    refused = [answer for answer in answers if answer.status_code == 409]
    assert len(refused) == STARTS - 2, codes
    assert all("1/2 GPU (simulated) is not free" in answer.json()["message"] for answer in refused)
    started = [name for name, answer in zip(names, answers, strict=True) if answer.status_code in (201, 202)]
    for name in started:
        until(lambda name=name: admin.ready(user=name), 60, f"{name}'s server is ready")
    watch.done.set()
    watch.join()
    assert watch.looks > 10
    assert watch.most == 1000, "at no commit was more held than there is"
    live = [lease for lease in admin.leases() if lease["state"] != "SETTLED"]
    assert [(lease["state"], lease["share_milli"]) for lease in live] == [("RUNNING", 500)] * 2
    assert len(stack.server_processes()) == 2
    for name in started:
        admin.stop(user=name)


def test_p14_what_is_free_is_what_the_allocator_sees(stack: Stack) -> None:
    free = stack.researcher.free_now
    assert free()["gpu-1-2"] == 2
    stack.researcher.start("gpu-1-2")
    assert (free()["gpu-1-2"], free()["gpu-1"]) == (1, 0)
    lease = stack.researcher.lease()
    stack.researcher.stop()
    stack.researcher.settled(lease["id"])
    assert free()["gpu-1-2"] == 2


def test_p14_without_gpus_a_start_is_refused_within_a_second(none: Stack) -> None:
    me = none.researcher
    started = time.monotonic()
    refusal = me.refused({"profile": "gpu-1-8"})
    assert time.monotonic() - started < PATIENCE * 1
    assert refusal.status == 409
    assert "This site has none" in refusal.words
    assert me.leases() == []
    assert {free for name, free in me.free_now().items() if name != "cpu"} == {0}


def test_p14_without_gpus_the_spawn_page_greys_them_out(none: Stack) -> None:
    page = none.researcher.browser.get("/hub/spawn").text
    options = [part for part in page.split("<input")[1:] if 'name="profile"' in part.partition(">")[0]]
    choices = {part.partition('value="')[2].partition('"')[0]: "disabled" in part.partition(">")[0] for part in options}
    assert choices["cpu"] is False
    assert all(disabled for name, disabled in choices.items() if name != "cpu")


def test_p14_without_gpus_cpu_servers_still_run(none: Stack) -> None:
    none.researcher.start("cpu")
    none.researcher.stop()
