"""What is kept of a cell's outputs, and which cell of a notebook gets them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import nbformat
import pytest

from berth_lab.notebooks import STAMP, Stamp, merged
from berth_lab.outputs import MOST_CELLS, MOST_SHOWN, MOST_STREAM, Cell, Cells, overwritten

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMPED = Stamp("l1", "idle", "2026-01-01T00:00:00Z", "berth_lab 0.1.0")


def printed(cell: Cell) -> str:
    return "".join(o["text"] for o in cell.outputs() if o["output_type"] == "stream")


def cell(source: str = "x", name: str = "c0") -> Cell:
    return Cell("r", name, source, NOW)


def shows(text: str) -> dict[str, Any]:
    return {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": "d"}}


@pytest.mark.parametrize(
    ("line", "shown"), [("abc\rde", "dec"), ("10 %\r100 %", "100 %"), ("a\r", "a"), ("", ""), ("x\r\ry", "y")]
)
def test_a_line_reads_as_a_terminal_shows_it(line: str, shown: str) -> None:
    assert overwritten(line) == shown


def test_streams_in_a_row_are_one_and_turns_are_kept() -> None:
    made = cell()
    for name, text in (("stdout", "a\n"), ("stdout", "b"), ("stderr", "!"), ("stdout", "c")):
        made.message("stream", {"name": name, "text": text})
    assert [(o["name"], o["text"]) for o in made.outputs()] == [("stdout", "a\nb"), ("stderr", "!"), ("stdout", "c")]


def test_of_a_long_stream_the_beginning_and_the_newest_are_kept_and_it_says_so() -> None:
    made = cell()
    for n in range(300_000):
        made.message("stream", {"name": "stdout", "text": f"line {n}\n"})
    text = printed(made)
    assert made.truncated and made.size <= MOST_STREAM + 1000
    assert text.startswith("line 0\nline 1\n") and text.endswith("line 299999\n")
    assert "characters were not kept by Berth" in text


def test_a_progress_bar_of_hours_takes_no_room() -> None:
    made = cell()
    for n in range(100_000):
        made.message("stream", {"name": "stderr", "text": f"\r{n:7} of 100000"})
    assert printed(made) == "  99999 of 100000" and not made.truncated


def test_pictures_beyond_the_bound_are_counted_not_kept() -> None:
    made = cell()
    for _ in range(3):
        made.message("display_data", {"data": {"image/png": "x" * (MOST_SHOWN // 2)}, "metadata": {}})
    assert len(made.outputs()) == 3 and "1 more did not fit" in printed(made)


def test_an_output_is_cleared_at_once_or_by_the_next() -> None:
    made = cell()
    made.message("stream", {"name": "stdout", "text": "a"})
    made.message("clear_output", {"wait": True})
    assert printed(made) == "a"
    made.message("stream", {"name": "stdout", "text": "b"})
    assert printed(made) == "b"
    made.message("clear_output", {"wait": False})
    assert made.outputs() == []


def test_a_display_of_another_cell_is_updated_there() -> None:
    cells = Cells()
    cells.begin("r1", "c1", "1", NOW)
    cells.begin("r2", "c2", "2", NOW)
    cells.message("display_data", "r1", shows("first"), NOW)
    cells.message("update_display_data", "r2", shows("second"), NOW)
    assert cells.by_request["r1"].outputs()[0]["data"] == {"text/plain": "second"}
    assert cells.by_request["r2"].outputs() == []


def test_whose_browser_saw_the_end_writes_itself() -> None:
    cells = Cells()
    for n, asker in (("r1", "here"), ("r2", "gone")):
        cells.begin(n, n, "x", NOW, asker)
        cells.message("stream", n, {"name": "stdout", "text": "a"}, NOW, {"here"})
        cells.message("status", n, {"execution_state": "idle"}, NOW, {"here"})
    assert [c.request for c in cells.unwritten({"here"})] == ["r2"]
    assert len(cells.unwritten(seen=True)) == 2
    cells.saved_by_browser(NOW)
    assert [c.request for c in cells.unwritten(seen=True)] == ["r2"], "what a browser saved is forgotten"


def test_a_kernel_that_began_again_ends_what_ran_and_memory_is_bounded() -> None:
    cells = Cells()
    cells.begin("r", "c", "x", NOW)
    cells.kernel_began_again(NOW)
    assert cells.running() == [] and len(cells.unwritten()) == 1
    for n in range(MOST_CELLS + 10):
        cells.begin(f"q{n}", f"d{n}", "x", NOW)
    assert len(cells.by_request) <= MOST_CELLS


def a_notebook() -> dict[str, Any]:
    made: dict[str, Any] = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[
            nbformat.v4.new_code_cell("x", id="c0"),  # type: ignore[no-untyped-call]
            nbformat.v4.new_code_cell("y", id="c1"),  # type: ignore[no-untyped-call]
            nbformat.v4.new_markdown_cell("x", id="c2"),  # type: ignore[no-untyped-call]
        ]
    )
    return made


def test_only_the_cell_of_this_id_and_source_is_touched_and_the_notebook_stays_valid() -> None:
    made = cell()
    made.message("execute_input", {"execution_count": 7})
    made.message("stream", {"name": "stdout", "text": "a\n"})
    made.message("error", {"ename": "E", "evalue": "v", "traceback": ["t"]})
    before = a_notebook()
    untouched = copy.deepcopy(before)
    result = merged(before, [made, cell("other"), cell("x", "c9")], STAMPED)
    assert before == untouched and result.cells == (made,) and len(result.elsewhere) == 2
    assert result.notebook["cells"][1:] == untouched["cells"][1:]
    assert result.notebook["cells"][0]["execution_count"] == 7
    assert result.notebook["metadata"][STAMP] == STAMPED.value()
    nbformat.validate(nbformat.from_dict(result.notebook))  # type: ignore[no-untyped-call]


def test_an_old_notebook_without_ids_is_matched_by_a_source_that_is_there_once() -> None:
    old = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": []}
    old["cells"] = [{"cell_type": "code", "source": ["x\n", "y"], "outputs": []}]
    assert len(merged(old, [cell("x\ny")]).cells) == 1
    old["cells"] = [*old["cells"], {"cell_type": "code", "source": "x\ny", "outputs": []}]
    assert merged(old, [cell("x\ny")]).cells == ()
