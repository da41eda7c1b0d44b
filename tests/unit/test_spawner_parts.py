"""The small parts of the spawner: homes, shared looks, who asked."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from quota.clock import SystemClock
from quota.leases import StopReason
from spawner.homes import EXAMPLES, prepare_home, settings_folder
from spawner.hub_facts import asked_by, name_of
from spawner.ports import Look, Unreachable
from spawner.threads import Looks, looks_at
from tests.fakes.runtime import FakeRuntime

# ---- homes -----------------------------------------------------------------------------------------------------


def test_a_new_home_is_private_and_has_the_examples(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "homes", "alice")
    assert home.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (home / EXAMPLES).iterdir()] == ["digits.ipynb"]
    assert os.listdir(tmp_path / "homes") == ["alice"], "nothing half done is left"


def test_examples_are_never_overwritten_and_never_come_back(tmp_path: Path) -> None:
    home = prepare_home(tmp_path, "alice")
    notebook = home / EXAMPLES / "digits.ipynb"
    notebook.write_text("mine")
    prepare_home(tmp_path, "alice")
    assert notebook.read_text() == "mine"
    notebook.unlink()
    notebook.parent.rmdir()
    (home / "work.txt").write_text("something of mine")
    prepare_home(tmp_path, "alice")
    assert not (home / EXAMPLES).exists()


def test_two_servers_of_one_user_may_start_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = list(pool.map(lambda _: prepare_home(tmp_path, "alice"), range(16)))
    assert len(set(homes)) == 1
    assert [path.name for path in (homes[0] / EXAMPLES).iterdir()] == ["digits.ipynb"]
    assert os.listdir(tmp_path) == ["alice"]


def test_s20_a_home_lies_where_its_name_says(tmp_path: Path) -> None:
    users = ["a-b", "a_b", "a.b", "a@b.org", "用户", "x" * 80]
    assert len({prepare_home(tmp_path, user) for user in users}) == len(users)
    assert {path.parent for path in tmp_path.iterdir()} == {tmp_path}


def test_the_shipped_settings_are_there() -> None:
    assert (settings_folder() / "labconfig" / "default_setting_overrides.json").is_file()


# ---- looks -----------------------------------------------------------------------------------------------------


class Slow(FakeRuntime):
    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.looks = 0
        self.go = threading.Event()

    def look(self) -> Look:
        self.looks += 1
        assert self.go.wait(10)
        return super().look()


async def test_everybody_who_waits_at_once_shares_one_look() -> None:
    runtime = Slow()
    looks = Looks(runtime)
    waiting = [asyncio.ensure_future(looks.newer_than(0.0)) for _ in range(50)]
    await asyncio.sleep(0.05)
    runtime.go.set()
    assert all(look == {} for look in await asyncio.gather(*waiting))
    assert runtime.looks == 1


async def test_a_look_that_began_earlier_is_not_newer() -> None:
    runtime = Slow()
    looks = Looks(runtime)
    first = asyncio.ensure_future(looks.newer_than(0.0))
    await asyncio.sleep(0.05)
    second = asyncio.ensure_future(looks.newer_than(time.monotonic()))
    runtime.go.set()
    await asyncio.gather(first, second)
    assert runtime.looks == 2


async def test_one_who_gives_up_waiting_takes_the_look_from_nobody() -> None:
    runtime = Slow()
    looks = Looks(runtime)
    impatient = asyncio.ensure_future(looks.newer_than(0.0))
    patient = asyncio.ensure_future(looks.newer_than(0.0))
    await asyncio.sleep(0.05)
    impatient.cancel()
    runtime.go.set()
    assert await patient == {}


async def test_an_error_of_a_look_is_unreachable() -> None:
    runtime = FakeRuntime(SystemClock())
    runtime.look = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    look = await Looks(runtime).newer_than(0.0)
    assert isinstance(look, Unreachable)
    assert "ZeroDivisionError" in look.why


def test_a_runtime_has_one_set_of_looks() -> None:
    runtime, other = FakeRuntime(SystemClock()), FakeRuntime(SystemClock())
    assert looks_at(runtime) is looks_at(runtime)
    assert looks_at(runtime) is not looks_at(other)


# ---- who asked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asker", "name"),
    [
        (SimpleNamespace(name="alice", kind="user"), "alice"),
        (SimpleNamespace(name="alice"), "alice"),
        (SimpleNamespace(name="berth", kind="service"), "service:berth"),
        (None, ""),
        (SimpleNamespace(), ""),
    ],
)
def test_an_asker_by_name(asker: object, name: str) -> None:
    assert name_of(asker) == name


async def test_a_task_that_tells_nothing_is_a_stop_by_the_user() -> None:
    assert asked_by(None, "alice") == ("", StopReason.USER)
    assert asked_by(asyncio.current_task(), "alice") == ("", StopReason.USER)
