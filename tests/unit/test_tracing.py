"""Ids of requests: which are taken from outside, and how far they reach."""

from __future__ import annotations

import asyncio

import pytest

from quota import tracing
from quota.vitals import Vitals, done_at, from_note, to_note
from spawner.threads import in_thread


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 64])
async def test_a_good_id_is_taken_as_it_is(given: str) -> None:
    assert tracing.begin(given) == given
    assert tracing.request_id() == given
    assert tracing.outgoing() == {"X-Request-Id": given}


@pytest.mark.parametrize("given", [None, "", "x" * 65, "a b", "a\nb", "a\n", "ä", 'a"b', "a,b", "../x"])
async def test_another_is_replaced(given: str | None) -> None:
    made = tracing.begin(given)
    assert made != given
    assert len(made) == 32
    assert tracing.begin(given) != made


async def test_it_reaches_tasks_and_threads_and_nobody_else() -> None:
    async def work(name: str) -> tuple[str, str]:
        tracing.begin(name)
        tracing.bind(lease=f"l-{name}")
        await asyncio.sleep(0)
        return await in_thread(tracing.request_id), (await in_thread(tracing.facts))["lease"]

    found = await asyncio.gather(*(asyncio.create_task(work(f"r{number}")) for number in range(5)))
    assert found == [(f"r{number}", f"l-r{number}") for number in range(5)]


async def test_a_new_request_forgets_what_was_bound_before() -> None:
    tracing.begin("one")
    tracing.bind(lease="l1")
    tracing.begin("two")
    assert tracing.facts() == {"request_id": "two"}


def test_outside_of_any_request_nothing_is_sent() -> None:
    assert tracing.outgoing() == {}


# ---- what processes say of themselves ------------------------------------------------------------------------------


def test_vitals_survive_the_note_and_unknown_stays_unknown() -> None:
    vitals = from_note(to_note(Vitals("ok", None, {"cycles": 3}, {"blind_devices": 0.0})))
    assert vitals == Vitals("ok", None, {"cycles": 3}, {"blind_devices": 0.0})
    assert "errors" not in vitals.counts


@pytest.mark.parametrize("note", ["", "ok; last cycle: none", "[]", '{"words": 5}', "3", '"x"', "{"])
def test_a_note_of_another_form_is_words_and_no_numbers(note: str) -> None:
    assert from_note(note) == Vitals(note)


def test_odd_numbers_in_a_note_are_left_out() -> None:
    vitals = from_note(
        '{"words": "x", "last_success": "2026-01-01", "counts": {"a": "1", "b": true, "c": 2}, "gauges": 4}'
    )
    assert vitals == Vitals("x", None, {"c": 2}, {})


@pytest.mark.parametrize("text", [None, "", "x", "{}", "[]", '{"at": "2026-01-01T00:00:00"}', '{"at": 5}'])
def test_what_was_never_done_has_no_time(text: str | None) -> None:
    assert done_at(text) is None
