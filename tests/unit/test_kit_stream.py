"""What the kit reads from the service's stream, and what it sees of processes and saves."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from berth_lab import activity
from berth_lab.activity import Saves
from berth_lab.stream import LONGEST_EVENT, LONGEST_WAIT_SECONDS, Parser, TooLong, wait_after
from tests.harness.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_come_out_of_pieces_of_any_size(size: int) -> None:
    text = b': hello\n\nevent: state\r\ndata: {"a":\r\ndata: 1}\r\n\r\nevent: notice\ndata: {"id": "\xc3\xa9"}\n\n'
    parser, found = Parser(), []
    for start in range(0, len(text), size):
        found += parser.feed(text[start : start + size])
    assert found == [("state", {"a": 1}), ("notice", {"id": "é"})]


def test_what_is_no_event_is_passed_over_and_a_flood_ends_the_connection() -> None:
    parser = Parser()
    assert parser.feed(b"data: not json\n\ndata: [1]\n\nevent: state\n\n") == []
    with pytest.raises(TooLong):
        parser.feed(b"data: " + b"x" * LONGEST_EVENT)


def test_waits_grow_to_a_bound_and_differ() -> None:
    assert [wait_after(n, 0.999) for n in (0, 1, 2)] == pytest.approx([1, 2, 4], rel=0.01)
    assert wait_after(50, 0.999) <= LONGEST_WAIT_SECONDS
    assert wait_after(3, 0.0) == wait_after(3, 0.999999) / 2 or wait_after(3, 0.0) < wait_after(3, 0.9)


def test_a_shell_with_a_child_is_busy_and_one_without_is_not() -> None:
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0); p.wait(); input()"
    shell = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        until(lambda: activity.busy_terminals([shell.pid, None]) == 1, 30, "its child is seen")
        (child,) = activity.children_of(shell.pid)
        assert activity.left_behind(shell.pid, []) == 1 and activity.left_behind(shell.pid, [child]) == 0
        assert shell.stdin is not None
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        until(lambda: activity.busy_terminals([shell.pid]) == 0, 30, "its end is seen")
    finally:
        shell.communicate(b"\n", timeout=30)
    assert activity.busy_terminals([shell.pid]) == 0


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    assert activity.busy_terminals([7], tmp_path) is None
    assert activity.left_behind(7, [], tmp_path) is None
    assert activity.busy_terminals([8], tmp_path) == 0, "a process that is gone has no children"


def notebook(source: str, outputs: list[Any]) -> dict[str, Any]:
    cell = {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": len(outputs)}
    return {"type": "notebook", "content": {"cells": [cell]}}


def test_a_save_counts_by_what_a_person_wrote() -> None:
    saves = Saves()
    saves.saved("a.ipynb", notebook("1", []), NOW)
    saves.saved("a.ipynb", notebook("1", ["an output"]), NOW)
    assert saves.last is None, "outputs alone are a kernel's"
    saves.saved("a.ipynb", notebook("2", ["an output"]), NOW)
    assert saves.last == NOW
    other = Saves()
    other.saved("notes.txt", {"type": "file", "content": "x"}, NOW)
    assert other.last == NOW
