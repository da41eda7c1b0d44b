"""The form on the start page: what is free, what it costs, what the balance buys, and nothing unescaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.clock import SystemClock
from quota.entitlement import Limits
from quota.errors import Refused
from quota.leases import DeviceState, LeaseRequest
from quota.units import MilliGpu
from spawner import form
from spawner.form import Facts, show_rate, view
from spawner.gpu_spawner import LocalGpuSpawner, Wiring
from spawner.placement import best_fit
from spawner.profiles import DEFAULT_PROFILES, Profile
from tests.fakes.runtime import FakeRuntime
from tests.fakes.spawner_book import PRICE, FakeBank, FakeBook, device

FACTS = Facts(
    profiles=DEFAULT_PROFILES,
    images={"this-environment": "This environment"},
    devices=[device(0), device(1)],
    limits=Limits(max_servers=3, max_gpu_milli=2000),
    available=98_400_000,
    price=PRICE,
    backend_words="Nothing isolates users.",
    chosen={},
)


def cards(**changes: Any) -> dict[str, form.Card]:
    return {card.name: card for card in view(replace(FACTS, **changes)).cards}


def test_p14_every_card_tells_what_is_free_now_and_what_it_costs() -> None:
    shown = cards()
    assert [card.free for card in shown.values()] == [
        "",
        "16 free now",
        "8 free now",
        "4 free now",
        "2 free now",
        "1 free now",
    ]
    assert shown["gpu-1-8"].price == "0.125 credits per hour"
    assert shown["gpu-1-8"].buys == "98.40 credits: 787 h of this profile"
    assert (shown["gpu-1"].price, shown["gpu-2"].price) == ("1 credit per hour", "2 credits per hour")
    assert shown["gpu-2"].buys == "98.40 credits: 49 h of this profile"
    assert (shown["cpu"].price, shown["cpu"].buys) == ("free of charge", "")
    assert shown["gpu-1-2"].memory == "about 12 GB of GPU memory"
    assert not any(card.why_not for card in shown.values())


def test_simulated_devices_say_so_on_every_gpu_card() -> None:
    shown = cards()
    assert not shown["cpu"].simulated
    assert all(card.simulated for name, card in shown.items() if name != "cpu")
    assert form.render(view(FACTS)).count(">simulated</span>") == 5
    real = replace(FACTS, devices=[device(0, simulated=False)])
    assert "simulated" not in form.render(view(real))


def test_a_title_that_does_not_tell_the_share_has_it_beside() -> None:
    named = Profile("small", "Small models", MilliGpu(250), 1)
    assert cards(profiles=[named])["small"].share == "1/4 GPU"
    assert cards()["gpu-1-4"].share == ""


def test_p14_a_site_without_gpus_greys_them_out_with_the_reason() -> None:
    shown = cards(devices=[])
    assert not shown["cpu"].why_not
    assert {card.why_not for name, card in shown.items() if name != "cpu"} == {"this site has no GPU"}


def test_p14_what_is_taken_is_greyed_out() -> None:
    shown = cards(devices=[device(0, used=1000), device(1, used=750)])
    assert shown["gpu-1-4"].free == "1 free now"
    assert shown["gpu-1-2"].why_not == shown["gpu-1"].why_not == "none is free right now"


def test_what_the_account_may_not_is_greyed_out_with_the_reason() -> None:
    assert "not open to you" in cards(limits=Limits(profiles=frozenset({"cpu"})))["gpu-1"].why_not
    assert cards(limits=Limits(max_gpu_milli=1000))["gpu-2"].why_not == "over your limit (1 GPU at once)"
    assert cards(limits=Limits(max_gpu_milli=0))["gpu-1-8"].why_not == "no GPU for you"
    assert "may not run servers" in cards(limits=Limits(max_servers=0))["cpu"].why_not
    poor = cards(available=249_999)
    assert poor["gpu-1"].why_not == "your balance is too low"
    assert not poor["gpu-1-2"].why_not
    assert not cards(available=-5)["cpu"].why_not


def test_the_last_choice_is_selected_where_it_can_be_started() -> None:
    def checked(**changes: Any) -> list[str]:
        return [name for name, card in cards(**changes).items() if card.checked]

    assert checked() == ["cpu"]
    assert checked(chosen={"profile": "gpu-1"}) == ["gpu-1"]
    assert checked(chosen={"profile": "gone"}) == ["cpu"]
    assert checked(chosen={"profile": ["gpu-1"]}) == ["cpu"]
    assert checked(chosen={"profile": "gpu-1"}, devices=[]) == ["cpu"]
    assert checked(limits=Limits(max_servers=0)) == []


# ---- who pays --------------------------------------------------------------------------------------------------------

LABS = [form.Purse("group:lab-a", 10_000_000, Limits()), form.Purse("group:lab <b>", 0, Limits())]


def test_b2_who_is_in_no_group_that_pays_is_not_asked_who_pays() -> None:
    assert 'name="payer"' not in form.render(view(FACTS))


def test_b2_each_payer_has_an_offer_of_each_profile() -> None:
    shown = view(replace(FACTS, user="ada", groups=LABS))
    assert shown.payers == (
        ("ada", "Yourself (98.40 credits)"),
        ("group:lab-a", "Group lab-a (10.00 credits)"),
        ("group:lab <b>", "Group lab <b> (0.00 credits)"),
    )
    card = {card.name: card for card in shown.cards}["gpu-1"]
    assert [(offer.payer, offer.why_not) for offer in card.offers] == [
        ("ada", ""),
        ("group:lab-a", ""),
        ("group:lab <b>", "the group's balance is too low"),
    ]
    assert card.offers[1].buys == "10.00 credits: 10 h of this profile"
    page = form.render(shown)
    assert 'name="payer"' in page
    assert "<b>" not in page


def test_b2_the_payer_is_who_paid_last_else_oneself_else_who_can() -> None:
    def payer(**changes: Any) -> tuple[str, str | None]:
        known = {"groups": LABS, "profiles": DEFAULT_PROFILES[4:]}
        shown = view(replace(FACTS, user="ada", **(known | changes)))
        return shown.payer, next((card.name for card in shown.cards if card.checked), None)

    assert payer() == ("ada", "gpu-1")
    assert payer(chosen={"payer": "group:lab-a", "profile": "gpu-2"}) == ("group:lab-a", "gpu-2")
    assert payer(chosen={"payer": "group:left"}) == ("ada", "gpu-1")
    assert payer(available=0) == ("group:lab-a", "gpu-1")
    assert payer(available=0, groups=LABS[1:]) == ("ada", None)
    assert payer(available=0, profiles=DEFAULT_PROFILES) == ("group:lab-a", "cpu"), "what is free she could have alone"
    assert payer(available=0, profiles=DEFAULT_PROFILES[:1]) == ("ada", "cpu")


def test_b2_limits_of_the_user_hold_whoever_pays_and_those_of_the_group_besides() -> None:
    few = [form.Purse("group:few", 10**8, Limits(profiles=frozenset({"cpu"}), max_gpu_milli=0))]
    for name, why in {"gpu-1": "the group does not pay for it", "cpu": ""}.items():
        assert cards(groups=few)[name].offers[1].why_not == why
    less = [form.Purse("group:less", 10**8, Limits(max_gpu_milli=500))]
    assert cards(groups=less)["gpu-1"].offers[1].why_not == "over what the group pays for at once"
    assert all(
        "over your limit" in each.why_not for each in cards(limits=Limits(max_gpu_milli=1), groups=less)["gpu-1"].offers
    )
    assert not cards(available=0, groups=LABS)["gpu-1"].closed


def test_a_profile_without_an_image_cannot_be_started() -> None:
    odd = Profile("odd", "Odd", images=("elsewhere",))
    assert cards(profiles=[odd])["odd"].why_not == "no image for it here"


@pytest.mark.parametrize(
    ("micro", "shown"), [(125_000, "0.125"), (1_000_000, "1"), (10_000_000, "10"), (1, "0.000001")]
)
def test_a_rate_is_shown_exactly(micro: int, shown: str) -> None:
    assert show_rate(micro) == shown


@pytest.mark.parametrize(
    ("available", "buys"),
    [(98_400_000, "98 h"), (3_590_000, "3.5 h"), (999_999, "59 min"), (10_000, "not a minute"), (-7, "not a minute")],
)
def test_what_the_balance_buys_is_never_rounded_up(available: int, buys: str) -> None:
    assert f": {buys} of this profile" in cards(available=available)["gpu-1"].buys


DEVICES = st.lists(
    st.builds(
        lambda used, mode, state: replace(device(0, used=used, mode=mode), state=state),
        st.integers(0, 1000),
        st.sampled_from(["time-slice", "exclusive", "mps", "mig"]),
        st.sampled_from(DeviceState),
    ),
    max_size=4,
).map(lambda found: [replace(each, uuid=f"G{place}", position=place) for place, each in enumerate(found)])


@given(DEVICES, st.sampled_from(DEFAULT_PROFILES))
def test_p14_the_page_promises_exactly_what_the_placement_gives(devices: list[Any], profile: Profile) -> None:
    card = cards(devices=devices)[profile.name]
    request = LeaseRequest(
        holder=None,
        account="a",
        profile=profile.name,
        image="i",
        share=profile.share,
        count=profile.count,
        owner="",
        requested_by="",  # type: ignore[arg-type]
    )
    try:
        best_fit(devices, request)
    except Refused:
        assert card.why_not
    else:
        assert not card.why_not


# ---- HTML ------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """What a browser would find: tags with their attributes, and the visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_form_posts_profile_and_image_by_real_inputs_with_labels() -> None:
    page = Tags(form.render(view(FACTS)))
    radios = page.all("input")
    assert {radio["name"] for radio in radios} == {"profile"}
    assert [radio["value"] for radio in radios] == [profile.name for profile in DEFAULT_PROFILES]
    assert {label["for"] for label in page.all("label")} == {*(radio["id"] for radio in radios), "berth-image"}
    assert page.all("select")[0]["name"] == "image"
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert "Your balance: 98.40 credits" in " ".join(page.text.split())
    assert "simulated" in page.text
    assert "Nothing isolates users." in page.text


