"""The proxy's own rules, without starting one."""

from __future__ import annotations

import pytest

from hub_config.proxy import BerthProxy


@pytest.mark.parametrize("name", ["a`) || HostRegexp(`.*", "a'b", 'a"b', "a\\b", "a\nb", "%60x"])
async def test_a_route_that_could_leave_its_rule_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="proxy rule"):
        await BerthProxy(traefik_api_password="x" * 32).add_route(f"/user/{name}/", "http://127.0.0.1:1", {})


def test_the_password_is_hashed_cheaply_but_hashed() -> None:
    proxy = BerthProxy(traefik_api_password="x" * 32)
    assert proxy.traefik_api_hashed_password.startswith("$2b$04$")
