"""Each measurement runs in a small form and finds what it promises; the figures belong to a quiet machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fire, history, idle_verdicts, kit_rest, reserve, snapshot


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def test_the_book_under_fire_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--seconds", "2", "--processes", "2", "--database", "sqlite", "--folder", str(tmp_path)]
    assert fire.main(words) == 0
    found = result(capsys)["sqlite"]
    assert found["operations_per_second"] > 0
    assert found["done"]["reserve"] > 0
    assert found["looks_of_the_observer"] > 0
    assert (found["errors"], found["violations_meanwhile"], found["violations_at_the_end"]) == ({}, [], [])


def test_what_the_observer_looks_for_it_finds(tmp_path: Path) -> None:
    from tests.fakes.book import open_desk

    with open_desk(tmp_path) as desk:
        desk.devices(1)
        desk.run(share=1000)
        assert fire.violations(desk.store) == []
        with desk.store.write() as connection:
            connection.exec_driver_sql("UPDATE slot SET share = 600")
            again = "SELECT lease_id, 9, host, device, 500 FROM slot"
            connection.exec_driver_sql(f"INSERT INTO slot (lease_id, number, host, device, share) {again}")
            connection.exec_driver_sql("UPDATE posting SET amount = amount + 1 WHERE leg = 0")
        found = fire.violations(desk.store)
    assert any("holds 1100" in words for words in found)
    assert any(words.startswith("postings sum to") for words in found)


def test_cost_as_history_grows_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--sizes", "100,600", "--rounds", "2", "--database", "sqlite", "--folder", str(tmp_path)]
    assert history.main(words) == 0
    found = result(capsys)["sqlite"]
    assert found["audit_findings"] == []
    assert all(each["ratio"] > 0 for name, each in found.items() if name != "audit_findings")


def test_reservations_a_second_in_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reserve", "--json", "--leases", "8", "--count", "6", "--processes", "2", "--folder", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    assert reserve.main() == 0
    found = result(capsys)
    assert (found["lost_updates"], found["audit_findings"]) == (0, 0)


def test_verdicts_beside_the_usual_culler_in_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert idle_verdicts.main(["--json", "--count", "21", "--seed", "5", "--every", "120"]) == 0
    found = result(capsys)
    ours, theirs = (found["all"][name] for name in ("ours", "jupyterhub-idle-culler"))
    assert ours["histories"] == theirs["histories"] == 21
    assert ours["busy_stopped"] == 0 < theirs["busy_stopped"], "theirs was really run"
    assert found["kinds"]["idle after work"]["jupyterhub-idle-culler"]["stopped"] == 1


def test_the_kit_at_rest_in_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit_rest, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(kit_rest, "TARGET_PERCENT", 1000)  # it has only just started
    assert kit_rest.main(["--json", "--seconds", "1", "--pairs", "1", "--folder", str(tmp_path)]) == 0
    found = result(capsys)
    assert found["with"]["rss_mib"] > 20 < found["without"]["rss_mib"], "a server and a kernel each"
    assert found["kit"]["rss_mib"] == round(found["with"]["rss_mib"] - found["without"]["rss_mib"], 3)


def test_variables_beside_dill_and_pickle_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot.main(["--json", "--mib", "8", "--rounds", "1", "--folder", str(tmp_path)]) == 0
    found = result(capsys)
    for space in snapshot.SPACES:
        assert {side for side, each in found[space].items() if each["equal"]} == {"ours", "pickle", "dill"}
        assert found[space]["ours"]["missing"] == [] and found[space]["ours"]["save_to_dill"] > 0
    assert found["refused"]["named"] and found["refused"]["left_kib"] < 64


def test_a_snapshot_that_does_not_keep_what_it_promises_is_seen() -> None:
    good = {"equal": True, "missing": [], "save_s": 1.0}
    found = {"refused": {"named": True, "left_kib": 6.0}, **{space: {"ours": good} for space in snapshot.SPACES}}
    assert snapshot.kept(found)
    for bad in ({"equal": False}, {"missing": ["big"]}, {"save_s": snapshot.TARGET_S + 1}):
        assert not snapshot.kept(found | {"arrays": {"ours": good | bad}})
    for bad in ({"named": False}, {"left_kib": 1025.0}):
        assert not snapshot.kept(found | {"refused": found["refused"] | bad})
