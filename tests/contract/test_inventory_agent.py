"""The agent on a machine with a driver that misbehaves: real book, real pynvml over the shim, time of our own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idle_culler.decide import Decision, Keep, Policy, Reclaim, Rule, decide
from idle_culler.signals import NOTHING, read
from quota.alerts import Alert
from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Lease, State, Target
from quota.rows import Event
from spawner import devices
from spawner.ports import GpuReading, Unreachable
from tests.contract.test_inventory_nvml import ONE, TWO
from tests.harness.waiting import PATIENCE
from tests.integration.agent_site import HOST, SimulatedSite, quick_folder, simulated_site
from tests.shim.driver import Driver

Make = Callable[..., Driver]
Site = Callable[..., SimulatedSite]


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


@pytest.fixture
def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Makes the one site of a test; its agent waits for the devices, however slow the machine."""
    monkeypatch.setattr(devices, "DEVICES_PATIENCE_S", 20.0)
    made = []

    def make(inventory: object) -> SimulatedSite:
        world = simulated_site(folder, inventory=inventory)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def rows(world: SimulatedSite) -> dict[str, Device]:
    return {device.uuid: device for device in world.rows.devices()}


def alerts(world: SimulatedSite) -> dict[str, Alert]:
    return {alert.key: alert for alert in world.alerts.open()}


def xids(world: SimulatedSite) -> list[Event]:
    return [event for event in reversed(world.rows.events(limit=1000)) if event.kind == devices.XID_EVENT]


def untouched(world: SimulatedSite, lease: Lease) -> bool:
    now = world.now(lease)
    return (now.state, now.target, now.slots) == (State.RUNNING, Target.RUN, lease.slots)


# ---- the driver as a whole -------------------------------------------------------------------------------------


def test_a_driver_that_never_worked_is_told_and_nothing_is_made_up(driver: Make, site: Site) -> None:
    world = site(driver(name="driver-mismatch"))
    world.live_for(1)
    assert world.rows.devices() == []
    alert = alerts(world)[f"fleet-driver:{HOST}"]
    assert alert.kind == "fleet-driver"
    assert "version mismatch" in alert.words and "reboot this host" in alert.words
    assert alert.detail == {"host": HOST}
    with pytest.raises(Refused):
        world.reserve(share=1000)
    cpu = world.run(share=0)
    world.live_for(30)
    assert untouched(world, cpu), "a server without a GPU needs no driver"


def test_leases_outlive_a_driver_that_stops_to_work(driver: Make, site: Site) -> None:
    machine = driver(name="driver-mismatch")
    machine.stage("rebooted")
    world = site(machine)
    lease = world.run(share=1000)
    world.live_for(6)
    assert alerts(world) == {}
    machine.stage("upgraded while it runs")
    world.live_for(30)
    assert untouched(world, lease)
    assert set(alerts(world)) == {f"fleet-driver:{HOST}", f"fleet-blind:{HOST}"}
    assert {device.state for device in rows(world).values()} == {DeviceState.SUSPECT}
    with pytest.raises(Refused) as refused:
        world.reserve("bob", share=1000)
    assert refused.value.reason is Reason.NO_ROOM
    machine.reboot("rebooted")
    world.live_for(6)
    assert alerts(world) == {}
    assert untouched(world, lease)
    assert {device.state for device in rows(world).values()} == {DeviceState.OK}


def test_an_alert_of_an_agent_before_is_cleared_by_the_next(driver: Make, site: Site) -> None:
    machine = driver(name="driver-not-loaded")
    world = site(machine)
    world.live_for(30)
    assert f"fleet-driver:{HOST}" in alerts(world)
    world.agent = world.new_agent("agent-2")
    machine.reboot("loaded")
    world.live_for(1)
    assert alerts(world) == {}


def test_a_standing_alert_is_told_again_and_not_at_every_cycle(driver: Make, site: Site) -> None:
    world = site(driver(name="driver-not-loaded"))
    world.live_for(1)
    first = alerts(world)[f"fleet-driver:{HOST}"]
    world.live_for(50)
    assert alerts(world)[f"fleet-driver:{HOST}"] == first
    world.live_for(30)
    again = alerts(world)[f"fleet-driver:{HOST}"]
    assert (again.since, again.words) == (first.since, first.words)
    assert again.seen_at > first.seen_at


