"""What the kit makes of a kernel's messages: only executions count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from berth_lab.push import MOST_KERNELS, bounded
from berth_lab.watch import BLIND_IS_USE, KernelState
from tests.fakes.clock import FakeClock

EXECUTE = "execute_request"
OTHERS = (
    "kernel_info_request",
    "debug_request",
    "comm_open",
    "comm_msg",
    "comm_info_request",
    "complete_request",
    "inspect_request",
    "is_complete_request",
    "history_request",
    "interrupt_request",
    "shutdown_request",
    None,
)


class Script:
    """A sighted kernel's state and a clock in the test's hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = KernelState("k", blind_since=self.clock.now())
        self.state.sighted(self.clock.now())

    def status(self, word: str, parent: str | None = EXECUTE, request: str = "r") -> None:
        header = {} if parent is None else {"msg_id": request, "msg_type": parent}
        self.state.message("status", header, {"execution_state": word}, self.clock.now())

    def input(self, request: str = "r") -> None:
        header = {"msg_id": request, "msg_type": EXECUTE}
        self.state.message("execute_input", header, {"code": "1"}, self.clock.now())

    def execute(self, seconds: float, request: str = "r") -> None:
        self.status("busy", request=request)
        self.input(request)
        self.clock.advance(seconds)
        self.status("idle", request=request)


@pytest.fixture
def script() -> Script:
    return Script()


def test_an_execution_is_busy_and_leaves_its_end(script: Script) -> None:
    script.status("busy")
    began = script.clock.now()
    assert script.state.busy is True
    script.input()
    script.clock.advance(3600)
    assert script.state.report()["busy_since"] == began.isoformat().replace("+00:00", "Z")
    script.status("idle")
    assert script.state.busy is False
    assert script.state.last_execute_at == script.clock.now()
    assert script.state.report()["busy_since"] is None


@pytest.mark.parametrize("parent", OTHERS, ids=str)
def test_i05_no_other_message_counts(script: Script, parent: str | None) -> None:
    """Tab clicks, debug requests, pollers and widgets: neither busy nor a trace, and idle time goes on growing."""
    script.execute(2)
    ended = script.state.last_execute_at
    for number in range(200):
        script.clock.advance(30)
        script.status("busy", parent, f"p{number}")
        assert script.state.busy is False
        script.status("idle", parent, f"p{number}")
    assert script.state.last_execute_at == ended


def test_i05_output_of_a_background_thread_is_no_execution(script: Script) -> None:
    script.execute(2)
    ended = script.state.last_execute_at
    script.clock.advance(60)
    script.state.message("stream", {"msg_id": "r", "msg_type": EXECUTE}, {"text": "x"}, script.clock.now())
    assert (script.state.busy, script.state.last_execute_at) == (False, ended)


def test_two_subshells_are_busy_until_both_end(script: Script) -> None:
    script.status("busy", request="main")
    script.status("busy", request="sub")
    script.status("idle", request="sub")
    assert script.state.busy is True
    script.status("idle", request="main")
    assert script.state.busy is False


def test_a_front_ends_own_quick_question_is_no_use(script: Script) -> None:
    """It executes silently: no input is published. A silent computation is use, though."""
    script.status("busy")
    script.clock.advance(0.2)
    script.status("idle")
    assert script.state.last_execute_at is None
    script.status("busy", request="long")
    script.clock.advance(30)
    assert script.state.busy is True
    script.status("idle", request="long")
    assert script.state.last_execute_at == script.clock.now()


def test_an_input_that_comes_late_does_not_reopen(script: Script) -> None:
    script.execute(1)
    script.input()
    assert script.state.busy is False


def test_unsighted_is_unknown_never_idle() -> None:
    clock = FakeClock()
    state = KernelState("k", blind_since=clock.now())
    assert state.busy is None and state.report()["busy"] is None
    clock.advance(2)
    state.sighted(clock.now())
    assert state.busy is False
    assert state.last_execute_at is None, "a kernel that starts has not executed"


def test_unsighted_for_long_counts_as_use() -> None:
    """It answered only after a minute: it may have executed all the while."""
    clock = FakeClock()
    state = KernelState("k", blind_since=clock.now())
    clock.advance(BLIND_IS_USE.total_seconds() + 50)
    state.sighted(clock.now())
    assert state.last_execute_at == clock.now()


def test_busy_is_known_even_before_the_sighting() -> None:
    clock = FakeClock()
    state = KernelState("k", blind_since=clock.now())
    state.message("execute_input", {"msg_id": "r", "msg_type": EXECUTE}, {}, clock.now())
    assert state.busy is True


def test_a_sighting_ends_nothing_that_was_seen_to_begin() -> None:
    """A subshell runs while the main shell answers the probe."""
    clock = FakeClock()
    state = KernelState("k", blind_since=clock.now())
    state.message("execute_input", {"msg_id": "sub", "msg_type": EXECUTE}, {}, clock.now())
    state.sighted(clock.now())
    assert state.busy is True


def test_a_restart_ends_what_ran_and_is_unknown_until_it_answers(script: Script) -> None:
    script.status("busy")
    broke = script.clock.advance(100)
    script.state.blinded(broke)
    assert script.state.busy is None and script.state.last_execute_at == broke
    script.clock.advance(2)
    script.state.sighted(script.clock.now())
    assert script.state.busy is False and script.state.last_execute_at == broke


def test_the_last_words_of_a_dead_process_do_not_keep_its_kernel_busy() -> None:
    """They are read after the end of the connection was told of; the process that follows is another speaker."""
    clock = FakeClock()
    state = KernelState("k", blind_since=None)
    state.blinded(clock.now())
    state.message("status", {"msg_id": "r", "msg_type": EXECUTE}, {"execution_state": "busy"}, clock.now(), "first")
    assert state.busy is True
    clock.advance(2)
    state.sighted(clock.now(), "second")
    assert state.busy is False and state.last_execute_at == clock.now()
    state.message("execute_input", {"msg_id": "s", "msg_type": EXECUTE}, {}, clock.now(), "second")
    assert state.busy is True


@pytest.mark.parametrize("parent", [{}, {"msg_type": EXECUTE}, {"msg_type": EXECUTE, "msg_id": 3}], ids=str)
def test_a_mangled_parent_changes_nothing(script: Script, parent: dict[str, Any]) -> None:
    script.state.message("status", parent, {"execution_state": "busy"}, script.clock.now())
    assert script.state.busy is False


def test_a_report_stays_within_what_the_service_takes() -> None:
    old = FakeClock().now()
    idle = [KernelState(f"i{n}", None, last_execute_at=old + timedelta(seconds=n)).report() for n in range(400)]
    unknown = KernelState("u", blind_since=old).report()
    kept = bounded({"kernels": [*idle, unknown], "terminals": 0})["kernels"]
    assert len(kept) == MOST_KERNELS
    assert kept[0]["id"] == "u" and kept[1]["id"] == "i399"
