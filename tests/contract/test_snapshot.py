"""A notebook's variables over the end of a real kernel: what comes back equal, and what is said of the rest."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from berth_lab.serialize_refusals import WHY
from tests.contract.snapshot_cases import CASES, Case
from tests.harness.own_kernel import own_kernel


class Crossing:
    """All cases in one kernel, saved at once, and in the next one."""

    def __init__(self, folder: Path) -> None:
        self.there = [case for case in CASES if not case.needs or find_spec(case.needs)]
        home, snapshot = folder / "home", folder / "snapshot"
        home.mkdir()
        with own_kernel(home) as kernel:
            for case in self.there:
                kernel.run(case.cell)
            self.report = kernel.save(snapshot)
        with own_kernel(home) as kernel:
            self.restored = kernel.load(snapshot)
            self.held = kernel.values({case.name: f"bool({case.holds})" for case in self.there if case.holds})
        self.lost = {row["name"]: row for row in self.report["lost"]}


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Crossing:
    return Crossing(tmp_path_factory.mktemp("crossing"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_comes_back_is_equal_and_what_cannot_is_refused_by_name(crossing: Crossing, case: Case) -> None:
    if case not in crossing.there:
        pytest.skip(f"{case.needs} is not installed")
    row = crossing.lost.get(case.name)
    if case.code:
        assert row is not None and (row["code"], row["why"]) == (case.code, WHY[case.code]), row
        return
    assert row is None, row
    assert crossing.held[case.name] == "True"


def test_the_report_has_every_variable_once(crossing: Crossing) -> None:
    saved, lost = ([row["name"] for row in crossing.report[kind]] for kind in ("saved", "lost"))
    assert not set(saved) & set(lost) and len(saved + lost) == len(set(saved + lost))
    assert {case.name for case in crossing.there} <= set(saved + lost)
    assert crossing.restored["lost"] == []
    assert {row["name"] for row in crossing.restored["saved"]} == set(saved)
