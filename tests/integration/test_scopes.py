"""Each process's Hub token does what its row in the plan says, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.harness import Stack

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("scopes") / "data", '[gpus]\nsource = "simulated"\n') as stack:
        stack.researcher.start("cpu")
        stack.add("other").start("cpu")
        yield stack


def token_of(process: psutil.Process) -> str:
    return str(process.environ()["JUPYTERHUB_API_TOKEN"])


@pytest.fixture(scope="module")
def tokens(stack: Stack) -> dict[str, str]:
    (kit,) = (p for p in stack.server_processes() if p.environ()["JUPYTERHUB_USER"] == "researcher")
    services = {name: psutil.Process(stack.pid(name)) for name in ("berth", "idle-culler")}
    return {"kit": token_of(kit), **{name: token_of(process) for name, process in services.items()}}


def ask(stack: Stack, token: str, method: str, path: str, json: object = None) -> int:
    answer = httpx.request(method, stack.url + path, headers={"Authorization": f"token {token}"}, json=json, timeout=30)
    return answer.status_code


ALLOWED = [
    ("berth", "GET", "/hub/api/users"),
    ("berth", "GET", "/hub/api/users/researcher"),
    ("berth", "GET", "/hub/api/groups"),
    ("idle-culler", "GET", "/hub/api/users"),
]
FORBIDDEN = [
    ("berth", "POST", "/hub/api/users"),
    ("berth", "DELETE", "/hub/api/users/other"),
    ("berth", "PATCH", "/hub/api/users/researcher"),
    ("berth", "POST", "/hub/api/users/researcher/tokens"),
    ("berth", "GET", "/hub/api/proxy"),
    ("berth", "POST", "/hub/api/shutdown"),
    ("idle-culler", "POST", "/hub/api/users"),
    ("idle-culler", "POST", "/hub/api/users/other/servers/x"),
    ("idle-culler", "DELETE", "/hub/api/users/other"),
    ("idle-culler", "POST", "/hub/api/users/researcher/tokens"),
    ("idle-culler", "GET", "/hub/api/groups"),
    ("idle-culler", "GET", "/hub/api/proxy"),
    ("idle-culler", "POST", "/hub/api/shutdown"),
    ("kit", "GET", "/hub/api/users"),
    ("kit", "GET", "/hub/api/users/other"),
    ("kit", "DELETE", "/hub/api/users/researcher/server"),
    ("kit", "POST", "/hub/api/users/researcher/servers/more"),
    ("kit", "POST", "/hub/api/users/researcher/tokens"),
    ("kit", "GET", "/services/berth/"),
    ("kit", "GET", "/services/berth/api/v1/me"),
    ("kit", "GET", "/services/berth/api/v1/leases"),
    ("kit", "POST", "/services/berth/api/v1/accounts/researcher/grants"),
    ("kit", "GET", "/user/other/api/status"),
]


@pytest.mark.parametrize(("who", "method", "path"), ALLOWED)
def test_a_token_does_what_it_is_for(stack: Stack, tokens: dict[str, str], who: str, method: str, path: str) -> None:
    assert ask(stack, tokens[who], method, path) == 200


@pytest.mark.parametrize(("who", "method", "path"), FORBIDDEN)
def test_a_token_does_nothing_else(stack: Stack, tokens: dict[str, str], who: str, method: str, path: str) -> None:
    body = {"usernames": ["new"]} if path == "/hub/api/users" and method == "POST" else {"amount_micro_credits": 1}
    assert ask(stack, tokens[who], method, path, None if method == "GET" else body) in (401, 403, 404)


def test_the_kit_speaks_for_its_own_server_only(stack: Stack, tokens: dict[str, str]) -> None:
    signal = {"kernels": [], "terminals": 0}
    path = "/services/berth/api/v1/kit/signals"
    assert ask(stack, tokens["kit"], "POST", path, signal) in (200, 204)
    assert ask(stack, tokens["idle-culler"], "POST", path, signal) in (401, 403)
    assert ask(stack, stack.researcher.token, "POST", path, signal) in (401, 403), "a user's own token is no kit"
    assert ask(stack, "0" * 32, "POST", path, signal) in (401, 403)
