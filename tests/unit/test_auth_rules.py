"""The rule for names and our log-out hold for an authenticator that is not the local trial's."""

from __future__ import annotations

import pytest
from jupyterhub.auth import DummyAuthenticator

from hub_config.auth import HouseRules, LocalAuthenticator
from hub_config.logout import Logout


class Other(HouseRules, DummyAuthenticator):
    """Another authenticator of the Hub, under the house rules."""


@pytest.mark.parametrize("kind", [Other, LocalAuthenticator])
def test_names_are_held_to_the_rule_whatever_the_authenticator(kind: type[HouseRules]) -> None:
    rules = kind()
    assert rules.normalize_username("  Ada ") == "ada"
    assert rules.validate_username("ada")
    for bad in ("Ada", "../ada", "a/b", "", "ada\n"):
        assert not rules.validate_username(bad), bad


@pytest.mark.parametrize("name", ["Ada", "a:b"])
def test_the_rules_refuse_what_the_hub_alone_takes(name: str) -> None:
    assert DummyAuthenticator().validate_username(name)
    assert not Other().validate_username(name)


@pytest.mark.parametrize("kind", [Other, LocalAuthenticator])
def test_the_log_out_is_ours(kind: type[HouseRules]) -> None:
    first = next(handler for path, handler in kind().get_handlers(None) if path == "/logout")
    assert first is Logout
