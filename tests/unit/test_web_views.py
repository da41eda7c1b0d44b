"""What pages say about leases, devices, processes and accounts: decided by pure functions, no server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quota.api import asked, kit
from quota.entitlement import Limits
from quota.leases import Device, DeviceState, Holder, Lease, Price, Slot, State, StopReason, Target
from quota.rows import Event, Heartbeat, Sample, Verdict
from quota.units import MicroCredits, MilliGpu
from quota.web import desk
from quota.web.board import matches
from quota.web.figures import figures, receipt, segments_of
from quota.web.history import evidence_words, steps
from quota.web.lines import burn, device_card, lease_row, sentence
from quota.web.problem import Problem
from quota.web.snapshot import Snapshot
from quota.web.views import lasting
from quota.web.words import device_words

AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
PRICE = Price(1, MicroCredits(1_000_000), MicroCredits(0))
DEVICE = Device("h1", "GPU-1", 0, "NVIDIA A10", 24576, "time-slice", False, DeviceState.OK)


def lease(**changes: Any) -> Lease:
    values: dict[str, Any] = {
        "id": "l1",
        "version": 3,
        "state": State.RUNNING,
        "target": Target.RUN,
        "holder": Holder("alice"),
        "account_id": 1,
        "account": "alice",
        "profile": "gpu-1-2",
        "image": "env",
        "share": MilliGpu(500),
        "count": 1,
        "slots": (Slot("h1", "GPU-1", MilliGpu(500)),),
        "simulated": False,
        "price": PRICE,
        "owner": "boot",
        "requested_at": AT,
        "requested_by": "alice",
        "started_at": AT,
    }
    return Lease(**{**values, **changes})


def seen(found: Lease, **more: Any) -> Snapshot:
    return Snapshot(now=LATER, devices={"GPU-1": DEVICE}, parts={found.id: segments_of(found)}, **more)


def verdict(kind: str, ago: float = 10, **more: Any) -> dict[str, Verdict]:
    return {"l1": Verdict("l1", LATER - timedelta(seconds=ago), kind, "idle", "not used", {}, **more)}


# ---- figures ----


def test_a_running_lease_costs_up_to_now_and_goes_on() -> None:
    found = figures(lease(), segments_of(lease()), LATER)
    assert (found.usage, found.charged, found.per_hour) == (1_800_000, 500_000, 500_000)


def test_an_ended_lease_that_is_not_settled_costs_up_to_its_end() -> None:
    over = lease(state=State.RELEASED, target=Target.STOP, ended_at=AT + timedelta(seconds=36))
    found = figures(over, segments_of(over), LATER)
    assert (found.charged, found.per_hour) == (5_000, 0)


def test_a_lease_that_is_being_removed_never_shows_more_than_its_final_bill() -> None:
    seen_at = AT + timedelta(seconds=36)
    going = lease(state=State.STOPPING, target=Target.STOP, last_seen=seen_at)
    found = figures(going, segments_of(going), LATER)
    assert (found.charged, found.per_hour) == (5_000, 0)
    unseen = lease(state=State.STOPPING, target=Target.STOP, last_seen=None)
    assert figures(unseen, segments_of(unseen), LATER).charged == 0


def test_a_settled_lease_says_what_the_ledger_says() -> None:
    over = lease(state=State.SETTLED, target=Target.STOP, ended_at=LATER, charged=300_000, usage=1_800_000)
    assert figures(over, segments_of(over), LATER).charged == 300_000
    assert receipt(over, segments_of(over), LATER).refunded == 200_000


def test_a_lease_that_never_ran_costs_nothing() -> None:
    waiting = lease(state=State.STARTING, started_at=None)
    assert figures(waiting, segments_of(waiting), LATER) == type(figures(waiting, (), LATER))(0, 0, 0)


# ---- rows ----


def test_a_row_says_what_is_held_and_for_how_long() -> None:
    row = lease_row(lease(), seen(lease()))
    assert (row.share, row.devices, row.state, row.lasting) == (
        "1/2 GPU",
        ("GPU 0 · NVIDIA A10 · h1",),
        "running",
        "60 min",
    )
    assert row.can_stop and burn([row, row]) == 1_000_000


def test_everything_simulated_says_so() -> None:
    fake = replace(DEVICE, simulated=True, name="Fancy GPU")
    assert device_words(fake).endswith("(simulated)")
    assert "simulated" in device_words(replace(fake, name="simulated GPU"))
    row = lease_row(lease(simulated=True), seen(lease()))
    assert "simulated" in row.share
    assert "simulated" in device_card(fake, (), "").words


def test_a_device_that_is_gone_from_the_book_is_named_by_its_uuid() -> None:
    stray = lease(slots=(Slot("h1", "GPU-9", MilliGpu(500)),))
    assert lease_row(stray, seen(stray)).devices == ("GPU-9",)


@pytest.mark.parametrize(
    ("verdicts", "title", "idle"),
    [
        ({}, None, "not judged yet"),
        (verdict("keep"), None, "Not used."),
        (verdict("warn", deadline=LATER + timedelta(minutes=5)), "Idle", ""),
        (verdict("reclaim"), "Being reclaimed", ""),
        (verdict("warn", ago=3600), None, "not judged for 60 min"),
    ],
)
def test_notices_follow_the_verdict(verdicts: dict[str, Verdict], title: str | None, idle: str) -> None:
    row = lease_row(lease(), seen(lease(), verdicts=verdicts))
    assert (row.notice.title if row.notice else None, row.idle_words) == (title, idle)


def test_a_stop_that_was_asked_for_goes_before_a_verdict() -> None:
    asked = lease(
        target=Target.STOP, stop_reason=StopReason.IDLE, stop_detail="30 min", stop_after=LATER + timedelta(minutes=1)
    )
    row = lease_row(asked, seen(asked, verdicts=verdict("keep")))
    assert row.notice is not None
    assert (row.notice.words, row.notice.deadline) == ("Reclaimed because it was idle: 30 min.", asked.stop_after)
    assert row.state == "running, to be stopped" and not row.can_stop
    assert lease_row(replace(asked, stop_after=AT), seen(asked)).notice.deadline is None  # type: ignore[union-attr]


def test_use_that_nobody_knows_is_unknown() -> None:
    whole = lease(share=MilliGpu(1000))
    assert lease_row(whole, seen(whole)).use == ("GPU unknown", "CPU unknown")
    assert lease_row(lease(), seen(lease())).use[0] == "GPU: shared, not known per server"
    samples = {"l1": Sample(LATER, 5.0, 2048, 35)}
    signals = {"l1": {"host": (LATER, {"cpu_percent": 12.3})}}
    assert lease_row(whole, seen(whole, samples=samples, signals=signals)).use == (
        "GPU 35 %",
        "CPU 12 %",
        "memory 2 GB",
    )
    old = {"l1": Sample(AT, 5.0, 2048, 35)}
    assert lease_row(whole, seen(whole, samples=old)).use == ("GPU unknown", "CPU unknown")
    blind = {"l1": {"host": (LATER, {"cpu_percent": None})}}
    assert "CPU unknown" in lease_row(whole, seen(whole, signals=blind)).use


def test_a_card_shows_who_holds_which_part() -> None:
    first = lease()
    second = lease(
        id="l2", holder=Holder("bob", "two"), slots=(Slot("h1", "GPU-1", MilliGpu(250)),), requested_at=LATER
    )
    card = device_card(replace(DEVICE, used=750), [second, first], "cooperative")
    assert [(part.start, part.width, part.words) for part in card.parts] == [
        (0, 500, "alice: 1/2 GPU"),
        (500, 250, "bob/two: 1/4 GPU"),
    ]
    assert card.free_words == "1/4 GPU"
    assert card.bar_words == "GPU 0 · NVIDIA A10 · h1: 1/4 GPU free, held: alice: 1/2 GPU; bob/two: 1/4 GPU"


def test_a_device_out_of_service_has_no_room_and_says_why() -> None:
    card = device_card(replace(DEVICE, state=DeviceState.LOST, why="fell off the bus"), (), "")
    assert (card.in_service, card.free_words, card.state) == (False, "nothing", "lost (fell off the bus)")


def test_the_filter_looks_where_people_look() -> None:
    devices = {DEVICE.uuid: DEVICE}
    assert all(matches(lease(), devices, wanted) for wanted in ("ALICE", "gpu-1-2", "a10", "default", ""))
    assert matches(lease(), {}, DEVICE.uuid)  # the book has no row of it any more
    assert not matches(lease(), devices, "bob")


def test_sentences_and_lasting() -> None:
    assert [sentence(text) for text in ("not used", "Used.", "")] == ["Not used.", "Used.", ""]
    assert lasting(1_000_000, 250_000) == "lasts about 4 h 00 min at this rate"
    assert [lasting(5, 0), lasting(-5, 1), lasting(10**15, 1)] == [
        "",
        "nothing is left",
        "lasts more than a year at this rate",
    ]


# ---- history ----


def event(number: int, kind: str, by: str = "", **detail: Any) -> Event:
    return Event(number, AT, kind, "l1", 1, by, detail)


def test_a_timeline_is_in_order_and_names_people() -> None:
    found = steps(
        [
            event(3, "stop-requested", "boss", reason="admin"),
            event(2, "lease-running"),
            event(1, "lease-reserved", "alice"),
            event(5, "something-new"),
            event(4, "refund", "boss", amount=5, note="sorry"),
        ]
    )
    assert [step.words for step in found] == [
        "Reserved: room and credits are held, by alice",
        "Ready: the server answered, charging began",
        "To be stopped: stopped by an administrator, by boss",
        "Refunded 0.000005 credits (sorry), by boss",
        "something new",
    ]


_KINDS = ("keep", "warn", "reclaim")


def test_an_idle_verdict_in_a_timeline_says_what_it_was() -> None:
    events = [Event(n, AT, "idle-verdict", "l1", 1, "", {"kind": kind}) for n, kind in enumerate(_KINDS)]
    found = [step.words for step in steps(events)]
    assert all(words[0].isupper() for words in found) and len(set(found)) == len(_KINDS)


def test_evidence_in_words_survives_what_it_does_not_know() -> None:
    evidence = {
        "idle_since": "2026-03-02T08:00:00+00:00",
        "limit_s": 1800.0,
        "kernels": "no report",
        "cpu_percent": 0.4,
    }
    found = dict(evidence_words({**evidence, "gpu_util": None, "memory": {"x": 1}, "hub_activity": "never"}, UTC))
    assert found == {
        "Not used since": "2 Mar 2026, 08:00:00",
        "Limit": "30 min",
        "Kernels": "no report",
        "CPU of its programs": "0 %",
        "Last request (does not count)": "never",
    }


# ---- the desk ----


def beat(role: str, ago: float, host: str = "h1", boot: str = "b") -> Heartbeat:
    return Heartbeat(boot, role, host, AT, LATER - timedelta(seconds=ago))


def test_pulses_take_the_freshest_beat_of_each_process() -> None:
    found = desk.pulses([beat("hub", 500), beat("hub", 3), beat("agent", 40), beat("agent", 1, "h2")], LATER)
    assert [(pulse.role, pulse.kind, pulse.words) for pulse, _ in found] == [
        ("hub", "good", "Hub: 3 s ago"),
        ("agent", "bad", "Agent on h1: 40 s ago"),
        ("agent", "good", "Agent on h2: 1 s ago"),
        ("idle-culler", "unknown", "Idle culler: never seen"),
    ]
    (alarm,) = desk.alarms(found)
    assert alarm.startswith("Agent on h1 silent for 40 s: servers there are neither watched nor charged")


def test_an_agent_of_long_ago_is_forgotten_beside_a_living_one() -> None:
    found = desk.pulses([beat("agent", 90_000, "old"), beat("agent", 1, "h2")], LATER)
    assert [pulse.words for pulse, _ in found if pulse.role == "agent"] == ["Agent on h2: 1 s ago"]
    alone = desk.pulses([beat("agent", 90_000, "old")], LATER)
    assert desk.alarms(alone)[0].startswith("Agent on old silent for")
    assert desk.alarms(desk.pulses([], LATER)) == ["Agent never seen: " + desk._SILENT["agent"] + "."]


def test_x15_a_running_server_that_nobody_sees_is_an_alarm() -> None:
    unseen = lease(last_seen=LATER - timedelta(seconds=61))
    assert desk.unseen([unseen, lease(last_seen=LATER)], LATER) == [
        "1 running server not seen for more than 60 s: alice."
    ]
    assert desk.unseen([lease(state=State.STARTING, started_at=None)], LATER) == []


def test_limits_in_words_and_back() -> None:
    limits = Limits(1, 500, 50_000_000, frozenset({"cpu", "gpu-1"}))
    assert desk.limits_words(limits) == ("1 server", "1/2 GPU", "50.00 credits a month", "only cpu, gpu-1")
    assert desk.limits_words(Limits()) == ("no limits",)
    assert desk.limit_words(limits) == desk.LimitWords("1", "0.5", "50.00", "cpu, gpu-1")
    blank = dict.fromkeys(desk.LIMIT_FIELDS, "")
    assert desk.read_limits({**blank, "max_gpus": "0.125"}, set()) == {"max_gpu_milli": 125}
    assert desk.read_limits({**blank, "profiles": " all "}, set()) == {"profiles": None}
    assert desk.read_limits({**blank, "monthly_credits": "None", "max_servers": "default"}, set()) == {
        "monthly_micro": None,
        "max_servers": "inherit",
    }


# ---- the kit ----


@pytest.mark.parametrize(
    ("model", "status"),
    [
        (None, 401),
        ({"name": "alice", "scopes": ["custom:berth:kit!user=alice"]}, 403),
        ({"name": "alice", "scopes": ["custom:berth:kit!server=bob/two"]}, 403),
        ({"name": "alice", "scopes": ["custom:berth:kit!server=alice/", "custom:berth:kit!server=alice/two"]}, 403),
        ({"name": "alice", "scopes": ["xcustom:berth:kit!server=alice/two"]}, 403),
        ({"name": "alice"}, 403),
    ],
)
def test_a_token_speaks_for_exactly_one_server_of_its_owner(model: Any, status: int) -> None:
    with pytest.raises(Problem) as caught:
        kit.holder_of(model)
    assert caught.value.status == status


def test_the_servers_own_token_is_known() -> None:
    model = {"name": "a@b.org", "scopes": ["access:servers!server=a@b.org/", "custom:berth:kit!server=a@b.org/"]}
    assert kit.holder_of(model) == Holder("a@b.org", "")


def test_times_of_a_wrong_clock_are_clamped() -> None:
    kernels = [
        {"id": "k", "busy": False, "last_execute_at": "9000-01-01T00:00:00Z", "busy_since": "0001-01-01T00:00:00Z"}
    ]
    report = asked.read(asked.Report, {"kernels": kernels, "terminals": 0})
    found = kit.signals_of(report, AT)["kernels"][0]
    assert (found["last_execute_at"], found["busy_since"]) == ("2026-03-02T09:00:00Z", "2000-01-01T00:00:00Z")
