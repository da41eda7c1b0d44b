"""The presets of GitHub, GitLab and Google against a server that answers as their REST does (their public documents):
who it is, which groups by their numbers, and what a refresh makes of it. The real services are not asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from tornado import httpserver, netutil, web
from traitlets.config import Config, Configurable

from hub_config import auth_presets
from hub_config.settings import parse
from quota.errors import Reason


class World:
    """What the stand-in knows: one person, and who asked for what."""

    def __init__(self) -> None:
        self.person: dict[str, Any] = {}
        self.teams: list[list[dict[str, Any]]] = [[]]
        self.status = 200
        self.url = ""


class Answers(web.RequestHandler):
    """Every path, answered by a table; tokens must come with each request."""

    def initialize(self, world: World) -> None:
        self.world = world

    def get(self, path: str) -> None:
        if self.world.status != 200:
            self.send_error(self.world.status)
            return
        assert self.request.headers["Authorization"].split()[1] == "the-token"
        page = int(self.get_argument("page", "1"))
        if path in ("api/v3/user/teams", "api/v4/groups"):
            self._page(path, page)
        elif path in ("api/v3/user", "api/v4/user", "oauth2/v1/userinfo"):
            self.write(self.world.person)
        else:
            self.send_error(404)

    def _page(self, path: str, page: int) -> None:
        more = page < len(self.world.teams)
        if more:
            self.set_header("Link", f'<{self.world.url}/{path}?page={page + 1}>; rel="next"')
        self.set_header("X-Next-Page", str(page + 1) if more else "")
        self.write(json.dumps(self.world.teams[page - 1]))

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish("{}")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    sockets = netutil.bind_sockets(0, "127.0.0.1")
    server = httpserver.HTTPServer(web.Application([(r"/(.*)", Answers, {"world": made})]))
    server.add_sockets(sockets)
    made.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    yield made
    server.stop()
    await server.close_all_connections()


class App(Configurable):
    """The Hub's application as far as an authenticator needs it."""

    db: Any = None


TOKEN = {"access_token": "the-token", "token_type": "bearer", "scope": "read:org"}
GROUPS = (
    '[[auth.groups]]\nid = 77\ngroup = "lab-a"\n[[auth.groups]]\nid = 5\nadmin = true\n[[groups]]\nname = "lab-a"\n'
)


def authenticator(kind: str, world: World, more: str = "", groups: str = GROUPS) -> Any:
    """The preset as the Hub would make it, with a database of its own. Google's address is not one of its settings."""
    issuer = f'issuer = "{world.url}"\n' if kind != "google" else ""
    settings = parse(f'[auth]\nkind = "{kind}"\nclient_id = "berth"\nadmins = ["root"]\n{issuer}{more}{groups}')
    data = SimpleNamespace(auth_secret=lambda _: "s", secret=lambda _: "00" * 32)
    config = Config()
    auth_presets.configure(config, SimpleNamespace(settings=settings, data=data))  # type: ignore[arg-type]
    rules = config.JupyterHub.authenticator_class
    if kind == "google":
        config.GoogleRules.google_api_url = world.url
    made = rules(config=config)
    made.parent = App()
    made.parent.db = orm.new_session_factory("sqlite:///:memory:")()
    return made


