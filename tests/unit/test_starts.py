"""Starts of one server that meet in the moment between the Hub's look and its start (N04)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.apihandlers.base import APIHandler
from tornado import web

from hub_config.starts import leading_on, one_at_a_time


class Page:
    """Stands for the Hub's handler of a form."""

    authenticator = SimpleNamespace(refresh_pre_spawn=False)


class Api(APIHandler):
    authenticator = Page.authenticator

    def __init__(self) -> None:
        """Without a request: the wrapper asks only what it is."""


class Hub:
    """`spawn_single_user` as the Hub's: asks a provider first, then begins; raises for what is pending by then."""

    def __init__(self, asking: float = 0.01, **state: Any) -> None:
        self.spawner = SimpleNamespace(_log_name="ada", ready=False, pending=False, **state)
        self.user = SimpleNamespace(orm_user=SimpleNamespace(id=1), spawners={"": self.spawner})
        self.asking, self.begun = asking, 0

    async def start(self, _self: Any, user: Any, name: str = "", display: str = "", options: Any = None) -> None:
        await asyncio.sleep(self.asking)
        if self.spawner.pending:
            raise RuntimeError(f"ada pending {self.spawner.pending}")
        self.begun += 1
        self.spawner.pending = "spawn"
        await asyncio.sleep(0.01)


async def test_n04_forms_that_meet_begin_one_start_and_none_is_a_fault() -> None:
    hub = Hub()
    start = one_at_a_time(hub.start)
    await asyncio.gather(*(start(Page(), hub.user, "", "", {}) for _ in range(5)))
    assert hub.begun == 1


async def test_n04_rest_that_comes_second_is_refused_in_the_hubs_words() -> None:
    hub = Hub()
    start = one_at_a_time(hub.start)
    answers = await asyncio.gather(*(start(Api(), hub.user) for _ in range(3)), return_exceptions=True)
    assert hub.begun == 1
    refused = [answer for answer in answers if answer is not None]
    assert [(error.status_code, error.log_message) for error in refused] == [(400, "ada is pending spawn")] * 2


async def test_n04_a_server_that_became_ready_meanwhile_is_not_started_over() -> None:
    hub = Hub()
    hub.spawner.ready = True
    start = one_at_a_time(hub.start)
    await start(Page(), hub.user)
    with pytest.raises(web.HTTPError, match="already running"):
        await start(Api(), hub.user)
    assert hub.begun == 0


async def test_n04_other_servers_and_users_do_not_wait_for_each_other() -> None:
    one, two = Hub(asking=0.2), Hub()
    two.user.orm_user.id = 2

    async def start_of_either(self: Any, user: Any, *rest: Any) -> None:
        await (one if user is one.user else two).start(self, user, *rest)

    start = one_at_a_time(start_of_either)
    slow = asyncio.ensure_future(start(Page(), one.user))
    await asyncio.sleep(0)
    await start(Page(), two.user)
    assert two.begun == 1 and not slow.done()
    await slow


async def test_n04_a_start_that_failed_leaves_the_way_open() -> None:
    hub = Hub()

    async def fails(*_: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await one_at_a_time(fails)(Page(), hub.user)
    start = one_at_a_time(hub.start)
    await start(Page(), hub.user)
    assert hub.begun == 1


class Form:
    """Stands for the handler of the start form; the Hub refuses what it is sent."""

    def __init__(self, hub: Hub, error: web.HTTPError) -> None:
        self.hub, self.error, self.led = hub, error, ""

    async def post(self, _self: Any, **_: str) -> None:
        raise self.error

    def find_user(self, name: str) -> Any:
        return self.hub.user

    def _get_pending_url(self, user: Any, server: str) -> str:
        return "/hub/spawn-pending/ada"

    def redirect(self, url: str, status: int) -> None:
        self.led = f"{status} {url}"


async def test_a_form_sent_again_leads_to_the_start_that_is_under_way() -> None:
    hub = Hub()
    form = Form(hub, web.HTTPError(400, "ada is pending spawn"))
    hub.spawner.pending = "spawn"
    await leading_on(form.post)(form, "ada", "", "")
    assert form.led == "303 /hub/spawn-pending/ada"


@pytest.mark.parametrize(("pending", "status"), [(False, 400), ("spawn", 403)])
async def test_other_refusals_of_a_form_stay_refusals(pending: Any, status: int) -> None:
    hub = Hub()
    form = Form(hub, web.HTTPError(status, "no"))
    hub.spawner.pending = pending
    with pytest.raises(web.HTTPError):
        await leading_on(form.post)(form, "ada", "", "")
    assert form.led == ""
