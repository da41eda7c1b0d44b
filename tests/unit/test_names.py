"""User names and the names derived from them."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.errors import Reason, Refused
from spawner.names import MAX_NAME, check_username, container_name, home_name, volume_name

DOCKER = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
HOME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,62}")
LONG = "x" * 80
#: Names that collide under one or another common escape.
PEOPLE = [
    "a-b",
    "a_b",
    "a.b",
    "a",
    "a@b.org",
    "用户",
    LONG,
    LONG[:-1] + "y",
    "a--b",
    "a---b",
    "ab",
    "a-b-c",
    "-a",
    "a-",
]
SERVERS = ["", "b", "train", "b-c", "x" * 30]

LETTERS = st.characters(categories=["Ll", "Lo", "Nd"])
USERS = st.text(st.one_of(st.sampled_from("ab0-_.@"), LETTERS), min_size=1, max_size=80)


def refusal(name: str) -> Refused:
    with pytest.raises(Refused) as caught:
        check_username(name)
    return caught.value


@pytest.mark.parametrize("name", [*PEOPLE, "ß", "müller", "0", "_svc", "a" * 80, "иван"])
def test_names_of_people_are_let_in(name: str) -> None:
    check_username(name)


@pytest.mark.parametrize(
    "name",
    "|A|a b|a`) & HostRegexp(`.*|a/b|..|.|@|a\n|a\x00|a'b|a+b|%2f|e\u0301|İ|a\u200b|\ud800|Ǆ|a,b|a#b|½|²".split("|"),
)
def test_everything_else_is_refused_with_the_reason(name: str) -> None:
    refused = refusal(name)
    assert refused.reason is Reason.USER_NAME_INVALID
    assert refused.facts["why"]
    assert str(refused.facts["name"]).isprintable() or not name


@pytest.mark.parametrize("name", ["a" * 81, 'a"', "a|b", "a`) || HostRegexp(`.*"])
def test_long_names_and_signs_of_rules_are_refused(name: str) -> None:
    assert refusal(name).reason is Reason.USER_NAME_INVALID


def every_name(users: list[str], servers: list[str]) -> list[str]:
    names = [home_name(user) for user in users]
    names += [volume_name("d1", user) for user in users]
    names += [
        container_name(deployment, user, server) for deployment in ("d1", "d2") for user in users for server in servers
    ]
    return names


def test_s20_names_of_homes_containers_and_volumes_are_all_different() -> None:
    names = every_name([*PEOPLE, "A"], [*SERVERS, "Train"])
    assert len(set(names)) == len(names)
    assert len({name.lower() for name in names}) == len(names)


def test_s20_derived_names_are_legal_where_they_are_used() -> None:
    for user in [*PEOPLE, "A", "..", "a/b"]:
        assert HOME.fullmatch(home_name(user)), user
        assert DOCKER.fullmatch(volume_name("d1", user)), user
        for server in [*SERVERS, "Train", "a/b"]:
            name = container_name("d1", user, server)
            assert DOCKER.fullmatch(name), name
            assert len(name) <= MAX_NAME


def test_s20_plain_names_stay_readable() -> None:
    assert home_name("researcher") == "researcher"
    assert home_name("a@b.org") == "a@b.org"
    assert container_name("d1", "alice", "train") == "berth--d1--alice--train"
    assert home_name("zhang.wei用") != home_name("zhang.wei")
    assert home_name("用户").startswith("x---")


def test_s20_a_user_cannot_take_the_name_of_anothers_hash() -> None:
    taken = home_name("用户")
    assert home_name(taken) != taken
    joined = container_name("d1", "a", "b")
    assert container_name("d1", "a--b") != joined
    hashed = container_name("d1", "用户")
    assert container_name("d1", hashed.removeprefix("berth--d1--")) != hashed


@given(st.lists(st.tuples(USERS, st.sampled_from(SERVERS)), min_size=2, max_size=6, unique=True))
def test_s20_derived_names_are_injective(holders: list[tuple[str, str]]) -> None:
    for (user, server), (other, another) in combinations(holders, 2):
        assert container_name("d", user, server) != container_name("d", other, another)
        if user != other:
            assert home_name(user) != home_name(other)
            assert volume_name("d", user) != volume_name("d", other)


@given(st.text(max_size=120), st.text(max_size=40))
def test_s20_any_text_at_all_gives_a_legal_name(user: str, server: str) -> None:
    assert DOCKER.fullmatch(container_name("d", user, server))
    assert HOME.fullmatch(home_name(user))


@given(st.text(max_size=90))
def test_a_name_is_let_in_or_refused_and_nothing_else(name: str) -> None:
    try:
        check_username(name)
    except Refused:
        return
    assert name == name.lower() and 0 < len(name) <= 80
    assert not set(name) & set("`'\"/\\ \n%+|#()")
