"""One hub process with its spawners, against a book, a bank and a runtime in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SpawnException

from quota.clock import SystemClock
from quota.leases import State, StopReason, Target
from spawner import gpu_spawner, start, stopping
from spawner.gpu_spawner import LocalGpuSpawner, Wiring
from spawner.placement import best_fit
from spawner.profiles import DEFAULT_PROFILES
from tests.fakes.runtime import FakeRuntime
from tests.fakes.spawner_book import FakeBank, FakeBook
from tests.harness.waiting import PATIENCE

BOOT = "hub-1"


class World:
    """One hub process with its parts, and servers that answer when told to."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SystemClock()
        self.book = FakeBook(clock)
        self.bank = FakeBank()
        self.runtime = FakeRuntime(clock)
        self.answering = True
        self.groups: list[Any] = []
        self.wiring = Wiring(
            book=self.book,  # type: ignore[arg-type]
            bank=self.bank,  # type: ignore[arg-type]
            rows=self.book,  # type: ignore[arg-type]
            runtime=self.runtime,
            clock=clock,
            boot=BOOT,
            host="h",
            profiles=DEFAULT_PROFILES,
            images={"this-environment": "This environment"},
            place=best_fit,
            homes=tmp_path / "homes",
            backend_words="Nothing isolates users.",
            start_timeout_s=20.0,
            service_url="http://127.0.0.1:9/services/berth/",
            farewells=self.book,
        )
        monkeypatch.setattr(gpu_spawner, "free_port", lambda: 12345)
        monkeypatch.setattr(stopping, "FREED_SECONDS", 0.0)  # there is no agent here
        monkeypatch.setattr(start, "RETRY_SECONDS", 0.05)
        monkeypatch.setattr(stopping, "RETRY_SECONDS", 0.05)

    def spawner(self, user: str = "alice", server: str = "", **options: Any) -> LocalGpuSpawner:
        world = self

        class Answering(LocalGpuSpawner):
            async def answers(self, ip: str, port: int, base_url: str) -> bool:
                return world.answering

        made = Answering(
            user=SimpleNamespace(name=user, url=f"/user/{user}/", escaped_name=user, groups=self.groups),
            hub=SimpleNamespace(public_host="", api_url="http://127.0.0.1:8081/hub/api", base_url="/hub/"),
            orm_spawner=SimpleNamespace(name=server, server=None, display_name=""),
            user_options=options,
        )
        made.wire = lambda: self.wiring
        made.stop_grace = 0.3
        made.api_token = "secret"
        return made


async def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + PATIENCE * seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


async def refusal(work: Awaitable[Any]) -> SpawnException:
    with pytest.raises(SpawnException) as caught:
        await work
    return caught.value


async def messages(spawner: LocalGpuSpawner) -> list[str]:
    return [str(event["message"]) async for event in spawner.progress()]


def assert_given_back(world: World, reason: StopReason) -> None:
    lease = world.book.one()
    assert (lease.state, lease.target, lease.stop_reason) == (State.STOPPING, Target.STOP, reason)
    assert lease.started_at is None
    assert not world.runtime.servers
