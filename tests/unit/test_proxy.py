"""The proxy's own rules, without starting one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jupyterhub.services import service as hub_service
from jupyterhub.spawner import LocalProcessSpawner

from hub_config import managed
from hub_config.proxy import BerthProxy


@pytest.mark.parametrize("name", ["a`) || HostRegexp(`.*", "a'b", 'a"b', "a\\b", "a\nb", "%60x"])
async def test_a_route_that_could_leave_its_rule_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="proxy rule"):
        await BerthProxy(traefik_api_password="x" * 32).add_route(f"/user/{name}/", "http://127.0.0.1:1", {})


def test_the_password_is_hashed_cheaply_but_hashed() -> None:
    proxy = BerthProxy(traefik_api_password="x" * 32)
    assert proxy.traefik_api_hashed_password.startswith("$2b$04$")


class Ended:
    """A process that has ended."""

    pid, returncode = 1, -9


async def test_a_proxy_that_ends_again_and_again_is_started_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, pauses = BerthProxy(traefik_api_password="x" * 32), []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda pause, _call: pauses.append(pause))
    proxy.traefik_process = Ended()
    for lived in (100, 1, 1, 1, 1, 1, 1, 1, 100, 1):
        proxy._ended(proxy.traefik_process, lived)
    assert pauses == [0, 0, *(pytest.approx(pause) for pause in (0.4, 0.8, 1.6, 3.2, 5.0, 5.0)), 0, 0]


async def test_the_end_of_an_earlier_proxy_or_of_a_hub_that_stops_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, started = BerthProxy(traefik_api_password="x" * 32), []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda _pause, call: call())
    monkeypatch.setattr(proxy, "_start_traefik", lambda: started.append(True))
    proxy.traefik_process = Ended()
    proxy._ended(Ended(), 100)  # type: ignore[arg-type]
    assert not started
    proxy._ended(proxy.traefik_process, 100)
    assert started == [True]
    proxy._stopping = True
    proxy._ended(proxy.traefik_process, 100)
    proxy._start_again()
    assert started == [True]


RULES = """
[http.routers.route_api]
rule = "PathPrefix(`/api`)"
service = "api@internal"
middlewares = ["auth_api"]
[http.routers.router_user]
rule = "PathPrefix(`/user/ada/`)"
service = "service_user"
[[http.services.service_user.loadBalancer.servers]]
url = "http://127.0.0.1:1"
[http.middlewares.auth_api.basicAuth]
users = ["old:$2b$04$hash"]
"""


def test_rules_of_a_killed_hub_are_kept_and_its_log_in_is_not(tmp_path: Path) -> None:
    """Its users' servers answer while the hub comes back; an old password would lock the new hub out."""
    file = tmp_path / "rules.toml"
    file.write_text(RULES, encoding="utf-8")
    proxy = BerthProxy(traefik_api_password="x" * 32, dynamic_config_file=str(file))
    proxy._keep_routes_only()
    assert list(proxy.dynamic_config["http"]["routers"]) == ["router_user"]
    assert "middlewares" not in proxy.dynamic_config["http"]


def test_rules_that_cannot_be_read_keep_no_hub_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[http.routers", encoding="utf-8")
    proxy = BerthProxy(traefik_api_password="x" * 32, dynamic_config_file=str(file))
    proxy._keep_routes_only()
    assert not file.exists()
    assert "http" in proxy.dynamic_config, "it begins with rules of its own"


async def test_a_service_is_looked_at_each_second_but_not_before_it_has_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, now = [], [100.0]

    async def look(self: object) -> None:
        looked.append(now[0])

    monkeypatch.setattr(LocalProcessSpawner, "poll_and_notify", look)
    monkeypatch.setattr(managed.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(hub_service, "_ServiceSpawner", hub_service._ServiceSpawner)  # put back afterwards
    managed.install()
    spawner = hub_service._ServiceSpawner(cmd=["true"])
    assert isinstance(spawner, managed.QuickServiceSpawner)
    assert (spawner.poll_interval, spawner.poll_jitter) == (1, 0)
    spawner._started = now[0]
    for moment in (100.5, 102.9, 103.0, 110.0):
        now[0] = moment
        await spawner.poll_and_notify()
    assert looked == [103.0, 110.0]
