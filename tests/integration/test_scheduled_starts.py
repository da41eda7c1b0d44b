"""Starts at a time on a real hub: made when it has come, refused in words, missed, forbidden; and the ends that users
set: a time, or when the work is done."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_config.compose import Parts
from quota.inbox import Inbox, Letter
from quota.routing import Preference
from tests.harness import Kernel, Person, Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

WINDOW = 25
TOML = f"""
[gpus]
source = "simulated"
simulated = 1

[schedule]
most = 5
window = "{WINDOW} s"

[save]
grace = "20 s"
by_hand = "off"

[[groups]]
name = "lab"
[[profiles]]
name = "cpu"
share = 0
[[profiles]]
name = "eighth"
share = 0.125
[[profiles]]
name = "whole"
share = 1
[[profiles]]
name = "lab"
share = 0
groups = ["lab"]
"""
#: A flag file takes the scope from service berth at the next start.
EXTRA = """
import copy
from pathlib import Path
from hub_config import roles

if Path(__file__).with_name("strip").exists():
    found = copy.deepcopy(roles.ROLES)
    for role in found:
        if role["name"] == "berth":
            role["scopes"].remove("start:servers")
    c.JupyterHub.load_roles = found
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("starts") / "data", TOML, EXTRA) as stack:
        yield stack


