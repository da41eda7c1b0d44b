"""A user of the Hub is one person of the provider, whatever becomes of names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jupyterhub import orm
from sqlalchemy.orm import Session

from hub_config.identities import Identities, Taken
from hub_config.membership import Identity

ADA, OTHER = Identity("https://id", "1"), Identity("https://id", "2")


@pytest.fixture
def session() -> Iterator[Session]:
    made = orm.new_session_factory("sqlite:///:memory:")()
    yield made
    made.close()
    made.get_bind().dispose()


@pytest.fixture
def identities(session: Session) -> Identities:
    return Identities(lambda: session)


def add(session: Session, name: str) -> orm.User:
    user = orm.User(name=name)
    session.add(user)
    session.commit()
    return user


def test_the_first_log_in_binds_and_a_later_name_changes_nothing(session: Session, identities: Identities) -> None:
    assert identities.name(ADA, "ada") == "ada"
    user = add(session, "ada")
    identities.bind(ADA, "ada")
    assert identities.name(ADA, "ada.l") == "ada"
    user.name = "lovelace"  # renamed by an admin
    session.commit()
    assert identities.name(ADA, "ada") == "lovelace"


def test_a_name_that_is_taken_is_refused_at_both_doors(session: Session, identities: Identities) -> None:
    add(session, "ada")
    assert identities.name(OTHER, "ada") == "ada"  # whom an admin added belongs to the first who comes
    identities.bind(ADA, "ada")
    with pytest.raises(Taken):
        identities.name(OTHER, "ada")
    with pytest.raises(Taken):
        identities.bind(OTHER, "ada")
    identities.bind(ADA, "ada")  # again is fine


def test_the_same_subject_of_another_issuer_is_somebody_else(session: Session, identities: Identities) -> None:
    add(session, "ada")
    identities.bind(ADA, "ada")
    with pytest.raises(Taken):
        identities.name(Identity("https://evil", "1"), "ada")


def test_one_person_is_one_user(session: Session, identities: Identities) -> None:
    add(session, "ada")
    add(session, "bob")
    identities.bind(ADA, "ada")
    with pytest.raises(Taken):
        identities.bind(ADA, "bob")


def test_a_deleted_user_leaves_nothing_to_the_next_of_that_name(session: Session, identities: Identities) -> None:
    user = add(session, "ada")
    identities.bind(ADA, "ada")
    identities.forget(user.id)
    session.delete(user)
    session.commit()
    add(session, "ada")
    assert identities.name(OTHER, "ada") == "ada"
    identities.bind(OTHER, "ada")


def test_what_is_bound_is_found_by_the_next_process(session: Session, identities: Identities) -> None:
    add(session, "ada")
    identities.bind(ADA, "ada")
    assert Identities(lambda: session).name(ADA, "x") == "ada"