async def model(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = await made._token_to_auth_model(TOKEN)
    return found


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_groups_count_by_their_numbers_on_every_page(kind: str, world: World) -> None:
    world.person = {"id": 4711, "login": "Ada", "username": "Ada", "email": "ada@example.org"}
    world.teams = [[{"id": 1, "name": "lab-a", "slug": "lab-a", "path": "lab-a"}], [{"id": 77}, {"id": 5}]]
    made = authenticator(kind, world)
    found = await model(made)
    assert (found["name"], found["groups"], found["admin"]) == ("ada", ["lab-a"], True)
    assert found["auth_state"]["berth"]["subject"] == "4711"
    assert await made.check_allowed("ada", found)


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_x9_a_group_with_our_groups_name_opens_nothing(kind: str, world: World) -> None:
    world.person = {"id": 4711, "login": "ada", "username": "ada", "email": "ada@example.org"}
    world.teams = [[{"id": 1, "name": "lab-a", "slug": "77", "path": "77"}]]
    made = authenticator(kind, world)
    found = await model(made)
    assert (found["groups"], found["admin"]) == ([], False)
    assert not await made.check_allowed("ada", found)


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_a_refresh_tells_what_is_so_now_and_silence_is_no_answer(kind: str, world: World) -> None:
    world.person = {"id": 4711, "login": "ada", "username": "ada", "email": "ada@example.org"}
    world.teams = [[{"id": 77}]]
    made = authenticator(kind, world, 'users = ["ada"]\n')
    user = User("ada", (await model(made))["auth_state"])
    handler = SimpleNamespace()
    world.teams = [[]]
    assert (await made.refresh_user(user, handler))["groups"] == []
    assert vars(handler)["_berth_refreshed"] == {"ada": None}
    for status, reason, answer in ((503, Reason.PROVIDER_SILENT, True), (401, Reason.LOG_IN_AGAIN, False)):
        world.status = status
        assert await made.refresh_user(user, handler) is answer
        assert vars(handler)["_berth_refreshed"] == {"ada": reason}


@pytest.mark.parametrize(
    ("person", "status", "words"),
    [
        ({"id": 1, "username": "Ada Lovelace"}, 400, "cannot be used here"),
        ({"id": 1, "username": "a`) || b"}, 400, "cannot be used here"),
        ({"id": 1, "username": ["ada"]}, 403, "auth.name_claim"),
        ({"id": 1}, 403, "auth.name_claim"),
        ({"username": "ada"}, 503, "does not answer"),
    ],
)
async def test_a_person_whom_the_provider_describes_badly_is_told_so(
    person: dict[str, Any], status: int, words: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = authenticator("gitlab", world)
    world.person = person
    monkeypatch.setattr(made, "build_access_tokens_request_params", lambda handler, data: {})
    monkeypatch.setattr(made, "get_token_info", _token)
    with pytest.raises(web.HTTPError) as refused:
        await made.authenticate(SimpleNamespace())
    assert refused.value.status_code == status
    assert words in str(refused.value.log_message)


async def _token(*_: Any) -> dict[str, str]:
    return TOKEN


async def test_an_address_that_nobody_verified_names_nobody(world: World) -> None:
    made = authenticator("gitlab", world)
    made.username_claim = "email"
    world.person = {"id": 1, "email": "root@example.org", "email_verified": False}
    with pytest.raises(web.HTTPError, match="has not verified"):
        await model(made)
    world.person["email_verified"] = True
    assert (await model(made))["name"] == "root@example.org"


async def test_google_lets_in_by_organisation_and_verified_address(world: World) -> None:
    made = authenticator("google", world, 'people = "all"\ndomains = ["uni.example"]\n', groups="")
    good = {"id": "9", "email": "ada@uni.example", "verified_email": True, "hd": "uni.example"}
    world.person = good
    found = await model(made)
    assert found["name"] == "ada@uni.example"
    assert made.check_blocked_users("ada@uni.example", found) is not False
    assert await made.check_allowed("ada@uni.example", found)
    world.person = good | {"hd": "other.example"}
    assert made.check_blocked_users("ada@uni.example", await model(made)) is False
    world.person = good | {"verified_email": False}
    with pytest.raises(web.HTTPError) as refused:
        await made.check_allowed("ada@uni.example", await model(made))
    assert refused.value.status_code == 403


class User:
    """The Hub's user as far as a refresh needs it."""

    def __init__(self, name: str, state: Any) -> None:
        self.name, self.state, self.groups = name, state, ["lab-a"]

    async def get_auth_state(self) -> Any:
        return self.state

    async def save_auth_state(self, state: Any) -> None:
        self.state = state

    def sync_groups(self, names: list[str]) -> None:
        self.groups = names