# ---- blind is not idle -----------------------------------------------------------------------------------------

IDLE = Policy(idle_gpu=120, notice=30)


def verdicts(world: SimulatedSite, lease: Lease, seconds: int) -> list[Decision]:
    """What the idle rules say every ten seconds of a server that does nothing."""
    memory, found = NOTHING, []
    for _ in range(seconds // 10):
        kernel = {"id": "k", "busy": False, "last_execute_at": None, "busy_since": None}
        world.rows.put_signal(lease.id, "kit", {"kernels": [kernel], "terminals": 0}, world.clock.now())
        world.live_for(10, step=10)
        signals = read(lease, world.rows.signals(lease.id), memory, world.clock.now())
        found.append(decide(signals, IDLE, world.clock.now()))
        memory = found[-1].memory
    return found


def test_i07_an_idle_gpu_that_can_be_read_is_reclaimed(driver: Make, site: Site) -> None:
    """What the next tests rest on: without the fault the same server is stopped."""
    machine = driver(name="order-changes")
    world = site(machine)
    lease = world.run(share=1000)
    assert any(isinstance(verdict, Reclaim) for verdict in verdicts(world, lease, 240))


@pytest.mark.parametrize(
    "fault",
    ["fail nvmlDeviceGetCount_v2 UNKNOWN", "crash nvmlDeviceGetCount_v2"],
)
def test_i07_a_driver_that_raises_for_twice_the_time_out_stops_nobody_and_is_told(
    driver: Make, site: Site, fault: str
) -> None:
    machine = driver(ONE, TWO)
    world = site(machine)
    lease = world.run(share=1000)
    world.live_for(6)
    machine.scenario("boot 2", fault, ONE, TWO)
    told = verdicts(world, lease, 240)
    assert not any(isinstance(verdict, Reclaim) for verdict in told)
    assert isinstance(told[-1], Keep)
    assert told[-1].evidence.rule is Rule.BLIND
    assert world.rows.signals(lease.id)["gpu"][1]["util"] is None
    assert untouched(world, lease)
    blind = alerts(world)[f"fleet-blind:{HOST}"]
    assert "no server is stopped for idleness" in blind.words


@pytest.mark.parametrize("fault", ["fail nvmlDeviceGetUtilizationRates NO_DATA", "fail nvmlDeviceGetUUID UNKNOWN"])
def test_i07_one_device_that_cannot_be_read_keeps_its_server(driver: Make, site: Site, fault: str) -> None:
    machine = driver(ONE)
    world = site(machine)
    lease = world.run(share=1000)
    world.live_for(6)
    machine.scenario(ONE, fault)
    told = verdicts(world, lease, 240)
    assert not any(isinstance(verdict, Reclaim) for verdict in told)
    assert told[-1].evidence.rule is Rule.BLIND


def test_i07_a_held_device_that_cannot_be_read_is_told_beside_others_that_can(driver: Make, site: Site) -> None:
    machine = driver(name="lost-card")
    world = site(machine)
    world.live_for(1)
    for user in ("ada", "bob"):
        world.run(user, share=1000)
    machine.stage("lost")
    world.live_for(10)
    assert alerts(world) == {}, "not at once: it may be passing"
    world.live_for(20)
    words = alerts(world)[f"fleet-blind:{HOST}"].words
    assert words.startswith("NVIDIA A10 (GPU-0000000b) has not been readable since") and "fell off the bus" in words
    assert "GPU-0000000a" not in words
    machine.reboot("back")
    world.live_for(6)
    assert alerts(world) == {}


class Silent:
    """An inventory that does not come back."""

    simulated = False

    def __init__(self) -> None:
        self.until = time.monotonic() + 20
        self.silent = False

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        while self.silent and time.monotonic() < self.until:
            time.sleep(0.01)
        return (GpuReading("GPU-1", 0, "NVIDIA A10", 24576, 0, 0, simulated=False),)


def test_an_inventory_that_does_not_come_back_delays_nobody_and_its_devices_are_not_given_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = Silent()
    world = site(inventory)
    lease = world.run(share=500)
    monkeypatch.setattr(devices, "DEVICES_PATIENCE_S", 0.0)
    inventory.silent = True
    world.live_for(30)
    assert untouched(world, lease)
    assert alerts(world)[f"fleet-blind:{HOST}"].words.count("they do not answer") == 1
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT
    with pytest.raises(Refused):
        world.reserve("bob", share=125)
    assert sum(1 for thread in threading.enumerate() if thread.name == "devices") == 1
    inventory.silent = False
    monkeypatch.setattr(devices, "DEVICES_PATIENCE_S", 20.0)
    world.live_for(7)
    assert alerts(world) == {}
    assert rows(world)["GPU-1"].state is DeviceState.OK


def test_a_clock_that_is_set_on_makes_nobody_blind(driver: Make, site: Site) -> None:
    world = site(driver(ONE))
    world.live_for(6)
    world.clock.advance(7200)
    world.agent.cycle()
    assert f"fleet-blind:{HOST}" not in alerts(world)
    assert rows(world)["GPU-0001"].state is DeviceState.OK


# ---- devices ---------------------------------------------------------------------------------------------------


def test_a_held_lease_stays_on_its_device_when_the_order_changes(driver: Make, site: Site) -> None:
    machine = driver(name="order-changes")
    world = site(machine)
    leases = [world.run(user, share=1000) for user in ("ada", "bob")]
    before = [lease.slots[0].device for lease in leases]
    machine.reboot("second boot")
    world.live_for(6)
    assert [world.now(lease).slots[0].device for lease in leases] == before
    assert {uuid for uuid, device in rows(world).items() if device.used} == set(before)
    third = world.run("eve", share=1000)
    assert third.slots[0].device not in before
    with pytest.raises(Refused):
        world.reserve("fay", share=1000)


def test_p11_a_lost_card_is_never_given_out_and_its_lease_is_left_alone(driver: Make, site: Site) -> None:
    machine = driver(name="lost-card")
    world = site(machine)
    world.live_for(1)
    leases = [world.run(user, share=1000) for user in ("ada", "bob")]
    assert [lease.slots[0].device for lease in leases] == ["GPU-0000000a", "GPU-0000000b"]
    machine.stage("lost")
    world.live_for(6)
    assert all(untouched(world, lease) for lease in leases)
    assert rows(world)["GPU-0000000b"].state is DeviceState.LOST
    assert world.run("eve", share=1000).slots[0].device == "GPU-0000000c"
    with pytest.raises(Refused) as refused:
        world.reserve("fay", share=125)
    assert refused.value.facts["out_of_service"] == 1
    assert [event.detail["xid"] for event in xids(world)] == [79]
    world.clock.advance(1800)
    machine.reboot("back")
    world.live_for(6)
    assert rows(world)["GPU-0000000b"].state is DeviceState.OK


def test_p10_a_card_with_an_uncorrectable_error_is_never_given_out(driver: Make, site: Site) -> None:
    world = site(driver(name="ecc"))
    given = {world.run(f"user{n}", share=1000).slots[0].device for n in range(4)}
    assert given == {"GPU-00000000", "GPU-00000002", "GPU-00000003", "GPU-00000004"}
    with pytest.raises(Refused):
        world.reserve("eve", share=125)
    assert "could not be corrected" in rows(world)["GPU-00000001"].why


def test_a_device_that_hangs_delays_nobody(driver: Make, site: Site) -> None:
    machine = driver(name="hang-device", device_timeout_s=0.5)
    world = site(machine)
    lease = world.run(share=1000)
    machine.stage("handle")
    began = time.monotonic()
    world.live_for(30)
    assert time.monotonic() - began < PATIENCE * 20
    assert untouched(world, lease)
    assert [device.state for device in rows(world).values()] == [DeviceState.OK, DeviceState.SUSPECT, DeviceState.OK]
    assert alerts(world) == {}, "nobody holds the one that hangs"


def test_devices_without_an_identity_are_told(driver: Make, site: Site) -> None:
    machine = driver(name="odd-identities")
    world = site(machine)
    world.live_for(1)
    words = alerts(world)[f"fleet-nameless:{HOST}"].words
    assert "GPU 0: the device tells no usable UUID" in words and "GPU 2: 2 devices tell the same UUID" in words
    assert "GPU 4" not in words
    assert set(rows(world)) == {"GPU-00000002", "GPU-00000005"}
    machine.scenario(ONE)
    world.live_for(6)
    assert alerts(world) == {}


def test_p15_a_part_has_one_holder_and_the_card_has_none(driver: Make, site: Site) -> None:
    machine = driver(name="mig")
    world = site(machine)
    world.live_for(1)
    assert len(rows(world)) == 5
    assert world.run("ada", share=1000).slots[0].device == "GPU-0000000b"
    assert world.reserve("bob", share=250).slots[0].device == "GPU-0000000a:3g.20gb:4"
    for share in (250, 500, 1000):
        with pytest.raises(Refused):
            world.reserve("eve", share=share)
    machine.reboot("undivided")
    world.live_for(6)
    assert {"GPU-0000000a", "GPU-0000000b"} <= set(rows(world))
    assert world.run("eve", share=1000).slots[0].device == "GPU-0000000a"


# ---- XIDs ------------------------------------------------------------------------------------------------------


def test_p10_hardware_errors_keep_a_device_back_and_errors_of_programs_do_not(driver: Make, site: Site) -> None:
    machine = driver(name="xid")
    world = site(machine)
    world.live_for(1)
    machine.stage("errors")
    world.live_for(6)
    found = rows(world)
    assert [found[f"GPU-0000000{n}"].state.value for n in range(3)] == ["ok", "suspect", "suspect"]
    assert found["GPU-00000001"].why.startswith("XID 63 (a part of its memory was put down to be replaced) at 20")
    assert "not in Berth's list" in found["GPU-00000002"].why
    events = {(event.detail["device"], event.detail["xid"]): event.detail for event in xids(world)}
    assert {key[1] for key, detail in events.items() if detail["application"]} == {13, 31, 43, 45, 68}
    assert events["GPU-00000000", 31]["count"] == 3
    assert events["GPU-00000001", 48]["words"] == "an ECC error that could not be corrected"
    assert {event.by for event in xids(world)} == {"agent"}


def test_p12_a_device_that_has_been_quiet_is_given_out_again_also_by_the_next_agent(driver: Make, site: Site) -> None:
    machine = driver(ONE)
    world = site(machine)
    world.live_for(1)
    machine.scenario(ONE, "xid 74")
    world.live_for(6)
    why = rows(world)["GPU-0001"].why
    assert why.startswith("XID 74 (an error of an NVLink)") and "30 minutes" in why
    machine.reboot_as(ONE)
    world.agent = world.new_agent("agent-2")
    world.live_for(1740, step=60)
    assert (rows(world)["GPU-0001"].state, rows(world)["GPU-0001"].why) == (DeviceState.SUSPECT, why)
    world.live_for(120, step=60)
    assert (rows(world)["GPU-0001"].state, rows(world)["GPU-0001"].why) == (DeviceState.OK, "")


def test_what_was_reported_while_the_book_could_not_be_written_is_not_lost(
    driver: Make, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver tells an event once."""
    machine = driver(ONE)
    world = site(machine)
    world.live_for(1)

    def unavailable(*_: object, **__: object) -> None:
        raise RuntimeError("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(world.rows, "add_event", unavailable)
        machine.scenario(ONE, "xid 48")
        world.live_for(6)
    assert xids(world) == []
    world.live_for(6)
    assert [event.detail["xid"] for event in xids(world)] == [48]
    assert rows(world)["GPU-0001"].state is DeviceState.SUSPECT


def test_a_warning_of_a_person_stands_beside_what_the_agent_sees(driver: Make, site: Site) -> None:
    machine = driver(ONE)
    world = site(machine)
    world.live_for(1)
    world.rows.set_device_state("GPU-0001", DeviceState.DRAINING, "fan is loud")
    machine.scenario(ONE, "ecc uncorrected=1")
    world.live_for(6)
    assert rows(world)["GPU-0001"].why == "fan is loud"
    world.rows.set_device_state("GPU-0001", DeviceState.OK, "")
    assert rows(world)["GPU-0001"].state is DeviceState.SUSPECT
    assert "could not be corrected" in rows(world)["GPU-0001"].why


def test_the_temperature_of_a_lease_is_that_of_its_hottest_device(driver: Make, site: Site) -> None:
    world = site(driver(f"{ONE} temperature=50", f"{TWO} temperature=71", "device GPU-3 A10 24576 0 0 temperature=n/a"))
    both = world.run("ada", share=1000, count=2)
    odd = world.run("bob", share=1000)
    world.live_for(11)
    assert world.rows.signals(both.id)["gpu"][1]["temperature_c"] == 71
    assert world.rows.signals(odd.id)["gpu"][1]["temperature_c"] is None
