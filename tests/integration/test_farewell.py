"""The one way out on a real site with the real kit: whoever stops a server lets it save first, and nobody is held up.

Reasons that a test can bring about are: by the Hub, by an administrator's page, for being idle, by Ctrl-C. The others
are written into the book as their processes write them, by the same function, and the agent does the rest.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psutil
import pytest

from hub_config.compose import Parts
from quota.leases import StopReason
from tests.harness import Kernel, Person, Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

GRACE, BY_HAND, TERM = 14, 8, 10
TOML = f"""
[gpus]
source = "simulated"
simulated = 2

[save]
grace = "{GRACE} s"
by_hand = "{BY_HAND} s"

[idle]
with_gpu = "14 s"
without_gpu = "2 h"
notice = "2 s"
check_every = "1 s"
"""
Order = Callable[[Person, str], None]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("farewell") / "data", TOML) as stack:
        yield stack


def at_work(stack: Stack, made: Parts, name: str, profile: str = "cpu") -> tuple[Person, str]:
    """Somebody with a kernel that holds something, of which the kit has told; and their lease."""
    person = stack.add(name)
    person.start(profile)
    kernel = Kernel(person)
    with kernel:
        kernel.run("kept = 42")
    seat = {"path": "work.ipynb", "name": "work.ipynb", "type": "notebook", "kernel": {"id": kernel.id}}
    assert person.notebook("POST", "api/sessions", json=seat).status_code == 201
    lease = str(person.lease()["id"])
    until(lambda: kernels(made, lease), 20, "the kit has told of the kernel")
    return person, lease


def kernels(made: Parts, lease: str) -> bool:
    return bool(made.rows.signals(lease).get("kit", (None, {}))[1].get("kernels"))


def stopped_at(made: Parts, lease: str) -> datetime:
    events = [event for event in made.rows.events(lease) if event.kind == "stop-requested"]
    return events[-1].at


def took(made: Parts, lease: dict[str, Any]) -> float:
    """Seconds from the intent to the end."""
    return (datetime.fromisoformat(lease["ended_at"]) - stopped_at(made, lease["id"])).total_seconds()


def saved(made: Parts, lease: str) -> bool:
    """Whether its kit was done and gave account of the notebook's kernel: what was open is kept, and its variables, or
    a reason why not. What of them is for the kit's own tests."""
    farewell = made.farewells.of(lease)
    assert farewell is not None and farewell.done_at is not None, farewell
    rows = [*farewell.report["saved"], *farewell.report["lost"]]
    assert any(row.get("what") == "work.ipynb" for row in rows), rows
    return "tabs" in {row["kind"] for row in farewell.report["saved"]} and bool(farewell.report["resume"])


def ordered(made: Parts, reason: StopReason) -> Order:
    return lambda _person, lease: made.way_out.request(lease, reason, by="test") and None


def test_i09_a_stop_by_the_hub_lets_the_server_save(stack: Stack, made: Parts) -> None:
    person, lease = at_work(stack, made, "ada")
    person.stop()
    ended = person.settled(lease)
    assert (ended["stop_reason"], took(made, ended) < BY_HAND + TERM) == ("user", True)
    assert saved(made, lease)


def test_i09_a_stop_by_an_administrators_page_keeps_the_address_until_all_is_saved(stack: Stack, made: Parts) -> None:
    person, lease = at_work(stack, made, "bob")
    assert stack.admin.berth(f"/leases/{lease}/stop", "POST", json={}).status_code == 202
    ended = person.settled(lease)
    assert (ended["stop_reason"], took(made, ended) < BY_HAND + TERM) == ("admin", True)
    assert saved(made, lease)
    until(person.gone, 30, "the hub has let go of it")


def test_i09_an_idle_server_saves_within_its_grace(stack: Stack, made: Parts) -> None:
    person, lease = at_work(stack, made, "eve", "gpu-1-8")
    until(lambda: person.lease(lease)["state"] == "SETTLED", 60, "it is reclaimed", every=0.25)
    ended = person.lease(lease)
    assert (ended["stop_reason"], took(made, ended) < GRACE) == ("idle", True), "it is ended once its kit is done"
    assert saved(made, lease)


@pytest.mark.parametrize("reason", [StopReason.QUOTA, StopReason.SHUTDOWN, StopReason.MAX_AGE, StopReason.DRAIN])
def test_i09_whatever_the_reason_the_way_is_the_same(stack: Stack, made: Parts, reason: StopReason) -> None:
    person, lease = at_work(stack, made, f"for-{reason.value}")
    ordered(made, reason)(person, lease)
    ended = person.settled(lease, GRACE + TERM)
    assert (ended["stop_reason"], took(made, ended) < GRACE) == (reason.value, True)
    assert saved(made, lease)
    until(person.gone, 30, "the hub has let go of it")


def frozen(stack: Stack, name: str) -> psutil.Process:
    """The server of somebody, stopped as a machine that swaps itself to death would."""
    (server,) = [each for each in stack.server_processes() if each.environ().get("JUPYTERHUB_USER") == name]
    server.send_signal(signal.SIGSTOP)
    return server


def test_a_kit_that_is_dead_holds_a_stop_up_for_its_grace_and_no_longer(stack: Stack, made: Parts) -> None:
    person, lease = at_work(stack, made, "mute")
    frozen(stack, "mute")
    began = time.monotonic()
    person.stop(seconds=60)
    ended = person.settled(lease)
    assert time.monotonic() - began < PATIENCE * (BY_HAND + TERM + 15)
    assert ended["stop_reason"] == "user" and made.farewells.of(lease) is None


def test_a_service_that_is_away_holds_up_no_stop(stack: Stack, made: Parts) -> None:
    person, lease = at_work(stack, made, "cut-off")
    service = psutil.Process(stack.pid("berth"))
    service.suspend()
    try:
        began = time.monotonic()
        assert person.ask_stop().status_code in (202, 204)
        until(lambda: not made.book.lease(lease).live, BY_HAND + TERM + 15, "its room is free again")
        assert time.monotonic() - began >= BY_HAND - 1, "nobody could know whether it had saved"
    finally:
        service.resume()
    assert person.settled(lease)["stop_reason"] == "user"


def test_with_nothing_to_save_a_stop_is_not_held_up(stack: Stack, made: Parts) -> None:
    person = stack.add("empty")
    person.start("cpu")
    lease = str(person.lease()["id"])
    until(lambda: "kit" in made.rows.signals(lease), 20, "the kit has told of nothing")
    person.stop()
    assert took(made, person.settled(lease)) < BY_HAND - 2


def test_i09_ctrl_c_lets_all_servers_save_at_once_and_tells_so(stack: Stack, made: Parts) -> None:
    leases = [at_work(stack, made, name)[1] for name in ("last", "and-least")]
    began = time.monotonic()
    stack.forget_people()
    assert stack.interrupt() == 0
    assert time.monotonic() - began < PATIENCE * (BY_HAND + 30)
    stack.process = None
    for lease in leases:
        ended = made.book.lease(lease)
        assert ended.stop_reason is StopReason.PLATFORM
        assert saved(made, lease)
    said = stack.screen.read_text()
    assert f"2 user servers save what is open, up to {BY_HAND} s" in said and "2 of 2 done" in said
    assert stack.leftovers() == []
