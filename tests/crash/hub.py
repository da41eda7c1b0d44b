"""One life of a hub: the real spawner (`GpuSpawner`, `Start`) on a simulated loop, in a small model of JupyterHub.

Of JupyterHub itself only the order of things is modelled (jupyterhub/user.py, `spawn` and `stop`; app.py,
`init_spawners`): a server is in the Hub's database before `start`, its state after it; a start that fails is polled and
stopped; a server that died by itself is never stopped; at its boot the Hub polls whom its database calls running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from jupyterhub.spawner import Spawner

from quota.leases import Lease
from spawner import gpu_spawner, start, stopping, threads
from spawner.gpu_spawner import LocalGpuSpawner, Wiring
from spawner.placement import best_fit
from spawner.ports import Runtime, ServerSpec
from spawner.profiles import DEFAULT_PROFILES
from tests.crash.kits import GRACES
from tests.crash.parts import HOST, HUB_BEGIN, HUB_COMMITTED, SimulatedLoop

if TYPE_CHECKING:
    from tests.crash.world import World

POLL_SECONDS = 5
HTTP_SECONDS = 15
START_SECONDS = 45.0


@dataclass
class HubRow:
    """What the Hub's own database has of a user's server: it outlives the hub."""

    running: bool = False
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """What a user does: starts, stays, stops. `boot`: seconds until the server answers (None: never). `cancel`: the
    start is taken back after so many seconds. `slow`: seconds that the home and the runtime take. `visible`: whether
    the Hub reaches the server too. `kit`: what the kit in it does (`kits.KINDS`)."""

    user: str
    profile: str
    stays: float = 20.0
    boot: float | None = 1.0
    cancel: float | None = None
    slow: tuple[float, float] = (0.0, 0.0)
    visible: bool = True
    deaf: bool = False
    kit: str = "none"


class Present:
    """The world at present: the spawner's modules know no other way to it than their globals."""

    world: World


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the world's clock and its one thread where the spawner has the machine's."""
    clock = SimpleNamespace(monotonic=lambda: Present.world.clock.run.total_seconds())
    for module in (start, stopping, gpu_spawner, threads):
        patch.setattr(module, "time", clock)
        patch.setattr(module, "in_thread", _in_thread)
    for module in (start, stopping):
        patch.setattr(module, "looks_at", _looks_at)
    patch.setattr(gpu_spawner, "free_port", lambda: 12345)
    patch.setattr(Spawner, "start_polling", lambda self: None)  # `Hub` polls


def _looks_at(runtime: Runtime) -> threads.Looks:
    """Of this process: its loop lives as long, and one that is dead may still be at its last step."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop.shared.setdefault("looks", threads.Looks(runtime))


