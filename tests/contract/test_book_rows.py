"""Rows about devices, servers and processes on a real book."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from quota.errors import NotFound
from quota.leases import DeviceState
from quota.rows import BOOT_FRESH, Heartbeat, Sample, Verdict
from tests.fakes.book import HOST, Desk, gpu, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        yield opened


# ---- heartbeats


def test_a_heart_beats(desk: Desk) -> None:
    started = desk.now
    desk.rows.beat("b1", "hub", "h1")
    desk.clock.advance(5)
    desk.rows.beat("b1", "hub", "h1", "busy")
    desk.rows.beat("a1", "agent", "h1")
    assert desk.rows.boots("hub") == [Heartbeat("b1", "hub", "h1", started, desk.now, "busy")]
    assert {beat.boot for beat in desk.rows.boots()} == {"a1", "b1"}
    desk.rows.drop_beat("b1")
    desk.rows.drop_beat("b1")
    assert desk.rows.boots("hub") == []


def test_a_buried_heart_is_stale_from_then_on(desk: Desk) -> None:
    desk.rows.beat("b1", "hub", "h1")
    desk.clock.advance(5)
    desk.rows.bury("b1")
    (buried,) = desk.rows.boots("hub")
    assert timedelta(0) < desk.now - BOOT_FRESH - buried.beat_at < timedelta(seconds=1)
    desk.clock.advance(100)
    desk.rows.bury("b1")
    desk.rows.bury("nobody")
    assert desk.rows.boots("hub") == [buried]  # it does not die again later


def test_a_heart_that_stopped_long_ago_is_forgotten(desk: Desk) -> None:
    desk.rows.beat("old", "hub", "h1")
    desk.clock.advance(6 * 86400)
    desk.rows.beat("new", "hub", "h1")
    assert {beat.boot for beat in desk.rows.boots()} == {"old", "new"}
    desk.clock.advance(2 * 86400)
    desk.rows.beat("newest", "hub", "h1")
    assert {beat.boot for beat in desk.rows.boots()} == {"new", "newest"}


# ---- devices


def test_devices_come_in_the_order_of_hosts_and_positions(desk: Desk) -> None:
    desk.rows.put_devices("h2", [gpu(0, host="h2")])
    desk.rows.put_devices("h1", [gpu(1), gpu(0)])
    assert [device.uuid for device in desk.rows.devices()] == ["SIM-h1-0", "SIM-h1-1", "SIM-h2-0"]
    first = desk.rows.devices()[0]
    assert first == replace(gpu(0), seen_at=desk.now)
    assert (first.simulated, first.memory_mib, first.used, first.free) == (True, 24576, 0, 1000)


def test_unknown_memory_stays_unknown(desk: Desk) -> None:
    desk.rows.put_devices(HOST, [replace(gpu(0), memory_mib=None)])
    assert desk.rows.devices()[0].memory_mib is None


def test_used_is_a_fold_over_live_leases(desk: Desk) -> None:
    desk.devices(1)
    one = desk.run("alice", share=250)
    desk.run("bob", share=125)
    assert desk.rows.devices()[0].used == 375
    desk.rows.put_devices(HOST, [replace(gpu(0), used=999)])
    assert desk.rows.devices()[0].used == 375
    desk.end(one)
    assert desk.rows.devices()[0].used == 125


def test_what_was_ordered_goes_before_what_is_seen(desk: Desk) -> None:
    desk.devices(1)
    desk.rows.set_device_state("SIM-h1-0", DeviceState.DRAINING, "new fan", by="admin")
    desk.rows.put_devices(HOST, [gpu(0)])
    (device,) = desk.rows.devices()
    assert (device.state, device.why, device.free) == (DeviceState.DRAINING, "new fan", 0)
    desk.rows.put_devices(HOST, [replace(gpu(0), state=DeviceState.SUSPECT, why="slow")])
    desk.rows.set_device_state("SIM-h1-0", DeviceState.OK, "", by="admin")
    (device,) = desk.rows.devices()
    assert (device.state, device.why) == (DeviceState.SUSPECT, "slow")
    assert [event.kind for event in desk.rows.events()] == ["device-state", "device-state"]
    with pytest.raises(NotFound):
        desk.rows.set_device_state("SIM-h1-9", DeviceState.OK, "")


def test_a_device_that_is_withdrawn_is_lost_while_it_is_held_and_then_gone(desk: Desk) -> None:
    desk.devices(2)
    lease = desk.run(share=1000)
    assert lease.slots[0].device == "SIM-h1-0"
    desk.rows.put_devices(HOST, [])
    (device,) = desk.rows.devices()
    assert (device.uuid, device.state, device.used) == ("SIM-h1-0", DeviceState.LOST, 1000)
    desk.end(lease)
    assert desk.rows.devices() == []
    desk.devices(2)
    assert [device.free for device in desk.rows.devices()] == [1000, 1000]


# ---- samples, signals, verdicts


def test_the_latest_sample_and_signals_of_live_leases(desk: Desk) -> None:
    desk.devices(1)
    lease = desk.run(share=125)
    desk.rows.put_sample(lease.id, Sample(desk.now, 1.5, None, None, 7))
    desk.rows.put_sample(lease.id, Sample(desk.now, 2.5, 100, None, None))
    assert desk.rows.samples() == {lease.id: Sample(desk.now, 2.5, 100, None, None)}
    kit = {"kernels": [{"id": "k", "busy": True}], "terminals": 0}
    desk.rows.put_signal(lease.id, "kit", {"kernels": []}, desk.now)
    later = desk.clock.advance(1)
    desk.rows.put_signal(lease.id, "kit", kit, later)
    desk.rows.put_signal(lease.id, "gpu", {"util": None}, later)
    assert desk.rows.signals(lease.id) == {"kit": (later, kit), "gpu": (later, {"util": None})}
    assert desk.rows.all_signals() == {lease.id: desk.rows.signals(lease.id)}
    desk.end(lease)
    assert (desk.rows.samples(), desk.rows.all_signals()) == ({}, {})


def test_the_latest_verdict_stays_after_the_end(desk: Desk) -> None:
    desk.devices(1)
    lease = desk.run(share=125)
    assert desk.rows.verdict(lease.id) is None
    desk.rows.put_verdict(lease.id, desk.now, "keep", "busy", "a kernel is busy", {}, None)
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "idle for 30 min", {"cpu": 0.1}, desk.now)
    verdict = Verdict(lease.id, desk.now, "warn", "idle", "idle for 30 min", {"cpu": 0.1}, desk.now)
    assert desk.rows.verdict(lease.id) == verdict
    assert desk.rows.verdicts() == {lease.id: verdict}
    desk.end(lease)
    assert desk.rows.verdicts() == {}
    assert desk.rows.verdict(lease.id) == verdict
    with pytest.raises(ValueError, match="keep, warn or reclaim"):
        desk.rows.put_verdict(lease.id, desk.now, "kill", "", "", {}, None)


def test_nothing_is_written_about_a_lease_that_is_not_there(desk: Desk) -> None:
    for write in (
        lambda: desk.rows.put_sample("l0", Sample(desk.now)),
        lambda: desk.rows.put_signal("l0", "kit", {}, desk.now),
        lambda: desk.rows.put_verdict("l0", desk.now, "keep", "", "", {}, None),
    ):
        with pytest.raises(NotFound):
            write()


# ---- history and small facts


def test_history_is_newest_first_and_can_be_narrowed(desk: Desk) -> None:
    account = desk.bank.ensure_account("alice")
    desk.rows.add_event("one", lease_id="l1", by="alice", detail={"n": 1})
    desk.rows.add_event("two", account_id=account.id)
    desk.rows.add_event("three")
    assert [event.kind for event in desk.rows.events(limit=2)] == ["three", "two"]
    (one,) = desk.rows.events(lease_id="l1")
    assert (one.kind, one.by, one.detail, one.at) == ("one", "alice", {"n": 1}, desk.now)
    assert [event.kind for event in desk.rows.events(account_id=account.id)] == ["two", "grant", "account-created"]


def test_small_facts(desk: Desk) -> None:
    assert desk.rows.meta("deployment") is None
    desk.rows.set_meta("deployment", "a")
    desk.rows.set_meta("deployment", "b")
    assert desk.rows.meta("deployment") == "b"
