"""What a site's rules of menu and prices may answer, and that form and start obey them alike."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hub_config.extensions import guarded_offer, guarded_quotes
from quota.leases import Quote
from quota.units import MicroCredits, MilliGpu
from spawner.profiles import Profile
from spawner.rules import Asker, OwnPrice, checked_menu, checked_quotes
from tests.fakes.spawner_world import World, refusal

CPU = Profile("cpu", "CPU only", cpu=4, memory_mib=8192, images=("a", "b"))
QUARTER = Profile("quarter", "A quarter", MilliGpu(250), 1)
LAB = Profile("lab", "The lab's", groups=("lab-a",))
OURS = (CPU, QUARTER, LAB)


@pytest.mark.parametrize(
    "answer",
    [
        (),
        (QUARTER, CPU),
        [CPU],
        (replace(CPU, title="Only reading", description="Until noon", cpu=1, memory_mib=512, images=("b",)),),
        (replace(QUARTER, cpu=2.5, memory_mib=100, images=("a",)),),  # without a limit any is lower
    ],
)
def test_a_menu_hides_orders_words_and_narrows(answer: Sequence[Profile]) -> None:
    assert checked_menu(OURS, answer) == tuple(answer)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "NoneType, not a tuple"),
        ("cpu", "str, not a tuple"),
        ((QUARTER, "cpu"), "str in place of a profile"),
        ((Profile("new", "New"),), "'new', which the site has not"),
        ((CPU, CPU), "'cpu' twice"),
        ((replace(LAB, groups=()),), "changed groups of the profile 'lab'"),
        ((replace(QUARTER, share=MilliGpu(500)),), "changed share of"),
        ((replace(QUARTER, share=MilliGpu(1000), count=4),), "changed share of"),
        ((replace(CPU, service_class="reserved"),), "changed service_class of"),
        ((replace(CPU, cpu=8),), "raised cpu of the profile 'cpu' over"),
        ((replace(CPU, cpu=None),), "raised cpu"),
        ((replace(CPU, memory_mib=8193),), "raised memory_mib"),
        ((replace(CPU, images=()),), "images that the site's settings do not"),
        ((replace(CPU, images=("a", "c")),), "images that the site's settings do not"),
        ((replace(CPU, title="x" * 81),), "title of the profile 'cpu' is no text"),
        ((replace(CPU, description=None),), "description of the profile 'cpu' is no text"),  # type: ignore[arg-type]
    ],
)
def test_a_menu_that_says_more_is_refused_in_words(answer: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked_menu(OURS, answer)


@pytest.mark.parametrize(
    ("credits", "micro"),
    [
        (0, 0),
        (2, 2_000_000),
        (Decimal("0.125"), 125_000),
        (Decimal("0.12345678"), 123_457),
        (Fraction(1, 3), 333_333),
        (1_000_000, 10**12),
    ],
)
def test_a_price_is_rounded_once_to_the_micro_credit(credits: Any, micro: int) -> None:
    assert checked_quotes([(CPU, OwnPrice(credits, "own")), (QUARTER, None)]) == {
        "cpu": Quote(MicroCredits(micro), "own")
    }


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (2, "it gave int, not an OwnPrice"),
        (OwnPrice(0.1, "x"), "float as credits; write an int, a Decimal or a Fraction"),  # type: ignore[arg-type]
        (OwnPrice(True, "x"), "bool as credits"),
        (OwnPrice("1", "x"), "str as credits"),  # type: ignore[arg-type]
        (OwnPrice(Decimal("NaN"), "x"), "NaN, which is no price"),
        (OwnPrice(Decimal("Infinity"), "x"), "Infinity, which is no price"),
        (OwnPrice(Decimal("1E-999999"), "x"), "which is no price"),
        (OwnPrice(-1, "x"), "-1 credits an hour; a price is 0 to 1000000"),
        (OwnPrice(Fraction(-1, 7), "x"), "-1/7 credits an hour"),
        (OwnPrice(1_000_001, "x"), "1000001 credits an hour"),
        (OwnPrice(1, ""), "name is no line of 1 to 80"),
        (OwnPrice(1, "x" * 81), "name is no line"),
        (OwnPrice(1, "a\nb"), "name is no line"),
        (OwnPrice(1, None), "name is no line"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_price_is_refused_in_words(answer: object, says: str) -> None:
    with pytest.raises(ValueError, match="for the profile 'cpu'.*" + re.escape(says)):
        checked_quotes([(QUARTER, OwnPrice(1, "fine")), (CPU, answer)])


def priced(world: World, rule: Any, seconds: float = 5.0) -> None:
    world.wiring = replace(world.wiring, profiles=OURS, images={"a": "A"}, quotes=guarded_quotes(rule, seconds=seconds))


async def test_the_form_shows_the_price_that_the_start_asks_the_book_for(world: World) -> None:
    asked: list[tuple[str, Asker]] = []

    def rule(profile: Profile, asker: Asker, when: datetime) -> OwnPrice | None:
        asked.append((profile.name, asker))
        assert when.tzinfo is not None
        return OwnPrice(Decimal("0.3"), "members <b>") if profile.name == "quarter" and asker.groups else None

    priced(world, rule)
    form = await member(world, "lab-b").render_form()
    assert "0.3 credits per hour" in form and "(your price: members &lt;b&gt;)" in form
    assert form.count("your price") == 1, "the CPU profile is at the site's list"
    assert [name for name, _ in asked] == ["cpu", "quarter"], "what the group rule closes has no price"
    await member(world, "lab-b", profile="quarter").start()
    assert world.book.requests[-1].quote == Quote(MicroCredits(300_000), "members <b>")
    await member(world, "lab-b", server="b", profile="cpu").start()
    assert world.book.requests[-1].quote is None
    assert "your price" not in await member(world).render_form()


@pytest.mark.parametrize(
    "rule",
    [
        lambda profile, asker, when: threading.Event().wait(20),
        lambda profile, asker, when: 1 / 0,
        lambda profile, asker, when: OwnPrice(Decimal("-0.01"), "gift"),
    ],
)
async def test_a_price_rule_that_fails_charges_nobody_by_a_guess(world: World, rule: Any) -> None:
    priced(world, rule, seconds=0.1)
    form = await member(world).render_form()
    assert "A rule of this site (extensions.price) failed" in form and "data-profile" not in form
    refused = await refusal(member(world, profile="cpu").start())
    assert (refused.reason, refused.status_code) == ("rule-failed", 500)
    assert not world.book.calls


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def with_rule(world: World, rule: Any, seconds: float = 5.0) -> None:
    world.wiring = replace(world.wiring, profiles=OURS, offer=guarded_offer(rule, seconds=seconds))
    world.wiring = replace(world.wiring, images={"a": "A", "b": "B"})


def member(world: World, *groups: str, **options: Any) -> Any:
    world.groups[:] = [SimpleNamespace(name=name) for name in groups]
    made = world.spawner(**options)
    made.user.admin = False
    return made


async def test_form_and_start_obey_the_rule_alike(world: World) -> None:
    told: list[Asker] = []

    def rule(profiles: tuple[Profile, ...], asker: Asker) -> tuple[Profile, ...]:
        told.append(asker)
        return tuple(each for each in (LAB, replace(CPU, title="Reading room")) if each in OURS or each.name == "cpu")

    with_rule(world, rule)
    form = await member(world, "lab-b").render_form()
    assert "Reading room" in form and 'data-profile="quarter"' not in form
    assert 'data-profile="lab"' not in form  # offered by the rule, and for another group all the same
    hidden = await refusal(member(world, "lab-b", profile="quarter").start())
    assert (hidden.reason, hidden.status_code) == ("profile-forbidden", 403)
    foreign = await refusal(member(world, "lab-b", profile="lab").start())
    assert foreign.reason == "profile-forbidden" and "lab-a" in foreign.jupyterhub_message
    spawner = member(world, "lab-a")
    await spawner._run_apply_user_options({})
    await spawner.start()
    assert world.book.one().profile == "lab", "the first one of the rule is the default"
    assert told[0] == Asker("alice", frozenset({"lab-b"}), False)


async def test_a_rule_that_offers_nothing_is_a_refusal_a_person_understands(world: World) -> None:
    with_rule(world, lambda profiles, asker: ())
    assert 'id="berth-no-profile"' in await member(world).render_form()
    for options in ({}, {"profile": "cpu"}):
        refused = await refusal(member(world, **options).start())
        assert refused.reason == "profile-forbidden" and "ask an admin" in refused.jupyterhub_message


def hanging(profiles: object, asker: object) -> object:
    return threading.Event().wait(20)


def failing(profiles: object, asker: object) -> object:
    raise ConnectionError("directory is down")


def opening(profiles: tuple[Profile, ...], asker: object) -> object:
    return tuple(replace(each, groups=()) for each in profiles)


@pytest.mark.parametrize("rule", [hanging, failing, opening])
async def test_a_rule_that_fails_offers_nothing_and_says_so(
    world: World, rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with_rule(world, rule, seconds=0.1)
    form = await member(world).render_form()
    assert "A rule of this site (extensions.profiles) failed" in form and "data-profile" not in form
    for work in (member(world)._run_apply_user_options({"profile": "cpu"}), member(world, profile="cpu").start()):
        refused = await refusal(work)
        assert (refused.reason, refused.status_code) == ("rule-failed", 500)
        assert "nothing was started or charged" in refused.jupyterhub_message
        assert "directory" not in refused.jupyterhub_message, "what went wrong is for the log"
    assert "The site's profiles failed" in caplog.text
    assert not world.book.calls
