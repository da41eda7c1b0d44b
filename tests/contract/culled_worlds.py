"""A culler on a real book and a Hub over loopback, with a clock in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from idle_culler.app import Culler, CullerParts
from idle_culler.decide import Policy
from idle_culler.hub_api import HubClient
from quota.leases import Lease, Target
from tests.fakes.book import Desk, open_desk
from tests.fakes.culled_hub import TOKEN, CulledHub

POLICY = Policy(idle_gpu=1800, idle_cpu=7200, notice=300)


@dataclass
class World:
    desk: Desk
    hub: CulledHub
    client: HubClient
    policy: Policy = POLICY
    leases: list[Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.culler = self.new_culler()

    def parts(self, **more: Any) -> CullerParts:
        values = {"book": self.desk.book, "rows": self.desk.rows, "clock": self.desk.clock, "hub": self.client}
        return CullerParts(**{**values, "policy": lambda lease: self.policy, **more})

    def new_culler(self, **more: Any) -> Culler:
        return Culler(self.parts(**more))

    def server(self, user: str = "alice", server: str = "", gpus: int = 1) -> Lease:
        """A running server that the Hub knows as well, on a simulated GPU or none."""
        lease = self.desk.run(user, server, share=1000 if gpus else 0, count=gpus)
        self.hub.add(user, server)
        self.leases.append(lease)
        return lease

    def signals(
        self,
        lease: Lease,
        *,
        busy: bool | None = False,
        last: datetime | None = None,
        cpu: float = 0.1,
        programs: int = 0,
        gpu: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """What a server's kit and its host report now; `gpu` is what is said of a device that is none of ours."""
        kernel = {"id": "k", "busy": busy, "last_execute_at": last and last.isoformat(), "busy_since": None}
        payloads: dict[str, Any] = {
            "kit": {"kernels": [kernel], "terminals": 0},
            "host": {"cpu_percent": cpu, "cpu_active_at": None, "processes": programs, "window_s": 10.0},
        }
        if gpu is not None:
            payloads["gpu"] = gpu
        common = {"lease_id": lease.id, "at": self.desk.now}
        return [{**common, "source": source, "payload": payload} for source, payload in payloads.items()]

    def signal(self, lease: Lease, **said: Any) -> None:
        for row in self.signals(lease, **said):
            self.desk.rows.put_signal(**row)

    async def look(self, seconds: float = 60, **signals: Any) -> None:
        """Time passes, everything reports, the culler looks."""
        self.desk.clock.advance(seconds)
        for lease in self.leases:
            if self.lease(lease).target is Target.RUN:
                self.signal(lease, **signals)
        await self.culler.cycle()

    async def until(self, minutes: int, **signals: Any) -> None:
        for _ in range(minutes):
            await self.look(60, **signals)

    def lease(self, lease: Lease) -> Lease:
        return self.desk.book.lease(lease.id)

    def kind(self, lease: Lease) -> str:
        verdict = self.desk.rows.verdict(lease.id)
        return f"{verdict.kind}:{verdict.rule}" if verdict else "none"

    def history(self, lease: Lease) -> list[str]:
        events = [event for event in self.desk.rows.events(lease.id) if event.kind == "idle-verdict"]
        return [f"{event.detail['kind']}:{event.detail['rule']}" for event in reversed(events)]


@asynccontextmanager
async def open_world(folder: Path, page: int = 200) -> AsyncIterator[World]:
    hub = CulledHub()
    runner = web.AppRunner(hub.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = HubClient(f"http://127.0.0.1:{runner.addresses[0][1]}/hub/api", TOKEN, page=page, timeout=10)
    try:
        with open_desk(folder) as desk:
            desk.devices(4)
            yield World(desk, hub, client)
    finally:
        await client.close()
        await runner.cleanup()
