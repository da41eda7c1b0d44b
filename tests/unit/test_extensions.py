"""Functions of the site: every way a reference can be wrong, the guard around a placement, and the example."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_config.compose import parts, place_of
from hub_config.extensions import guarded_place, load
from hub_config.settings import SettingsError, parse
from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Slot
from quota.ports import Place
from quota.reserving import check_slots
from quota.units import MilliGpu
from spawner.messages import words
from spawner.placement import best_fit

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


def test_no_devices_from_the_site_is_no_room_in_words() -> None:
    with pytest.raises(Refused) as refused:
        guarded_place(lambda devices, request: (), best_fit)([card("GPU-1")], asking(250))
    assert refused.value.reason is Reason.NO_ROOM and words(refused.value)


def test_a_server_without_a_gpu_is_not_asked_about() -> None:
    def own(devices: object, request: object) -> tuple[Slot, ...]:
        raise AssertionError("asked")

    assert guarded_place(own, best_fit)([], asking(0, 0)) == (Slot(None, None, MilliGpu(0)),)


def example() -> Place:
    return load(EXAMPLE, "placement", parse(EXAMPLE.read_text()).extensions.placement, TAKES)


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