def schedule(person: Person, profile: str, seconds: int = 4, **more: str) -> dict[str, Any]:
    """Ask for a start in so many seconds."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    answer = person.berth("/scheduled-starts", "POST", json={"at": at.isoformat(), "profile": profile, **more})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def seen(person: Person, start: dict[str, Any]) -> dict[str, Any]:
    return person.read(f"/scheduled-starts/{start['id']}")


def over(person: Person, start: dict[str, Any], state: str, seconds: float = 60) -> dict[str, Any]:
    """The start once it is over; asserts how."""

    def ask() -> dict[str, Any] | None:
        found = seen(person, start)
        return None if found["state"] in ("waiting", "starting") else found

    found = until(ask, seconds, "the start is over", every=0.2)
    assert found["state"] == state, found
    return found


def told(made: Parts, who: str, start: dict[str, Any]) -> list[Letter]:
    """What its user was told of it; a notice is written before the start is over."""
    letters = Inbox(made.store, made.clock).of(who, admin=False)
    return [each for each in letters if each.kind.startswith("start-") and each.at >= moment(start["created_at"])]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def alerts(made: Parts) -> set[str]:
    return {each.key for each in made.alerts.open()}


def stored_options(stack: Stack, user: str) -> dict[str, Any]:
    """What the Hub takes for the next start of the default server that brings no options."""
    asked = """select user_options from spawners join users on users.id = spawners.user_id
               where users.name = ? and spawners.name = ''"""
    with closing(sqlite3.connect(f"file:{stack.data}/hub/jupyterhub.sqlite?mode=ro", uri=True, timeout=20)) as hub:
        (found,) = hub.execute(asked, (user,)).fetchone()
    return dict(json.loads(found))


def test_a_start_is_made_at_its_time_and_told(stack: Stack, made: Parts) -> None:
    person = stack.add("early")
    start = schedule(person, "eighth", 12)
    assert person.leases() == [] and seen(person, start)["state"] == "waiting"
    over(person, start, "started")
    lease = person.lease()
    at, asked = moment(start["start_at"]), moment(lease["requested_at"])
    assert at <= asked < at + timedelta(seconds=WINDOW), (at, asked)
    assert (lease["profile"], lease["holder"]["server"], lease["account"]) == ("eighth", "", "early")
    assert made.book.lease(lease["id"]).requested_by == "service:berth"
    assert until(person.ready, 30) and stack.passwords()
    (letter,) = told(made, "early", start)
    assert letter.words == "Your server with the profile eighth was started as scheduled."
    again = over(person, schedule(person, "eighth", 2), "started")
    assert (again["outcome"], len(person.leases()), len(told(made, "early", start))) == ("it was running already", 1, 1)
    person.stop()
    assert person.settled(lease["id"])["charged_micro_credits"] > 0, "as any other"


def test_a_named_server_is_started_by_the_page(stack: Stack) -> None:
    """And one that was cancelled is not."""
    person = stack.add("named")
    gone = schedule(person, "cpu", 15, server="gone")
    assert person.berth(f"/scheduled-starts/{gone['id']}", "DELETE", json={}).status_code == 200
    over(person, schedule(person, "cpu", 3, server="night"), "started")
    until(lambda: datetime.now(UTC) > moment(gone["start_at"]) + timedelta(seconds=5), 60, "its time has passed", 0.5)
    assert [lease["holder"]["server"] for lease in person.leases()] == ["night"]
    page = person.browser.get("/services/berth/starts").text
    assert "night" in page and "cancelled" in page
    person.stop(server="night")


def test_closed_access_is_refused_in_words_and_told_and_leaves_the_last_options(stack: Stack, made: Parts) -> None:
    """The words are in the language that its user chose for what they are told."""
    person = stack.add("member")
    stack.admin.hub("POST", "/groups/lab")
    stack.admin.hub("POST", "/groups/lab/users", {"users": ["member"]}).raise_for_status()
    person.start("eighth")
    person.stop()
    Inbox(made.store, made.clock).set_preference("member", Preference(language="zh-CN"))
    start = schedule(person, "lab", 10)
    stack.admin.hub("DELETE", "/groups/lab/users", {"users": ["member"]}).raise_for_status()
    until(lambda: seen(person, start)["outcome"], 30, "what stands in its way is on the page")
    found = over(person, start, "failed", WINDOW + 60)
    (letter,) = told(made, "member", start)
    assert "配置" in found["outcome"] and "lab" in found["outcome"], found
    assert letter.kind == "start-failed" and found["outcome"].rstrip("。.") in letter.words, letter
    assert letter.link == "/services/berth/starts"
    assert alerts(made) == set(), "that is no trouble of the site"
    assert [lease["profile"] for lease in person.leases()] == ["eighth"]
    form = person.browser.get("/hub/spawn").text
    checked = next(part for part in form.split("<input")[1:] if "checked" in part.split(">")[0])
    assert 'value="eighth"' in checked.split(">")[0], checked[:300]


def test_no_room_is_tried_again_until_there_is(stack: Stack, made: Parts) -> None:
    holder, waiter = stack.add("holder"), stack.add("waiter")
    waiter.start("cpu")
    waiter.stop()
    holder.start("whole")
    start = schedule(waiter, "whole", 3)
    until(lambda: seen(waiter, start)["outcome"], 30, "it was refused once")
    assert seen(waiter, start)["state"] in ("waiting", "starting") and told(made, "waiter", start) == []
    assert waiter.hub("GET", "/users/waiter/server").json()["user_options"] == {"profile": "cpu"}
    assert stored_options(stack, "waiter") == {"profile": "cpu"}, "also when the hub starts anew"
    holder.stop()
    over(waiter, start, "started", WINDOW + 60)
    assert [each.kind for each in told(made, "waiter", start)] == ["start-done"]
    waiter.stop()


def test_one_behind_a_stop_waits_for_it(stack: Stack) -> None:
    """A set end and a start at the same time are a restart."""
    person = stack.add("again")
    person.start("eighth")
    kernel = Kernel(person)
    with kernel:
        kernel.send("import time; time.sleep(600)")  # its stop takes a while
    until(lambda: any(each["execution_state"] == "busy" for each in person.notebook("GET", "api/kernels").json()), 20)
    first = person.lease()["id"]
    assert stack.admin.berth(f"/leases/{first}/stop", "POST", json={}).status_code == 202
    start = schedule(person, "eighth", 1)
    over(person, start, "started", WINDOW + 60)
    assert person.lease()["id"] != first
    person.stop()


# ---- ends that users set -----------------------------------------------------------------------------------------

AHEAD = 65  # the soonest that one may set is a minute


@pytest.fixture(scope="module")
def both(stack: Stack) -> dict[str, tuple[Person, str, Kernel, float]]:
    """Two servers, each with an end: one at a time, one when its work, a cell of some seconds, is done."""
    found = {}
    for name in ("leaver", "worker"):
        person = stack.add(name)
        person.start("cpu")
        kernel = Kernel(person)
        with kernel:
            kernel.run("kept = 42")
        seat = {"path": f"{name}.ipynb", "name": name, "type": "notebook", "kernel": {"id": kernel.id}}
        assert person.notebook("POST", "api/sessions", json=seat).status_code == 201
        found[name] = (person, str(person.lease()["id"]), kernel, time.time())
    person, lease, kernel, _began = found["worker"]
    with kernel:
        kernel.send("import time; time.sleep(20)")
    assert person.berth(f"/leases/{lease}/when-done", "PUT", json={}).status_code == 200
    found["worker"] = (person, lease, kernel, time.time())
    person, lease, *_ = found["leaver"]
    at = datetime.now(UTC) + timedelta(seconds=AHEAD)
    answer = person.berth(f"/leases/{lease}/shutdown", "PUT", json={"at": at.isoformat()})
    assert answer.status_code == 200, answer.text
    return found


def saved(made: Parts, lease: str) -> bool:
    """Whether its kit was done before it ended."""
    farewell = made.farewells.of(lease)
    assert farewell is not None and farewell.done_at is not None, farewell
    rows = [*farewell.report["saved"], *farewell.report["lost"]]
    return any("tabs" == row["kind"] for row in rows)


def test_a_set_end_is_announced_saves_and_stops(
    made: Parts, both: dict[str, tuple[Person, str, Kernel, float]]
) -> None:
    person, lease, _kernel, _began = both["leaver"]
    at = moment(person.read(f"/leases/{lease}/wish")["shutdown_at"])
    ended = person.settled(lease, AHEAD + 90)
    assert ended["stop_reason"] == "shutdown", ended
    assert at <= moment(ended["ended_at"]) < at + PATIENCE * timedelta(seconds=90), (at, ended["ended_at"])
    assert saved(made, lease)
    kinds = [each.kind for each in Inbox(made.store, made.clock).of("leaver", admin=False)]
    assert "shutdown-warning" in kinds, kinds


def test_when_done_waits_for_the_work_and_then_stops(
    made: Parts, both: dict[str, tuple[Person, str, Kernel, float]]
) -> None:
    person, lease, _kernel, began = both["worker"]
    ended = person.settled(lease, 240)
    assert ended["stop_reason"] == "shutdown" and "work is done" in ended["stop_detail"], ended
    lasted = moment(ended["ended_at"]).timestamp() - began
    assert 20 + 60 <= lasted < 20 + 60 + 120, f"the cell, a quiet minute, and no more: {lasted:.0f} s"
    assert saved(made, lease)


def test_the_home_pages_button_keeps_ones_own_server_alone(stack: Stack, made: Parts) -> None:
    """Not somebody else's, not by the server's own token, not beyond the credit."""
    person, mallory = stack.add("keeper"), stack.add("mallory")
    person.start("eighth")
    lease = str(person.lease()["id"])
    path, hour = "/berth/users/keeper/keep", {"lease": lease, "seconds": 3600}
    (kit,) = (p for p in stack.server_processes() if p.environ()["JUPYTERHUB_USER"] == "keeper")
    own = {"Authorization": f"token {kit.environ()['JUPYTERHUB_API_TOKEN']}"}
    assert httpx.post(f"{stack.url}/hub/api{path}", headers=own, json=hour, timeout=30).status_code == 403
    naked = person.browser.post(f"/hub/api{path}", json=hour)
    assert naked.status_code == 403, "a cookie without its XSRF token"
    assert mallory.hub("POST", path, hour).status_code == 404
    assert mallory.hub("POST", "/berth/users/mallory/keep", hour).status_code == 404
    for wrong in ({}, {"lease": lease, "seconds": 1}, {"lease": 1, "seconds": 3600}, {"lease": lease, "seconds": True}):
        assert person.hub("POST", path, wrong).status_code == 400, wrong
    assert person.read(f"/leases/{lease}/wish")["keep_until"] is None
    answer = person.browser.post(f"/hub/api{path}", json=hour, headers={"X-XSRFToken": person.xsrf})
    assert answer.status_code == 200 and answer.json()["words"].startswith("It is kept until "), answer.text
    assert moment(person.read(f"/leases/{lease}/wish")["keep_until"]) > datetime.now(UTC) + timedelta(minutes=59)
    beyond = person.hub("POST", path, {"lease": lease, "seconds": 40 * 3600})
    assert (beyond.status_code, "3 h" in beyond.json()["message"]) == (409, True), beyond.text
    person.stop()
    assert person.hub("POST", path, hour).status_code == 409, "it runs no more"


# ---- Berth itself in the way -------------------------------------------------------------------------------------


def restart(stack: Stack, meanwhile: Callable[[], object] = lambda: None) -> None:
    stack.forget_people()
    assert stack.interrupt() == 0
    meanwhile()
    stack.up()


def flag(stack: Stack) -> Path:
    return stack.data / "strip"


def test_one_whose_time_passes_while_berth_is_down_is_missed_and_told(stack: Stack, made: Parts) -> None:
    start = schedule(stack.add("sleeper"), "cpu", 15)
    late = moment(start["start_at"]).timestamp() + WINDOW + 1

    def sleep() -> None:
        flag(stack).touch()  # the test after this one needs no restart of its own then
        time.sleep(max(0.0, late - time.time()))

    restart(stack, sleep)
    found = over(stack.person("sleeper"), start, "missed")
    assert found["outcome"] == "Berth was not running at that time"
    (letter,) = told(made, "sleeper", start)
    assert "could not be started as scheduled: Berth was not running at that time." in letter.words
    assert stack.person("sleeper").leases() == []


def test_a_missing_scope_is_an_alert_and_not_laid_on_the_user(stack: Stack, made: Parts) -> None:
    if not flag(stack).exists():
        flag(stack).touch()
        restart(stack)
    until(lambda: "dispatcher" in alerts(made), 30, "it is seen before anybody asks")
    assert "start:servers" in stack.admin.browser.get("/services/berth/admin").text
    person = stack.add("sleeper")
    start = schedule(person, "cpu", 2)
    until(lambda: seen(person, start)["outcome"], 30, "it was tried")
    found = seen(person, start)
    assert found["outcome"].startswith("Berth itself may start no servers"), found
    flag(stack).unlink()
    restart(stack)
    until(lambda: "dispatcher" not in alerts(made), 60, "the alert is cleared by itself")
    person = stack.person("sleeper")
    over(person, schedule(person, "cpu", 3, server="new"), "started")
    person.stop(server="new")
