"""Functions of the site: every way a reference can be wrong, the guard around a placement, and the example."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_config.compose import parts, place_of
from hub_config.extensions import guarded_offer, guarded_place, guarded_quotes, load
from hub_config.settings import SettingsError, parse
from hub_config.site_calls import SiteFailed, SiteFunction
from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Quote, Slot
from quota.ports import Place
from quota.reserving import check_slots
from quota.units import MicroCredits, MilliGpu
from spawner import metrics
from spawner.messages import words
from spawner.placement import best_fit
from spawner.profiles import DEFAULT_PROFILES
from spawner.rules import Asker

EXAMPLE = Path(__file__).parents[2] / "examples" / "site" / "berth.toml"
TAKES = ("devices", "request")


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("site_"):
            del sys.modules[name]


def card(uuid: str, used: int = 0, host: str = "here") -> Device:
    return Device(host, uuid, 0, "A10", 24576, "time-slice", False, DeviceState.OK, used=used)


def asking(share: int, count: int = 1) -> LeaseRequest:
    return LeaseRequest(Holder("ada"), "ada", "some", "image", MilliGpu(share), count, "boot", "ada")


@pytest.mark.parametrize(
    ("module", "text", "reference", "says"),
    [
        ("site_a", None, "site_a:place", "there is no module 'site_a'; write site_a.py beside"),
        ("site_b", "x = 1", "site_b:place", "has no 'place'; write def place(devices, request)"),
        ("site_c", "place = 1", "site_c:place", "is not a function"),
        ("site_d", "def place(devices): ...", "site_d:place", "cannot be called with 2 arguments"),
        ("site_e", "async def place(a, b): ...", "site_e:place", "cannot be called"),
        ("site_f", "1 / 0", "site_f:place", "fails when it is imported: ZeroDivisionError: division by zero"),
        ("site_g", "import site_nowhere", "site_g:place", "fails when it is imported: ModuleNotFoundError"),
        ("site_h", "def place(:", "site_h:place", "fails when it is imported: SyntaxError"),
        ("site_i", "raise SystemExit(3)", "site_i:place", "fails when it is imported: SystemExit"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(
    tmp_path: Path, module: str, text: str | None, reference: str, says: str
) -> None:
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    with pytest.raises(SettingsError) as error:
        load(tmp_path / "berth.toml", "placement", reference, TAKES)
    said = str(error.value)
    assert said.startswith(f"{tmp_path / 'berth.toml'}: extensions.placement: ") and says in said
    assert "\n" not in said


def test_a_reference_that_is_none_is_refused_with_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r'extensions\.placement: .* write one such as "site_rules:place"'):
        parse('[extensions]\nplacement = "site_rules.place"\n')


def test_settings_lead_to_the_function_beside_them(tmp_path: Path) -> None:
    (tmp_path / "berth.toml").write_text('[extensions]\nplacement = "site_last:place"\n')
    (tmp_path / "site_last.py").write_text(
        "from quota.leases import Slot\n"
        "def place(devices, request):\n"
        "    return (Slot(devices[-1].host, devices[-1].uuid, request.share),)\n"
    )
    place = place_of(parts(tmp_path))
    assert place([card("GPU-1"), card("GPU-2")], asking(250)) == (Slot("here", "GPU-2", MilliGpu(250)),)


@pytest.mark.parametrize(
    "slots",
    [
        (Slot("here", "GPU-9", MilliGpu(250)),),
        (Slot("here", "GPU-2", MilliGpu(250)),),  # full
        (Slot("elsewhere", "GPU-1", MilliGpu(250)),),
        (Slot(None, None, MilliGpu(250)),),
        (Slot("here", "GPU-1", MilliGpu(125)),),
        ("nonsense",),
    ],
)
def test_a_placement_that_gives_what_it_may_not_is_logged_and_ours_is_used(
    slots: tuple[Slot, ...], caplog: pytest.LogCaptureFixture
) -> None:
    place = guarded_place(lambda devices, request: slots, best_fit)
    with caplog.at_level(logging.ERROR):
        chosen = place([card("GPU-1"), card("GPU-2", 1000)], asking(250))
    assert chosen == (Slot("here", "GPU-1", MilliGpu(250)),)
    assert "The site's placement failed" in caplog.text


def test_a_placement_that_raises_is_logged_and_ours_is_used(caplog: pytest.LogCaptureFixture) -> None:
    def own(devices: object, request: object) -> tuple[Slot, ...]:
        raise KeyError("rack")

    assert guarded_place(own, best_fit)([card("GPU-1")], asking(250)) == (Slot("here", "GPU-1", MilliGpu(250)),)
    assert "KeyError: 'rack'" in caplog.text


def test_a_placement_that_hangs_is_left_behind_and_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """The book's transaction goes on after the time is over, and at once while the call still hangs."""
    go_on, calls = threading.Event(), []

    def own(devices: Sequence[Device], request: LeaseRequest) -> tuple[Slot, ...]:
        calls.append(request)
        if len(calls) == 1:
            go_on.wait(30)
        return (Slot("here", "GPU-2", request.share),)

    place, fleet = guarded_place(own, best_fit, seconds=0.05), [card("GPU-1"), card("GPU-2")]
    ours, theirs = ((Slot("here", uuid, MilliGpu(250)),) for uuid in ("GPU-1", "GPU-2"))
    assert place(fleet, asking(250)) == ours
    assert "did not come back within 0.05 s" in caplog.text
    assert place(fleet, asking(250)) == ours and len(calls) == 1
    go_on.set()
    deadline = time.monotonic() + 10
    while place(fleet, asking(250)) != theirs:
        assert time.monotonic() < deadline, "it is called again once the hanging call has come back"


