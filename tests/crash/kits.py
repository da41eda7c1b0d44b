"""The kits in the servers of the simulated world, and the service that writes down what they say: a process of its own
that may die before or after each of its commits. A kit repeats what nobody answered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from quota.errors import BerthError
from quota.farewells import Farewells
from quota.leases import State, Target
from quota.leaving import Graces
from tests.crash.parts import Died

if TYPE_CHECKING:
    from tests.crash.world import World

#: None has no kit; the others have a kernel to save. "lies" says at once that it is done, "never" says nothing.
KINDS = ("none", "saves", "never", "lies")
GRACES = Graces(timedelta(seconds=20), timedelta(seconds=6))
SAVING_S = 3
REPORT_S = 10
KERNEL = {"kernels": [{"id": "k", "busy": True}], "terminals": 0}


@dataclass
class Service:
    """Service berth as far as kits speak with it."""

    world: World
    name: str = "service"
    dead: bool = False
    kinds: dict[str, str] = field(default_factory=dict)  # by lease id
    reported: dict[str, datetime] = field(default_factory=dict)
    busy: bool = False

    def act(self) -> None:
        """Every kit of a server that runs says what it has to say; a service that dies is there again the next time."""
        if self.busy or not self.kinds:
            return
        self.busy = True
        alive = self.world.runtime.alive()
        for lease_id in [each for each in self.kinds if each in alive]:
            with suppress(Died, BerthError), self.world.acting(self):
                self._say(lease_id)
            self.dead = False
        self.busy = False

    def _say(self, lease_id: str) -> None:
        world, now = self.world, self.world.clock.now()
        last = self.reported.get(lease_id)
        if last is None or now - last >= timedelta(seconds=REPORT_S):
            world.rows.put_signal(lease_id, "kit", KERNEL, now)
            self.reported[lease_id] = now
        lease, kind = world.book.lease(lease_id), self.kinds[lease_id]
        if lease.state is not State.RUNNING or lease.target is not Target.STOP:
            return
        farewells = Farewells(world.store, world.clock)
        said = farewells.of(lease_id)
        if kind == "never" or (said is not None and said.done_at is not None):
            return
        if kind == "saves" and (said is None or now - said.began_at < timedelta(seconds=SAVING_S)):
            farewells.heard(lease_id, {"state": "saving"}, done=False)
            return
        farewells.heard(lease_id, {"state": "done"}, done=True)
