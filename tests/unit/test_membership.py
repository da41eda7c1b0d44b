"""What a provider's answer means here: groups by id, a person by subject."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_config.membership import Membership, claim_at, ids_in, membership, subject_of
from hub_config.settings_auth import AuthGroup

TABLE = (
    AuthGroup(id="g1", group="lab-a"),
    AuthGroup(id="g2", group="lab-a"),
    AuthGroup(id="g2", group="lab-b"),
    AuthGroup(id="ops", admin=True),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_x9_only_listed_ids_count_and_names_of_ours_do_not() -> None:
    assert membership(TABLE, {"lab-a", "lab-b", "admin", "G1"}) == Membership()
    assert membership(TABLE, {"g1"}) == Membership(("lab-a",), False, True)
    assert membership(TABLE, {"g1", "g2"}) == Membership(("lab-a", "lab-b"), False, True)
    assert membership(TABLE, {"ops"}) == Membership((), True, True)


@given(JSON)
def test_any_claim_is_read_and_what_is_no_id_opens_nothing(claim: Any) -> None:
    found = ids_in(claim)
    assert all(isinstance(each, str) and each for each in found)
    if claim is None or isinstance(claim, bool | float | dict):
        assert found == frozenset()


def test_ids_are_texts_or_numbers() -> None:
    assert ids_in(["a", 7, True, None, ["b"], {"c": 1}, ""]) == {"a", "7"}
    assert ids_in("one") == {"one"}


def test_a_claim_is_found_by_its_path() -> None:
    claims = {"realm_access": {"roles": ["x"]}, "https://a.b/groups": ["y"], "flat": 1}
    assert claim_at(claims, "realm_access.roles") == ["x"]
    assert claim_at(claims, "https://a.b/groups") == ["y"]
    assert claim_at(claims, "flat.deeper") is None
    assert claim_at(claims, "nothing") is None


def test_who_it_is_must_be_told() -> None:
    assert subject_of({"sub": "abc", "id": 3}) == "abc"
    assert subject_of({"id": 3}) == "3"
    for claims in ({}, {"sub": ""}, {"sub": True}, {"sub": ["a"]}):
        with pytest.raises(ValueError, match="does not say who this is"):
            subject_of(claims)
