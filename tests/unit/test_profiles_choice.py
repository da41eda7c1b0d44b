"""The options of a start: one validator for form, REST and admin starts, total for whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.errors import Reason, Refused
from quota.groups import Group
from spawner.profiles import DEFAULT_PROFILES, MAX_VALUE, OPTIONS, Choice, Profile, parse_choice

#: A member of two groups, one of which pays; a third pays as well.
IN_LAB: dict[str, Any] = {
    "groups": {"lab", "idle"},
    "sites": [Group("lab", pays=True), Group("idle"), Group("other", pays=True)],
}

IMAGES = {"this-environment": "This environment", "pytorch": "PyTorch"}


def choose(options: Any, **others: Any) -> Choice:
    return parse_choice(options, DEFAULT_PROFILES, IMAGES, user="ada", **others)


def refusal(options: Any, **others: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        choose(options, **others)
    return refused.value


@pytest.mark.parametrize("name", [profile.name for profile in DEFAULT_PROFILES])
def test_each_profile_can_be_chosen(name: str) -> None:
    choice = choose({"profile": name, "image": "pytorch", "payer": "ada"})
    assert (choice.profile.name, choice.image, choice.account) == (name, "pytorch", "ada")


def test_x15_what_is_not_sent_gets_its_default() -> None:
    assert choose({"profile": "gpu-1-8"}) == Choice(DEFAULT_PROFILES[1], "this-environment", "ada")
    assert choose({"image": "pytorch"}) == Choice(DEFAULT_PROFILES[0], "pytorch", "ada")
    assert choose({"payer": "ada"}) == choose({})


def test_s19_an_admin_start_sends_nothing_and_gets_the_default_of_the_user() -> None:
    choice = parse_choice({}, DEFAULT_PROFILES, IMAGES, user="alice")
    assert choice.options() == {"profile": "cpu", "image": "this-environment", "payer": "alice"}


def test_the_default_is_the_first_profile_that_is_allowed() -> None:
    allowed = DEFAULT_PROFILES[3:]
    assert parse_choice({}, allowed, IMAGES, user="ada").profile.name == "gpu-1-2"
    with pytest.raises(Refused) as refused:
        parse_choice({}, (), IMAGES, user="ada")
    assert refused.value.reason is Reason.PROFILE_UNKNOWN


def test_x03_a_choice_parses_to_itself_again() -> None:
    """The Hub keeps the options; `start` validates them a second time."""
    for profile in DEFAULT_PROFILES:
        first = choose({"profile": profile.name})
        assert choose(first.options()) == first
        assert json.loads(json.dumps(first.options())) == first.options()


@pytest.mark.parametrize(
    "key", ["share", "share_milli", "gpu", "gpus", "count", "price", "cpu", "Profile", "profile ", ""]
)
@pytest.mark.parametrize("value", [-1, 0, 1e9, "1e3", "", "500", None, [], {}, True])
def test_s16_an_option_that_does_not_exist_is_refused(key: str, value: object) -> None:
    refused = refusal({"profile": "gpu-1-8", key: value})
    assert refused.reason is Reason.OPTION_UNKNOWN
    assert refused.facts == {"option": key or "(empty)", "known": "profile, image, payer"}


def test_s16_gpu_and_image_of_a_rest_start_are_refused() -> None:
    assert refusal({"gpu": 8, "image": "evil"}).reason is Reason.OPTION_UNKNOWN


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    "value",
    [
        -1,
        0,
        1,
        1e9,
        0.5,
        None,
        True,
        [],
        ["cpu"],
        ("cpu",),
        {},
        {"name": "cpu"},
        {"a": {"b": {}}},
        b"cpu",
        "",
        "\0",
        "a\nb",
    ],
)
def test_x03_a_value_that_is_no_text_is_refused(option: str, value: object) -> None:
    refused = refusal({option: value})
    assert refused.reason is Reason.OPTION_INVALID
    assert refused.facts["option"] == option
    assert refused.facts["why"]


@pytest.mark.parametrize(
    "name", ["zzz", "GPU-1", " gpu-1", "gpu-1 ", "gpu-1;gpu-2", "gpu-3", "1e3", "-1", "0", "../cpu", "cpu\u200b"]
)
def test_x01_an_unknown_profile_is_refused_and_never_read_as_a_cheaper_one(name: str) -> None:
    refused = refusal({"profile": name})
    assert refused.reason in (Reason.PROFILE_UNKNOWN, Reason.OPTION_INVALID)
    if refused.reason is Reason.PROFILE_UNKNOWN:
        assert refused.facts == {"profile": name, "known": "cpu, gpu-1-8, gpu-1-4, gpu-1-2, gpu-1, gpu-2"}


def test_x01_the_share_comes_from_the_profile_alone() -> None:
    """Nothing that is sent beside the profile can change what is taken and charged."""
    choice = choose({"profile": "gpu-1"})
    assert (choice.profile.share, choice.profile.count) == (1000, 1)


@pytest.mark.parametrize("image", ["evil", "docker.io/evil/miner:latest", "PYTORCH", "pytorch:latest"])
def test_x03_a_foreign_image_is_refused(image: str) -> None:
    refused = refusal({"image": image})
    assert refused.reason is Reason.IMAGE_UNKNOWN
    assert refused.facts == {"image": image, "profile": "cpu", "known": "this-environment, pytorch"}


def test_x01_an_image_is_checked_against_the_profiles_own_list() -> None:
    profiles = (Profile("narrow", "Narrow", images=("pytorch",)), Profile("none", "None", images=("gone",)))
    assert parse_choice({}, profiles, IMAGES, user="ada").image == "pytorch"
    for options in ({"image": "this-environment"}, {"profile": "none"}, {"profile": "none", "image": "gone"}):
        with pytest.raises(Refused) as refused:
            parse_choice(options, profiles, IMAGES, user="ada")
        assert refused.value.reason is Reason.IMAGE_UNKNOWN


def test_x03_another_account_is_refused_whether_it_exists_or_not() -> None:
    for payer in ("bob", "no-such", "lab", "group:idle", "group:other", "group:", "GROUP:lab"):
        refused = refusal({"payer": payer}, **IN_LAB)
        facts = {"account": payer, "allowed": "ada, group:lab"}
        assert (refused.reason, refused.facts) == (Reason.ACCOUNT_FORBIDDEN, facts)


def test_b2_a_group_pays_where_one_is_a_member_and_it_may() -> None:
    assert choose({"payer": "group:lab"}, **IN_LAB).account == "group:lab"
    assert choose({}, **IN_LAB).account == "ada"
    assert refusal({"payer": "group:lab"}, sites=IN_LAB["sites"]).facts["allowed"] == "ada"
    assert refusal({"payer": "group:lab"}, groups={"lab"}).facts["allowed"] == "ada", "the site says who pays"


@pytest.mark.parametrize("option", OPTIONS)
def test_an_over_long_value_is_refused_without_being_repeated(option: str) -> None:
    refused = refusal({option: "x" * (MAX_VALUE + 1)})
    assert refused.reason is Reason.OPTION_INVALID
    assert refused.facts["why"] == f"longer than {MAX_VALUE} characters"
    assert len(str(refused)) < 200


def test_a_hostile_key_is_shown_short_and_printable() -> None:
    facts = refusal({"\x1b[31m" + "k" * 10_000: 1}).facts
    assert facts["option"] == "?[31m" + "k" * 35
    assert refusal({7: "cpu"}).facts["option"] == "int"


@pytest.mark.parametrize("options", [None, [], ["profile"], "profile=cpu", 1, {1, 2}])
def test_options_that_are_no_mapping_are_refused(options: object) -> None:
    assert refusal(options).reason is Reason.OPTION_INVALID


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
keys = st.sampled_from([*OPTIONS, "share"]) | st.text() | st.integers()
values = st.sampled_from(["cpu", "gpu-1", "this-environment", "pytorch", "ada", "group:lab", ""]) | anything


@given(st.dictionaries(keys, values, max_size=4) | anything)
def test_x03_whatever_is_sent_gives_a_choice_of_the_menu_or_a_refusal(options: Any) -> None:
    try:
        choice = choose(options, **IN_LAB)
    except Refused as refused:
        assert all(len(str(fact)) <= MAX_VALUE for fact in refused.facts.values())
        return
    assert choice.profile in DEFAULT_PROFILES
    assert choice.image in IMAGES
    assert choice.account in ("ada", "group:lab")
    assert set(options) <= set(OPTIONS)
    assert {key: choice.options()[key] for key in options} == dict(options)


LAB = Profile("lab", "Lab", groups=("lab-a", "lab-b"))


def test_s17_a_profile_of_a_group_is_for_its_members_only() -> None:
    profiles, sites = (LAB, Profile("open", "Open")), (Group("lab-a", leads=("lead",)),)
    assert parse_choice({"profile": "lab"}, profiles, IMAGES, user="ada", groups=("lab-b",)).profile is LAB
    for name in ("ada", "lab-a"):
        assert parse_choice({}, profiles, IMAGES, user=name, sites=sites).profile.name == "open"
        with pytest.raises(Refused) as refused:
            parse_choice({"profile": "lab"}, profiles, IMAGES, user=name, sites=sites)
        assert refused.value.reason is Reason.PROFILE_FORBIDDEN
        assert refused.value.facts == {"profile": "lab", "groups": "lab-a, lab-b", "ask": "lead", "allowed": "open"}
