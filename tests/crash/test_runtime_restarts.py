"""The runtime restarts while servers run: whatever it did to them, leases follow what is there once it answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from quota.leases import State, StopReason
from tests.crash.hub import Session
from tests.crash.parts import Template
from tests.crash.world import World

pytestmark = pytest.mark.crash

AWAY_S = 30


@pytest.mark.parametrize("fate", ["lives on", "ended, on record", "ended, no record"])
def test_n03_leases_follow_a_runtime_that_restarts(fate: str, template: Template) -> None:
    world = World(template)
    try:
        world.start(Session("ada", "gpu-1-2", stays=1e6))
        for _ in range(8):
            world.second()
        (before,) = world.book.live()
        assert before.state is State.RUNNING
        world.runtime.outage = "it is being restarted"
        gone = world.clock.now() + timedelta(seconds=5)
        for second in range(AWAY_S):
            if second == 5 and fate == "ended, on record":
                world.runtime.end(before.id, -9)
            if second == 5 and fate == "ended, no record":
                world.runtime.vanish(before.id)
            world.second()
            meanwhile = world.book.lease(before.id)
            assert meanwhile.live and meanwhile.stop_reason is None, "an outage is no absence"
        last_seen = world.book.lease(before.id).last_seen
        assert last_seen is not None and last_seen <= gone - timedelta(seconds=5)
        world.runtime.outage = ""
        for _ in range(5):  # close, remove, release, settle: a cycle each
            world.second()
        after = world.book.lease(before.id)
        if fate == "lives on":
            assert (after.state, after.stop_reason, after.slots) == (State.RUNNING, None, before.slots)
            assert after.last_seen is not None and after.last_seen > gone
        else:
            assert (after.state, after.stop_reason) == (State.SETTLED, StopReason.FAILED)
            assert after.ended_at == (gone if fate == "ended, on record" else last_seen)
        world.heal()
    finally:
        world.close()
