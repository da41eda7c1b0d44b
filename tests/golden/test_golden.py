"""The verdicts held against histories whose truth is known, and the histories held against verdicts that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from idle_culler.decide import Policy
from tests.golden.generate import COUNT, SEED, History, Row, histories, history, main
from tests.golden.replay import GRACE, Outcome, judged
from tests.golden.workloads import KINDS

POLICY = Policy()
#: Kinds in which something is unknown for longer, so that the server is kept: that is the promise, and has its price.
UNSEEN = {"crash of the kit", "blind NVML", "sampling gaps"}
#: Shown to administrators, never stopped by itself.
ON_PURPOSE = {"keep-busy tool"}
#: A kit whose clock is ahead says "just now" until its time has come.
LATE_BY_SKEW = 60


@pytest.fixture(scope="module")
def corpus() -> list[History]:
    return list(histories(SEED, COUNT))


@pytest.fixture(scope="module")
def outcomes(corpus: list[History]) -> list[Outcome]:
    return [judged(each, POLICY) for each in corpus]


def test_the_corpus_is_as_large_and_as_manifold_as_promised(corpus: list[History]) -> None:
    assert len(corpus) >= 200
    kinds = {each.kind for each in corpus}
    assert len(kinds) == len(KINDS) >= 12
    labels = [label for each in corpus for label in each.labels]
    assert set(labels) == {"working", "idle", "asleep"}
    assert min(labels.count("working"), labels.count("idle")) > len(labels) / 4
    assert {row.source for row in corpus[1].rows} == {"kit", "host", "gpu", "hub"}


def test_a_seed_makes_the_same_histories_and_another_seed_others() -> None:
    assert asdict(history(7, 3)) == asdict(history(7, 3))
    assert history(7, 3).rows != history(8, 3).rows


def test_i01_no_busy_session_is_stopped(outcomes: list[Outcome]) -> None:
    assert [each for each in outcomes if each.busy] == []


@pytest.mark.parametrize("seed", [2, 3])
def test_i01_nor_with_other_seeds_and_shorter_limits(seed: int) -> None:
    short = Policy(idle_gpu=900, idle_cpu=1200, notice=120)
    assert [each for each in (judged(made, short) for made in histories(seed, 42)) if each.busy] == []


def test_idle_minutes_beyond_the_policy_are_few_where_all_is_known(outcomes: list[Outcome]) -> None:
    for each in outcomes:
        if each.kind not in UNSEEN | ON_PURPOSE:
            assert each.beyond <= GRACE + (LATE_BY_SKEW if each.kind == "clock skew" else 0), each
    known = [each for each in outcomes if each.kind not in UNSEEN | ON_PURPOSE | {"clock skew"}]
    assert sum(each.beyond for each in known) < 0.03 * sum(each.idle for each in known)


def test_i07_who_is_kept_for_want_of_knowledge_is_called_blind(outcomes: list[Outcome]) -> None:
    late = [each for each in outcomes if each.kind in UNSEEN and each.beyond > GRACE]
    assert late and all(each.blind >= (each.beyond - GRACE) / 2 for each in late)


def test_i17_what_keeps_a_gpu_busy_is_not_stopped(outcomes: list[Outcome]) -> None:
    assert {each.stopped for each in outcomes if each.kind in ON_PURPOSE} == {None}


# ---- the corpus has teeth ------------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], dict[str, Any]]


def no_busy_kernels(payload: dict[str, Any]) -> dict[str, Any]:
    quiet = [{**kernel, "busy": False, "last_execute_at": None} for kernel in payload["kernels"]]
    return {**payload, "kernels": quiet}


def no_io(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if not name.startswith("io_")}


def no_cpu(payload: dict[str, Any]) -> dict[str, Any]:
    return {**no_io(payload), "cpu_percent": 0.0, "cpu_active_at": None}


def unknown_is_zero(payload: dict[str, Any]) -> dict[str, Any]:
    return payload if payload["util"] is not None else {**payload, "util": 0, "active_at": None}


def nothing_computes(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "util": 0, "active_at": None}


@pytest.mark.parametrize(
    ("source", "change", "kind"),
    [
        ("kit", no_busy_kernels, "silent long cell"),
        ("host", no_io, "nohup download"),
        ("host", no_cpu, "IDE without kernels"),
        ("gpu", nothing_computes, "two devices at 0 and 95 %"),
        ("gpu", nothing_computes, "training on a share"),
        ("gpu", unknown_is_zero, "blind NVML"),
    ],
)
def test_a_culler_that_is_blind_to_one_thing_stops_somebody_at_work(
    corpus: list[History], source: str, change: Change, kind: str
) -> None:
    made = [each for each in corpus if each.kind == kind]
    assert any(judged(_altered(each, source, change), POLICY).busy for each in made)


def test_i07_a_culler_that_takes_old_reports_for_new_stops_somebody_at_work(corpus: list[History]) -> None:
    """The kit's last words before it crashed, said again and again as if the cell had ended."""
    crashed = [each for each in corpus if each.kind == "crash of the kit"]
    assert any(judged(_repeated(each), POLICY).busy for each in crashed)


def _altered(made: History, source: str, change: Change) -> History:
    rows = (replace(row, payload=change(row.payload)) if row.source == source else row for row in made.rows)
    return replace(made, rows=tuple(rows))


def _repeated(made: History) -> History:
    last = next(row for row in made.rows if row.source == "kit")
    silent = [row for row in made.rows if row.source != "kit"]
    again = [Row(at, "kit", no_busy_kernels(last.payload)) for at in range(0, int(made.seconds), 60)]
    return replace(made, rows=tuple(sorted([*silent, *again], key=lambda row: row.at)))


def test_the_command_writes_what_it_makes(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4", "--count", "2", "--out", str(tmp_path / "corpus.jsonl")]) == 0
    assert len((tmp_path / "corpus.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    assert '"seed": 4' in capsys.readouterr().out