def test_x23_a_rule_that_fails_is_counted_and_is_one_alert_that_ends_with_the_trouble() -> None:
    board, failing = Board(), [True, True, False, False]

    def own(devices: object, request: object) -> tuple[Slot, ...]:
        if failing.pop(0):
            raise KeyError("rack")
        return ()

    site = SiteFunction("placement", own, 5.0, board, quiet_seconds=0.0)
    before = failures("extensions.placement")
    for _ in range(2):
        with pytest.raises(SiteFailed, match="KeyError: 'rack'"):
            site.call(tuple, (), ())
    assert board.heard.get(timeout=10) == (
        "site-rule:placement",
        "extensions.placement of berth.toml failed: KeyError: 'rack'",
    )
    for _ in range(2):
        assert site.call(tuple, (), ()) == ()
    assert board.heard.get(timeout=10) == ("site-rule:placement", "")
    assert board.heard.empty() and failures("extensions.placement") == before + 2


def test_an_alert_stays_while_the_rule_fails_for_some_and_works_for_others() -> None:
    board, failing = Board(), [False, True, False, True, False]

    def own(devices: object, request: object) -> tuple[Slot, ...]:
        if failing.pop(0):
            raise KeyError("rack")
        return ()

    site = SiteFunction("profiles", own, 5.0, board)
    for fails in list(failing):
        with pytest.raises(SiteFailed) if fails else nullcontext():
            site.call(tuple, (), ())
    heard = [board.heard.get(timeout=10) for _ in range(2)]
    assert [bool(words) for _, words in heard] == [False, True], "what an earlier process left, then one that stays"
    assert board.heard.empty()


def test_no_devices_from_the_site_is_no_room_in_words() -> None:
    with pytest.raises(Refused) as refused:
        guarded_place(lambda devices, request: (), best_fit)([card("GPU-1")], asking(250))
    assert refused.value.reason is Reason.NO_ROOM and words(refused.value)


def test_a_server_without_a_gpu_is_not_asked_about() -> None:
    def own(devices: object, request: object) -> tuple[Slot, ...]:
        raise AssertionError("asked")

    assert guarded_place(own, best_fit)([], asking(0, 0)) == (Slot(None, None, MilliGpu(0)),)


class Board:
    """Alerts as they come."""

    def __init__(self) -> None:
        self.heard: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def put(self, key: str, kind: str, words: str) -> bool:
        self.heard.put((key, words))
        return True

    def clear(self, key: str) -> bool:
        self.heard.put((key, ""))
        return True


def failures(hook: str) -> float:
    (family,) = metrics.HOOK_ERRORS.collect()
    return sum(each.value for each in family.samples if each.name.endswith("_total") and each.labels["hook"] == hook)


def named(key: str, *takes: str) -> Callable[..., Any]:
    """The example's function of that point."""
    return load(EXAMPLE, key, getattr(parse(EXAMPLE.read_text()).extensions, key), takes)


@pytest.mark.parametrize(
    ("profile", "groups", "at", "quote"),
    [
        ("gpu-1-8", {"students"}, "2026-03-02T12:00+00:00", Quote(MicroCredits(12_500), "student price")),
        ("gpu-1", {"students"}, "2026-03-02T23:00+00:00", Quote(MicroCredits(100_000), "student price")),
        ("gpu-2", set(), "2026-03-02T23:00+00:00", Quote(MicroCredits(1_000_000), "night tariff")),
        ("gpu-1", set(), "2026-03-02T20:59+00:00", None),
        ("gpu-1", set(), "2026-03-02T21:00+00:00", Quote(MicroCredits(500_000), "night tariff")),
        ("cpu", {"students"}, "2026-03-02T23:00+00:00", None),
    ],
)
def test_the_example_has_a_student_price_and_a_night_tariff(
    profile: str, groups: set[str], at: str, quote: Quote | None
) -> None:
    quotes = guarded_quotes(named("price", "profile", "asker", "when"))
    (chosen,) = [each for each in DEFAULT_PROFILES if each.name == profile]
    asked = quotes([chosen], Asker("ada", frozenset(groups)), datetime.fromisoformat(at))
    assert asked.get(profile) == quote


def example() -> Place:
    return named("placement", *TAKES)


def test_the_example_offers_small_profiles_until_the_course() -> None:
    offer = guarded_offer(named("profiles", "profiles", "asker"))
    newcomer = offer(DEFAULT_PROFILES, Asker("ada"))
    assert [each.name for each in newcomer] == ["cpu", "gpu-1-8", "gpu-1-4"]
    assert all("after the GPU course" in each.description for each in newcomer)
    for trained in (Asker("ada", frozenset({"gpu-course"})), Asker("root", admin=True)):
        assert offer(DEFAULT_PROFILES, trained) == DEFAULT_PROFILES


def test_the_example_spreads() -> None:
    place = guarded_place(example(), best_fit)
    assert place([card("GPU-1", 500), card("GPU-2", 250)], asking(125))[0].device == "GPU-2"


@given(
    used=st.lists(st.sampled_from([0, 125, 250, 500, 875, 1000]), max_size=6),
    asked=st.sampled_from([(125, 1), (250, 1), (500, 1), (1000, 1), (1000, 2), (1000, 3)]),
)
def test_the_example_keeps_the_contract_of_a_place(used: list[int], asked: tuple[int, int]) -> None:
    fleet = [card(f"GPU-{at}", full, "ab"[at % 2]) for at, full in enumerate(used)]
    own = example()
    slots = own(fleet, asking(*asked))
    assert slots == own(list(reversed(fleet)), asking(*asked)), "the order of devices must not matter"
    try:
        best_fit(fleet, asking(*asked))
    except Refused:
        assert slots == ()
    else:
        check_slots(asking(*asked), fleet, slots)
        assert len({slot.host for slot in slots}) == 1
