"""The measurements that start a platform, in a small form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cull_cycle, idle, scale

pytestmark = pytest.mark.hub


@pytest.fixture(autouse=True)
def long_form(deep: bool) -> None:
    if not deep:
        pytest.skip("starts three platforms for what the product's own tests show as well: --deep")


def test_a_platform_at_rest_in_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(idle, "TARGET_PERCENT", 1000)  # it has only just started
    assert idle.main(["--json", "--seconds", "1", "--servers", "1", "--folder", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["0 servers"]["user servers"]["rss_mib"] == 0 < found["1 servers"]["user servers"]["rss_mib"]
    assert all(found["1 servers"][part]["pss_mib"] > 0 for part in idle.PARTS)


def test_a_full_house_in_small(tmp_path: Path) -> None:
    found = scale.house(tmp_path / "house", scale.TOML, leases=12, users=7, rounds=2)
    assert set(found) == {*(f"GET {path}" for path in scale.REST), *scale.PAGES}
    assert all(each["p50_ms"] > 0 and each["kib"] > 0 for each in found.values())


def test_a_cycle_of_both_cullers_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--users", "30", "--servers", "12", "--cycles", "2", "--folder", str(tmp_path)]
    assert cull_cycle.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[side]["servers"] for side in cull_cycle.SIDES] == [12, 12], "both looked at every server"
    assert all(found[side]["worst_s"] >= found[side]["median_s"] > 0 for side in cull_cycle.SIDES)