def test_nothing_of_a_settings_file_is_taken_for_html() -> None:
    evil = Profile("x", "<script>a</script>", description='"><img src=x onerror=alert(1)>')
    html = form.render(view(replace(FACTS, profiles=[evil], images={"i": "<b>"}, backend_words="<i>")))
    page = Tags(html)
    assert not page.all("img") and not page.all("b") and len(page.all("script")) == 1
    assert [tag for tag, _ in page.tags if tag == "i"] == []


def test_it_loads_nothing_from_elsewhere() -> None:
    assert not re.search(r"https?://|//[a-z]", form.render(view(FACTS)).replace("// Offer", ""))


def spawner(book: FakeBook, bank: FakeBank, tmp_path: Path) -> LocalGpuSpawner:
    clock = SystemClock()
    wiring = Wiring(
        book=book,  # type: ignore[arg-type]
        bank=bank,  # type: ignore[arg-type]
        rows=book,  # type: ignore[arg-type]
        runtime=FakeRuntime(clock),
        clock=clock,
        boot="b",
        host="h",
        profiles=DEFAULT_PROFILES,
        images={"this-environment": "This environment"},
        place=best_fit,
        homes=tmp_path,
        backend_words="Nothing isolates users.",
        start_timeout_s=1.0,
    )
    made = LocalGpuSpawner(user=SimpleNamespace(name="alice", groups=[]), user_options={"profile": "gpu-1"})
    made.wire = lambda: wiring
    return made


async def test_the_spawner_renders_it_for_a_new_user(tmp_path: Path) -> None:
    html = await spawner(FakeBook(SystemClock()), FakeBank(), tmp_path).get_options_form()
    (checked,) = [radio for radio in Tags(html).all("input") if "checked" in radio]
    assert checked["value"] == "gpu-1"


async def test_a_book_that_cannot_be_read_is_said_and_not_an_error_page(tmp_path: Path) -> None:
    book = FakeBook(SystemClock())
    book.broken = {"devices"}
    html = await spawner(book, FakeBank(), tmp_path).get_options_form()
    assert "cannot" in html
    assert not Tags(html).all("input")
