"""The Hub's REST API as the culler uses it: one suite on the fake and on a real JupyterHub."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from idle_culler.ports import SCOPES, HubForbidden, HubUnavailable, Stopped
from tests.contract.hub_worlds import World, fake_world, real_world

WORLDS = {"fake": fake_world, "real": real_world}


@pytest_asyncio.fixture(
    params=["fake", pytest.param("real", marks=pytest.mark.hub)], scope="module", loop_scope="module"
)
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with WORLDS[request.param](tmp_path_factory.mktemp("hub")) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_i12_the_token_says_what_it_may(world: World) -> None:
    assert set(SCOPES) <= await world.hub.scopes()


async def test_i12_a_missing_scope_shows(world: World) -> None:
    assert "read:servers" not in await world.blind.scopes()


async def test_i11_all_pages_are_read(world: World) -> None:
    """Seven users, pages of two, a Hub that cuts at three."""
    found = {(server.user, server.server): server for server in await world.hub.servers()}
    assert set(found) == {("u1", ""), ("u5", ""), ("u5", "two")}
    assert all(server.ready for server in found.values())
    assert all(s.last_activity is None or s.last_activity.utcoffset() is not None for s in found.values())


async def test_a_strange_token_is_forbidden(world: World) -> None:
    with pytest.raises(HubForbidden):
        await world.strange.servers()
    with pytest.raises(HubForbidden):
        await world.strange.scopes()
    with pytest.raises(HubForbidden):
        await world.strange.stop("u5", "")


async def test_no_hub_is_unavailable(world: World) -> None:
    for ask in (world.gone.scopes(), world.gone.servers(), world.gone.stop("u1", "")):
        with pytest.raises(HubUnavailable):
            await ask


async def test_stopping_what_is_not_there(world: World) -> None:
    assert await world.hub.stop("nobody", "") is Stopped.ABSENT
    assert await world.hub.stop("u1", "never") is Stopped.ABSENT
    assert await world.hub.stop("weird name/%2F`", "") is Stopped.ABSENT


async def test_stopping_servers(world: World) -> None:
    """Last in this file: it takes the servers away."""
    assert await world.hub.stop("u1", "") in (Stopped.STOPPED, Stopped.STOPPING)
    assert await world.hub.stop("u5", "two") in (Stopped.STOPPED, Stopped.STOPPING)
    assert {(server.user, server.server) for server in await world.hub.servers()} <= {("u5", "")}
    assert await world.hub.stop("u1", "") in (Stopped.STOPPED, Stopped.ABSENT), "a stopped one may be stopped again"
