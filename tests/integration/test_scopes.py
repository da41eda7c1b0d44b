"""Each process's Hub token does what its row in the plan says, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.harness import Stack
from tests.integration.hub_attacks import READS, WRITES, addresses_of_the_hub

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


#: Who reaches what of the Hub for somebody else, beside what is open to all: the rows of the plan's table, and no more.
#: (`start:servers` lets a server be made, started and, while it is stopped, be described anew.)
SERVER = "/hub/api/users/victim/server"
NAMED = "/hub/api/users/victim/servers/one"
ENDS = {("DELETE", SERVER), ("DELETE", NAMED)}
STARTS = {(method, path) for method in ("POST", "PUT", "PATCH") for path in (SERVER, NAMED)}
LOOKS = {("GET", f"/hub/api/{what}") for what in ("user", "users", "users/victim", "users/victim/server")}
LOOKS |= {("GET", f"{SERVER}/progress"), ("GET", NAMED), ("GET", f"{NAMED}/progress")}
REACHED: dict[str, set[tuple[str, str]]] = {
    "berth": {*LOOKS, *STARTS, *ENDS, ("GET", "/hub/api/groups")},
    "idle-culler": {*LOOKS, *ENDS},
    "kit": {("GET", "/hub/api/user")},
    "user": {("GET", "/hub/api/user")},
}
#: Left over from older Hubs: there is nothing behind it but an error.
GONE = {(method, f"/hub/api/authorizations/token{more}") for method in ("GET", "POST") for more in ("", "/victim")}


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        yield client


def reaches(client: httpx.Client, token: str, method: str, path: str) -> bool:
    """Whether a token gets past the door: to an answer, or to a complaint about what was asked."""
    answer = client.request(
        method,
        path,
        headers={"Authorization": f"token {token}"},
        json=None if method == "GET" else {"profile": "no such profile"},
    )
    if answer.status_code == 302:
        return "/hub/login" not in answer.headers["location"]
    return answer.status_code not in (401, 403, 404, 405, 424)  # 424: there is no such server


@pytest.mark.parametrize("who", REACHED)
def test_n08_a_token_reaches_its_row_and_nothing_else_in_the_hub(
    stack: Stack, client: httpx.Client, tokens: dict[str, str], who: str
) -> None:
    """Every address of the Hub's own table, with every method, about another user: with this token and with none."""
    stack.admin.hub("POST", "/users", {"usernames": ["victim"]})
    assert stack.admin.hub("PUT", "/users/victim/servers/one", {}).status_code in (201, 409), "one that is stopped"
    token = stack.researcher.token if who == "user" else tokens[who]
    asked = set(addresses_of_the_hub((*READS, *WRITES), "victim")) - GONE
    assert len(asked) > 80 and asked >= REACHED[who]
    ends_last = sorted(asked, key=lambda each: (each[0] == "DELETE", each))
    reached = {each for each in ends_last if reaches(client, token, *each)}
    open_to_all = {each for each in reached if reaches(client, "0" * 32, *each)}
    assert reached - open_to_all == REACHED[who]
    assert stack.answers()
    assert stack.admin.model("victim")["servers"].get("") is None, "and no start came of it"


def test_n08_the_kit_reaches_nothing_of_its_own_user_either(
    stack: Stack, client: httpx.Client, tokens: dict[str, str]
) -> None:
    """Its user's servers, tokens and groups are out of its reach; that it lives, it may say."""
    asked = set(addresses_of_the_hub((*READS, *WRITES), "researcher")) - GONE
    reached = {each for each in asked if reaches(client, tokens["kit"], *each)}
    allowed = {("GET", "/hub/api/user"), ("GET", "/hub/api/users/researcher")}
    allowed |= {("POST", "/hub/api/users/researcher/activity")}
    assert {each for each in reached if not reaches(client, "0" * 32, *each)} <= allowed
    assert stack.researcher.ready()


def test_n08_the_agent_and_the_proxy_hold_no_token(stack: Stack) -> None:
    for name in ("agent", "proxy"):
        environment = psutil.Process(stack.pid(name)).environ()
        assert not [key for key in environment if "TOKEN" in key and environment[key]], name


def test_n08_the_metrics_token_reads_metrics_alone(stack: Stack, client: httpx.Client) -> None:
    token = (stack.data / "secrets" / "metrics_token").read_text(encoding="ascii").strip()
    asked = set(addresses_of_the_hub((*READS, *WRITES), "victim")) - GONE
    reached = {each for each in asked if reaches(client, token, *each)}
    metrics = {("GET", "/hub/metrics"), ("GET", "/hub/api/metrics"), ("GET", "/hub/api/user")}
    assert {each for each in reached if not reaches(client, "0" * 32, *each)} <= metrics
    for path in ("", "me", "leases", "accounts", "prices", "fleet", "kit/signals"):
        assert ask(stack, token, "GET", f"/services/berth/api/v1/{path}") in (401, 403, 404, 405), path


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
    ("kit", "POST", "/user/other/api/kernels"),
    ("kit", "GET", "/services/berth/api/v1/accounts/other"),
    ("kit", "PUT", "/services/berth/api/v1/prices"),
    ("kit", "PUT", "/services/berth/api/v1/accounts/researcher/limits"),
    ("berth", "GET", "/user/researcher/api/status"),
    ("berth", "GET", "/services/berth/api/v1/me"),
    ("idle-culler", "GET", "/user/researcher/api/status"),
    ("idle-culler", "GET", "/services/berth/"),
    ("idle-culler", "POST", "/services/berth/api/v1/accounts/researcher/grants"),
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
