"""What readings say against a device, and whom an XID is laid on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Device, DeviceState
from spawner import xid
from spawner.fleet import room, to_devices, whole_free
from spawner.health import part_remark, part_share, remark, trouble
from spawner.ports import GpuProcess, GpuReading, MemoryHealth, MigPart

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WELL = GpuReading("GPU-1", 0, "NVIDIA A100", 40960, 0, 0, simulated=False)
PART = MigPart("GPU-1", "1g.5gb", 4, 7, 0, "MIG-1")


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (None, ""),
        (MemoryHealth(), ""),
        (MemoryHealth(corrected=10**6, lifetime_corrected=10**9, lifetime_uncorrected=12), ""),
        (MemoryHealth(uncorrected=0, repair_pending=False, repair_failed=False), ""),
        (MemoryHealth(uncorrected=1), "1 error of its memory could not be corrected"),
        (MemoryHealth(uncorrected=3, repair_pending=True), "3 errors of its memory could not be corrected"),
        (MemoryHealth(repair_pending=True), "bad memory waits to be replaced"),
        (MemoryHealth(repair_pending=True, repair_failed=True), "bad memory could not be replaced"),
    ],
)
def test_p10_what_is_held_against_a_card(health: MemoryHealth | None, words: str) -> None:
    assert trouble(replace(WELL, health=health)).startswith(words)
    assert bool(trouble(replace(WELL, health=health))) == bool(words)


def test_what_is_said_of_a_card_that_is_well() -> None:
    one, many = (GpuProcess(7, None),), tuple(GpuProcess(pid, 1) for pid in (5, 4, 3, 2, 2))
    assert remark(WELL, 0) == ""
    assert remark(replace(WELL, processes=()), 0) == ""
    assert remark(replace(WELL, processes=one), 0) == "in use by 1 program (pid 7), without a lease"
    assert remark(replace(WELL, processes=many), 0) == "in use by 4 programs (pid 2, 3, 4, …), without a lease"
    assert remark(replace(WELL, processes=many), 125) == "", "they may be those of the lease"
    assert "MIG" in remark(replace(WELL, mig=True), 0)
    assert "next reset" in remark(replace(WELL, mig=False, mig_pending=True), 0)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_errors_of_programs_leave_the_card_as_it_is(number: int) -> None:
    assert xid.of(number).application
    assert str(number) in str(xid.of(number))


@pytest.mark.parametrize("number", [48, 63, 64, 74, 79, 92, 94, 95, 119, 4711, 0])
def test_all_others_are_the_hardwares(number: int) -> None:
    assert not xid.of(number).application
    assert xid.of(number).words


def test_no_number_is_in_both_tables() -> None:
    assert not set(xid.APPLICATION) & set(xid.HARDWARE)


def test_a_fault_keeps_a_device_back_and_is_told() -> None:
    (row,) = to_devices("here", (WELL,), (), NOW, faults={"GPU-1": "XID 79", "GPU-2": "XID 48"})
    assert (row.state, row.why, row.seen_at) == (DeviceState.SUSPECT, "XID 79", NOW)
    (well,) = to_devices("here", (WELL,), (row,), NOW)
    assert (well.state, well.why) == (DeviceState.OK, "")


def test_the_mode_of_the_settings_is_not_that_of_a_divided_card() -> None:
    card, part = replace(WELL, mig=True), replace(WELL, uuid="GPU-1:1g.5gb:4", part=PART)
    rows = to_devices("here", (card, part), (), NOW, mode="exclusive", modes={"GPU-1": "mps"})
    assert {row.mode for row in rows} == {"mig"}
    (whole,) = to_devices("here", (replace(WELL, mig=False),), rows, NOW, mode="exclusive")
    assert (whole.mode, whole.free) == ("exclusive", 1000)


readings = st.builds(
    GpuReading,
    uuid=st.sampled_from(["GPU-1", "GPU-2"]),
    position=st.integers(0, 1),
    name=st.just("A100"),
    memory_mib=st.none() | st.integers(1, 10**6),
    memory_used_mib=st.none(),
    utilisation=st.none() | st.integers(0, 100),
    simulated=st.just(False),
    error=st.sampled_from(["", "it hangs"]),
    health=st.none()
    | st.builds(MemoryHealth, uncorrected=st.none() | st.integers(0, 2), repair_pending=st.none() | st.booleans()),
    mig=st.none() | st.booleans(),
    part=st.none() | st.just(PART),
)


@given(st.lists(readings, max_size=3), st.dictionaries(st.sampled_from(["GPU-1", "GPU-2"]), st.just("XID 48")))
def test_p10_nothing_that_is_known_to_be_ill_or_divided_is_ever_given_out(
    found: list[GpuReading], faults: dict[str, str]
) -> None:
    last = {reading.uuid: reading for reading in found}
    for row in to_devices("here", found, (), NOW, faults=faults):
        reading = last[row.uuid]
        divided = (reading.mig and reading.part is None) or (reading.part is not None and not part_share(reading.part))
        ill = bool(reading.error or trouble(reading) or row.uuid in faults or divided)
        given_out = bool(room(row, 125) or whole_free(row) or row.free)
        assert given_out != ill
        assert row.why or not ill


def test_a_row_of_a_part_goes_with_its_card_alone() -> None:
    row = Device("here", "GPU-1:1g.5gb:4", 0, "A100 MIG 1g.5gb", 4864, "mig", False, DeviceState.OK)
    assert [one.uuid for one in to_devices("here", (WELL,), (row,), NOW)] == ["GPU-1"]
    lost = replace(WELL, error="GPU is lost", lost=True)
    (_, kept) = to_devices("here", (lost,), (row,), NOW)
    assert (kept.uuid, kept.state, kept.why) == (row.uuid, DeviceState.LOST, "GPU is lost")
    (gone,) = to_devices("here", (), (row,), NOW)
    assert (gone.state, gone.why) == (DeviceState.LOST, "MIG was set up anew, and this part is gone")


@pytest.mark.parametrize(
    ("part", "share", "words"),
    [
        (replace(PART, profile="2g.10gb", size=2), 250, "made by MIG: 2/8 of the memory, 2/7 of the compute"),
        (replace(PART, profile="7g.40gb", size=8), 1000, "made by MIG: 8/8 of the memory, 7/7 of the compute"),
        (replace(PART, profile="1c.3g.20gb", size=4), 0, "shares its memory with others"),
        (replace(PART, size=1, mig_uuid=""), 0, "does not tell its UUID"),
        (PART, 0, "only the superuser may read"),
        (replace(PART, size=9), 0, "only the superuser may read"),
    ],
)
def test_a_part_counts_for_its_memory_or_is_not_given_out(part: MigPart, share: int, words: str) -> None:
    assert part_share(part) == share
    assert words in part_remark(part)