async def _in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A blocking call: others act before it and after it, and for as long as it takes."""
    hub = Present.world.hub
    await asyncio.sleep(0)
    if hub is not None and function == hub.world.runtime.start:
        spec: ServerSpec = args[0]
        hub.in_flight[spec.lease_id] = spec  # the runtime may have been asked when we die
        await asyncio.sleep(hub.slow_of(spec.lease_id)[1])
        hub.in_flight.pop(spec.lease_id, None)
    elif hub is not None and getattr(function, "__name__", "") == "make_spec":
        await asyncio.sleep(hub.slow_of(args[0].id)[0])
    answer = function(*args, **kwargs)
    await asyncio.sleep(0)
    return answer


class SimulatedSpawner(LocalGpuSpawner):
    """The real one, but for what it runs and how it is asked whether it answers."""

    hub_life: Hub
    session: Session
    server: Any = SimpleNamespace(url="/", base_url="/")

    async def answers(self, ip: str, port: int, base_url: str) -> bool:
        lease = self._starting.lease if self._starting is not None else None
        return lease is not None and self.hub_life.world.answers(lease.id)

    def make_spec(self, lease: Lease, env: Any) -> ServerSpec:
        self.hub_life.world.prepare(lease.id, self.session)
        return ServerSpec(lease.id, ("serve",), {}, "/")


class Hub:
    """A process: its tasks run by turns of its loop; after its death nothing of it does anything durable."""

    name = "hub"

    def __init__(self, world: World, boot: str) -> None:
        self.world, self.boot, self.dead = world, boot, False
        self.loop = SimulatedLoop(world.clock)
        self.spawners: dict[str, SimulatedSpawner] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.in_flight: dict[str, ServerSpec] = {}
        self.turning = False
        self.paused_until = 0.0
        self.wiring = self._wiring()
        start._OURS.clear()  # globals of a process
        threads._BEGUN.clear()
        world.rows.beat(boot, "hub", HOST)
        for user, row in world.hub_rows.items():
            if row.running:
                self.begin(self._found_at_boot(user))

    def _wiring(self) -> Wiring:
        world = self.world
        return Wiring(
            book=world.book,
            bank=world.bank,
            rows=world.rows,
            runtime=world.runtime,
            clock=world.clock,
            boot=self.boot,
            host=HOST,
            profiles=DEFAULT_PROFILES,
            images={"this-environment": "This environment"},
            place=best_fit,
            homes=Path("/nowhere"),
            backend_words="",
            start_timeout_s=START_SECONDS,
            graces=GRACES,
        )

    # ---- a process -----------------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.loop.create_task(work))

    def turn(self) -> None:
        """Run what is due; nothing while it is at it already, or stands still."""
        if self.turning or self.dead or self.loop.time() < self.paused_until:
            return
        self.turning = True
        try:
            with self.world.acting(self):
                self.loop.turn()
        finally:
            self.turning = False
        if not self.dead:
            for task in [task for task in self.tasks if task.done()]:
                self.tasks.remove(task)
                task.result()  # a fault of the spawner, or of this model

    def bury(self) -> None:
        """Free what a dead one has; not from inside its loop."""
        self.tasks.clear()
        for task in asyncio.all_tasks(self.loop):
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self.loop.close()

    def slow_of(self, lease_id: str) -> tuple[float, float]:
        for spawner in self.spawners.values():
            lease = spawner._starting.lease if spawner._starting is not None else None
            if lease is not None and lease.id == lease_id:
                return spawner.session.slow
        return (0.0, 0.0)

    # ---- JupyterHub ----------------------------------------------------------------------------------------------

    def _spawner(self, session: Session) -> SimulatedSpawner:
        user = session.user
        made = SimulatedSpawner(
            user=SimpleNamespace(name=user, url=f"/user/{user}/", escaped_name=user, groups=[]),
            hub=SimpleNamespace(public_host="", api_url="http://127.0.0.1:8081/hub/api", base_url="/hub/"),
            orm_spawner=SimpleNamespace(name="", server=None, display_name=""),
            user_options={"profile": session.profile},
        )
        made.wire = lambda: self.wiring
        made.stop_grace = 5.0
        made.api_token = "secret"
        made.hub_life, made.session = self, session
        self.spawners[user] = made
        return made

    def _save(self, user: str, *, running: bool, state: dict[str, Any]) -> None:
        """One commit of the Hub's own database."""
        self.world.reach(HUB_BEGIN)
        self.world.hub_rows[user] = HubRow(running, state)
        self.world.reach(HUB_COMMITTED)

    def wants(self, user: str) -> bool:
        """Whether the Hub would begin a start for this user: never two at once."""
        return user not in self.spawners and not self.world.hub_rows[user].running

    async def play(self, session: Session) -> None:
        """User.spawn, a life, User.stop."""
        if not self.wants(session.user):
            return
        spawner = self._spawner(session)
        self._save(session.user, running=True, state={})
        begun = asyncio.ensure_future(spawner.start())
        if session.cancel is not None:
            self.loop.call_later(session.cancel, begun.cancel)
        try:
            await begun
        except (Exception, asyncio.CancelledError):
            await self._stop(session.user)
            return
        self._save(session.user, running=True, state=spawner.get_state())
        spawner._waiting_for_response = True
        if not await self._reached(spawner):
            await self._stop(session.user)
            return
        spawner._waiting_for_response = False
        await self._live(session.user, session.stays)

    async def _reached(self, spawner: SimulatedSpawner) -> bool:
        """The Hub asks the server itself, with its own patience."""
        until = self.loop.time() + HTTP_SECONDS
        while self.loop.time() < until:
            if spawner.session.visible and self.world.answers(spawner._lease_id):
                return True
            if await spawner.poll() is not None:
                return False
            await asyncio.sleep(1)
        return False

    async def _live(self, user: str, stays: float) -> None:
        spawner = self.spawners[user]
        spawner.start_polling()
        until = self.loop.time() + stays
        while self.loop.time() < until:
            if await spawner.poll() is not None:
                break
            await asyncio.sleep(min(POLL_SECONDS, max(0.0, until - self.loop.time())))
        await self._stop(user)

    async def _stop(self, user: str) -> None:
        """User.stop: only what runs is stopped."""
        spawner = self.spawners[user]
        if await spawner.poll() is None:
            self.world.unwanted.add(spawner._lease_id)
            await spawner.stop()
        spawner.clear_state()
        self._save(user, running=False, state={})
        del self.spawners[user]

    async def _found_at_boot(self, user: str) -> None:
        """init_spawners: its database calls it running."""
        session = self.world.sessions.get(user) or Session(user, "cpu")
        spawner = self._spawner(session)
        spawner.load_state(self.world.hub_rows[user].state)
        if await spawner.poll() is None:
            await spawner.get_url()
            if await self._reached(spawner):
                await self._live(user, session.stays)
                return
        await self._stop(user)
