"""A stop and a start on a real site with the real kit: what was open is offered by the next server of the same name,
comes back on one request, and the card of the one that ended lists what was saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hub_config.compose import Parts
from quota.leases import StopReason
from tests.harness import Kernel, Person, Stack, until

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 1

[save]
grace = "30 s"
by_hand = "20 s"

[idle]
with_gpu = "8 s"
without_gpu = "2 h"
notice = "2 s"
check_every = "1 s"
"""
WORK = """
import os, threading
os.makedirs("data", exist_ok=True)
os.chdir("data")
numbers = list(range(5))
def double(x):
    return [2 * each for each in x]
lock = threading.Lock()
print("made by", len(numbers))
"""
PROOF = "print(double(numbers), os.path.basename(os.getcwd()), 'lock' in globals())"
CELL = {"id": "c0", "cell_type": "code", "source": WORK, "metadata": {}, "outputs": [], "execution_count": None}
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [CELL]}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("resume") / "data", TOML) as stack:
        yield stack


def at_work(person: Person, made: Parts, profile: str, server: str = "") -> str:
    """A notebook whose kernel holds something and works in a folder of its own; the lease, once its kit has told."""
    person.start(profile, server=server)
    body = {"type": "notebook", "content": NOTEBOOK}
    assert person.notebook("PUT", "api/contents/work.ipynb", server=server, json=body).status_code in (200, 201)
    kernel = Kernel(person, server)
    seat = {"path": "work.ipynb", "name": "work.ipynb", "type": "notebook", "kernel": {"id": kernel.id}}
    assert person.notebook("POST", "api/sessions", server=server, json=seat).status_code == 201
    with kernel:
        assert kernel.run(WORK, 60, cell="c0") == "made by 5\n"
    lease = str(person.lease()["id"])

    def told() -> bool:
        return bool(made.rows.signals(lease).get("kit", (None, {}))[1].get("kernels"))

    until(told, 30, "the kit has told of the kernel")
    return lease


def event(person: Person, name: str, server: str = "") -> dict[str, Any] | None:
    """What the stream of the person's server begins with under this name, if it comes within two seconds."""
    kind, path = "", f"/user/{person.name}/{server + '/' if server else ''}berth/stream"
    try:
        with person.api.stream("GET", path, timeout=2) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: ") and kind == name:
                    return dict(json.loads(line.removeprefix("data: ")))
    except httpx.TimeoutException:
        pass
    return None


def restored(person: Person, offer: dict[str, Any], server: str = "") -> dict[str, Any]:
    body = {"token": offer["token"], "action": "restore"}
    answer = person.api.post(f"/user/{person.name}/{server + '/' if server else ''}berth/resume", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def stamped(person: Person, lease: str, reason: str, server: str = "") -> None:
    """The file has what the cell printed, which no browser had saved, and says which stop saved it."""
    answer = person.notebook("GET", "api/contents/work.ipynb", server=server)
    notebook = answer.json()["content"]
    (output,) = notebook["cells"][0]["outputs"]
    assert "".join(output["text"]) == "made by 5\n", notebook
    stamp = notebook["metadata"]["berth"]
    assert (stamp["lease"], stamp["reason"]) == (lease, reason), stamp


def came_back(person: Person, found: dict[str, Any], server: str = "") -> None:
    """The notebook has a kernel again, a fresh one, that holds what the other held, where the other worked."""
    (row,) = found["kernels"]
    assert (row["path"], row["lost"], found["lost"]) == ("work.ipynb", 0, []), found
    sessions = person.notebook("GET", "api/sessions", server=server).json()
    assert [(each["path"], each["kernel"]["id"]) for each in sessions] == [("work.ipynb", row["id"])]
    with Kernel(person, server, id=row["id"]) as kernel:
        assert kernel.run(PROOF, 60) == "[0, 2, 4, 6, 8] data False\n"


def listed(person: Person, made: Parts, lease: str) -> None:
    """The book has what the kit saved, and the receipt shows it with what was lost and why."""
    farewell = made.farewells.of(lease)
    assert farewell is not None and farewell.done_at is not None, farewell
    saved = {row["kind"]: row for row in farewell.report["saved"]}
    assert saved["variables"]["what"] == "work.ipynb" and saved["variables"]["count"] >= 2, saved
    page = person.browser.get(f"/services/berth/lease/{lease}").text
    for words in ("Variables", "work.ipynb", "lock in work.ipynb", "could not", "Resume the same"):
        assert words in page, f"{words!r} is not on the receipt: {page}"


def back(person: Person, lease: str, reason: str) -> None:
    """The next server offers what the last one saved, once, and brings it back."""
    until(person.gone, 30, "the hub has let go of it")
    person.start("cpu")
    offer = until(lambda: event(person, "resume"), 30, "an offer")
    assert (offer["reason"], offer["kernels"], offer["tabs"]) == (reason, 1, ["work.ipynb"]), offer
    assert [row["what"] for row in offer["lost"]] == ["lock"] and offer["variables"] >= 2, offer
    stamped(person, lease, reason)
    came_back(person, restored(person, offer))
    assert event(person, "resume") is None, "once"


def test_i24_what_was_saved_before_a_stop_by_hub_comes_back_after_the_next_start(stack: Stack, made: Parts) -> None:
    person = stack.add("ada")
    lease = at_work(person, made, "cpu")
    person.stop(seconds=60)
    person.settled(lease)
    listed(person, made, lease)
    back(person, lease, "user")


def test_i24_an_idle_server_that_was_reclaimed_comes_back_as_well(stack: Stack, made: Parts) -> None:
    person = stack.add("eve")
    lease = at_work(person, made, "gpu-1-8")
    until(lambda: person.lease(lease)["state"] == "SETTLED", 90, "it is reclaimed", every=0.25)
    listed(person, made, lease)
    back(person, lease, "idle")


def test_i24_a_server_stopped_by_its_page_and_one_whose_credit_is_gone_come_back(stack: Stack, made: Parts) -> None:
    person = stack.add("bob")
    lease = at_work(person, made, "cpu")
    answer = person.berth(f"/leases/{lease}/stop", "POST", json={})
    assert answer.status_code == 202, answer.text
    person.settled(lease, 60)
    back(person, lease, "user")
    poor = stack.add("kit")
    lease = at_work(poor, made, "cpu")
    made.way_out.request(lease, StopReason.QUOTA, by="test")
    poor.settled(lease, 60)
    back(poor, lease, "quota")


def test_i24_a_server_of_another_name_is_offered_nothing_and_its_own_comes_back(stack: Stack, made: Parts) -> None:
    person = stack.add("joy")
    at_work(person, made, "cpu", "lab")
    person.stop(server="lab", seconds=60)
    person.start("cpu")
    person.start("cpu", server="lab")
    offer = until(lambda: event(person, "resume", "lab"), 30, "an offer")
    assert event(person, "resume") is None, "to the server that saved it alone"
    came_back(person, restored(person, offer, "lab"), "lab")
