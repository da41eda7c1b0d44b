"""Two processes that race for the last of something: one wins each time, and the other is told the right reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quota.bank import Defaults
from quota.leases import DeviceState, State, StopReason
from quota.units import MicroCredits
from tests.contract.racing import Race, nothing, run
from tests.fakes.book import BOOT, HOST, Desk, gpu, open_desk

#: Credit for exactly one hold of half a GPU: fifteen minutes.
ONE_HOLD = Defaults(monthly_grant=MicroCredits(125_000))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.bank.seed()
        yield opened


def url_of(desk: Desk) -> str:
    return desk.store.url.render_as_string(hide_password=False)


@pytest.fixture
def rounds(deep: bool) -> int:
    """Of the races that prove the serialisation."""
    return 1000 if deep else 200


def want_whole(desk: Desk, side: str, _number: int) -> str:
    return desk.reserve(side, share=1000).state.value


def want_server(desk: Desk, side: str, _number: int) -> str:
    return desk.reserve("alice", side).state.value


def free_all(desk: Desk, side: str, _number: int) -> None:
    if side == "left":
        for lease in desk.book.live():
            desk.book.request_stop(lease.id, StopReason.USER)
            desk.wind_up(desk.book.acknowledge(lease.id, BOOT))


def winners(pairs: list[tuple[Any, Any]], won: object, lost: object) -> dict[tuple[Any, Any], int]:
    """How often which side won; nothing but one winner and the right refusal may occur."""
    counted = {pair: pairs.count(pair) for pair in set(pairs)}
    assert set(counted) <= {(won, lost), (lost, won)}, counted
    return counted


def test_p03_two_processes_race_for_the_last_share(desk: Desk, rounds: int) -> None:
    desk.devices(1)
    for user in ("left", "right"):
        desk.bank.ensure_account(user)
    (pairs,) = run(url_of(desk), Race(want_whole, rounds, free_all))
    assert len(pairs) == rounds
    assert len(winners(pairs, "RESERVED", "no-room")) == 2, "each side must win now and then, or it was no race"
    assert desk.bank.audit() == []


def test_two_processes_race_for_the_last_credit(tmp_path: Path, rounds: int) -> None:
    with open_desk(tmp_path, defaults=ONE_HOLD) as desk:
        desk.devices(2)
        desk.bank.ensure_account("alice")
        (pairs,) = run(url_of(desk), Race(want_server, rounds, free_all))
        assert len(pairs) == rounds
        assert len(winners(pairs, "RESERVED", "no-credit")) == 2, "each side must win now and then"
        assert desk.bank.account("alice").available == ONE_HOLD.monthly_grant
        assert desk.bank.audit() == []


# ---- everything else that two may do at once -------------------------------------------------------------------


def same_account(desk: Desk, _side: str, number: int) -> int:
    return desk.bank.ensure_account(f"new{number}").id


def same_grant(desk: Desk, _side: str, number: int) -> int:
    return desk.bank.grant("alice", 1_000, by="admin", key=f"k{number}")


def another_grant(desk: Desk, side: str, number: int) -> Any:
    desk.bank.grant("alice", 1_000 if side == "left" else 2_000, by="admin", key=f"other{number}")
    return "granted"


def alert(desk: Desk, _side: str, number: int) -> bool:
    return desk.alerts.put(f"a{number % 5}", "test", "trouble")


def end_alert(desk: Desk, _side: str, number: int) -> None:
    desk.alerts.clear(f"a{number % 5}")


def same_price(desk: Desk, _side: str, number: int) -> int:
    return desk.bank.set_price(number + 10, 0, "admin").plan_id


def another_price(desk: Desk, side: str, number: int) -> int:
    return desk.bank.set_price(number + 10, 1 if side == "left" else 2, "admin").plan_id


def limits(desk: Desk, side: str, number: int) -> int | None:
    return desk.bank.set_limits("alice", {"max_servers": 5 if side == "left" else 6}, "admin").max_servers


def beat(desk: Desk, _side: str, number: int) -> str:
    desk.rows.beat(f"b{number}", "hub", HOST)
    return "beats"


def same_devices(desk: Desk, side: str, number: int) -> int:
    several = [gpu(position) for position in range(4)]
    desk.rows.put_devices(f"new{number}", several if side == "left" else several[::-1])
    return len(desk.rows.devices())


def order(desk: Desk, side: str, number: int) -> str:
    desk.rows.set_device_state("SIM-h1-0", DeviceState.DRAINING if side == "left" else DeviceState.OK, "x", "admin")
    return "ordered"


def test_the_first_writes_of_two_processes_at_once(desk: Desk) -> None:
    """Rows that both make for the first time: neither meets an error, and there is one of each."""
    few = 40
    desk.bank.ensure_account("alice")
    desk.devices(1)
    jobs = {
        job.__name__: Race(job, few, end_alert if job is alert else nothing)
        for job in (
            *(same_account, same_grant, another_grant, alert, same_price, another_price),
            *(limits, beat, same_devices, order),
        )
    }
    found = dict(zip(jobs, run(url_of(desk), *jobs.values()), strict=True))
    for job in ("same_account", "same_grant", "same_price"):
        assert all(left == right and isinstance(left, int) for left, right in found[job]), (job, found[job])
    assert len({left for left, _ in found["same_account"]}) == few
    assert {frozenset(pair) for pair in found["another_grant"]} == {frozenset({"granted", "Conflict"})}
    assert {frozenset(pair) for pair in found["alert"]} == {frozenset({True, False})}
    assert all(left != right for left, right in found["another_price"])
    assert {limit for pair in found["limits"] for limit in pair} <= {5, 6}
    assert set(found["beat"]) == {("beats", "beats")}
    assert set(found["order"]) == {("ordered", "ordered")}
    assert desk.bank.account("alice").available == 100_000_000 + few * 1_000 + sum(desk_grants(desk, "other"))
    assert desk.bank.audit() == []


def desk_grants(desk: Desk, prefix: str) -> list[int]:
    buckets = desk.bank.account("alice").buckets
    return [bucket.amount for bucket in buckets if bucket.key.startswith(f"manual:{prefix}")]


# ---- one lease, two who write it -------------------------------------------------------------------------------


def the_lease(desk: Desk, server: str) -> Any:
    return next(lease for lease in desk.book.leases("alice") if lease.holder.server == server)


def meter(desk: Desk, _side: str, number: int) -> str:
    desk.clock.advance(1)
    return "charged" if desk.book.meter(the_lease(desk, "metered"), desk.now).lease.charged else "nothing"


def stop(desk: Desk, side: str, number: int) -> str:
    reason = StopReason.USER if side == "left" else StopReason.IDLE
    return desk.book.request_stop(the_lease(desk, f"s{number}").id, reason, by=side).stop_by


def settle(desk: Desk, _side: str, number: int) -> str:
    lease = the_lease(desk, f"s{number}")
    lease = desk.book.acknowledge(lease.id, BOOT)
    return desk.book.settle(desk.book.release(lease, desk.now)).state.value


def refund(desk: Desk, _side: str, number: int) -> int:
    return desk.bank.refund(the_lease(desk, "done").id, 100, by="admin", note="")


def void(desk: Desk, _side: str, number: int) -> str:
    desk.book.void(the_lease(desk, "voided").id)
    return "void"


def test_x07_two_processes_that_write_one_lease_at_once(desk: Desk) -> None:
    servers = 15
    desk.devices(servers + 3)
    desk.bank.ensure_account("alice")
    desk.bank.set_limits("alice", {"max_servers": None, "max_gpu_milli": None}, "admin")
    desk.run("alice", "metered")
    desk.run("alice", "voided")
    for number in range(servers):
        desk.run("alice", f"s{number}")
    desk.session(60, "alice", server="done")
    races = [Race(meter, 30), Race(stop, servers), Race(settle, servers), Race(refund, 5), Race(void, 3)]
    metered, stopped, settled, refunded, voided = run(url_of(desk), *races)
    assert {word for pair in metered for word in pair} <= {"charged", "Stale"}, metered
    assert all("charged" in pair for pair in metered)
    assert all(left == right in ("left", "right") for left, right in stopped), stopped
    for pair in settled:
        assert "SETTLED" in pair and set(pair) <= {"SETTLED", "Stale"}, settled
    assert set(refunded) == {(100, 100)}
    assert set(voided) == {("void", "void")}
    assert [lease.state for lease in desk.book.leases("alice") if lease.holder.server == "s0"] == [State.SETTLED]
    assert desk.bank.audit() == []
