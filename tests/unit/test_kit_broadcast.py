"""What the kit says to open browsers: bounded, in order, and what is the case is told to whoever comes late."""

from __future__ import annotations

import asyncio

from berth_lab.broadcast import MOST_KINDS, MOST_LISTENERS, MOST_WAITING, Broadcast


def names(queue: asyncio.Queue[dict[str, object] | None]) -> list[object]:
    return [event and event["event"] for event in (queue.get_nowait() for _ in range(queue.qsize()))]


def test_who_comes_late_is_told_what_is_the_case() -> None:
    said = Broadcast()
    said.publish("state", {"n": 1})
    said.publish("notice", {"words": "gone by"})
    said.publish("state", {"n": 2})
    said.publish("resume", {"token": "t"})
    queue = said.subscribe()
    assert queue.get_nowait() == {"event": "state", "data": {"n": 2}}
    assert names(queue) == ["resume"]
    said.forget("resume")
    assert said.last("resume") is None and names(said.subscribe()) == ["state"]


def test_a_slow_listener_loses_old_states_before_notices() -> None:
    said = Broadcast()
    queue = said.subscribe()
    said.publish("notice", {"id": 0})
    for n in range(MOST_WAITING * 3):
        said.publish("state", {"n": n})
    said.publish("notice", {"id": 1})
    assert queue.qsize() == MOST_WAITING
    events = [queue.get_nowait() for _ in range(MOST_WAITING)]
    assert events[0] == {"event": "notice", "data": {"id": 0}} and events[-1] == {"event": "notice", "data": {"id": 1}}
    assert events[-2] == {"event": "state", "data": {"n": MOST_WAITING * 3 - 1}}


def test_notices_alone_are_bounded_too() -> None:
    said = Broadcast()
    queue = said.subscribe()
    for n in range(MOST_WAITING + 5):
        said.publish("notice", {"id": n})
    first = queue.get_nowait()
    assert first and first["data"] == {"id": 5} and queue.qsize() == MOST_WAITING - 1


def test_one_listener_too_many_ends_the_oldest() -> None:
    said = Broadcast()
    queues = [said.subscribe() for _ in range(MOST_LISTENERS + 1)]
    assert len(said) == MOST_LISTENERS
    assert names(queues[0]) == [None]
    said.publish("notice", {})
    assert names(queues[0]) == [] and names(queues[1]) == ["notice"]
    said.unsubscribe(queues[1])
    said.unsubscribe(queues[1])
    assert len(said) == MOST_LISTENERS - 1 and names(queues[2]) == ["notice"]


def test_a_notice_that_lasts_is_told_to_who_comes_later_and_others_are_not() -> None:
    said = Broadcast()
    said.publish("notice", {"id": "a"})
    assert names(said.subscribe()) == []
    said.publish("notice", {"id": "b"}, lasts=True)
    said.publish("state", {})
    assert names(said.subscribe()) == ["state", "notice"]


def test_of_notices_that_last_the_newest_of_each_kind_is_told_and_kinds_are_bounded() -> None:
    said = Broadcast()
    for number, kind in enumerate(("idle-warning", "credit-low", "idle-warning")):
        said.publish("notice", {"id": number, "kind": kind}, lasts=True)
    queue = said.subscribe()
    assert [queue.get_nowait()["data"]["id"] for _ in range(queue.qsize())] == [1, 2]  # type: ignore[index]
    for number in range(MOST_KINDS + 3):
        said.publish("notice", {"id": number, "kind": f"kind-{number}"}, lasts=True)
    assert said.subscribe().qsize() == MOST_KINDS
