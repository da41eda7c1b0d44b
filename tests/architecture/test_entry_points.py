"""Every name by which others reach us loads."""

from __future__ import annotations

from importlib.metadata import EntryPoint, distribution

import pytest
from jupyterhub.spawner import Spawner

POINTS = sorted(distribution("berth").entry_points, key=lambda point: (point.group, point.name))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.group}:{point.name}")
def test_every_entry_point_loads(point: EntryPoint) -> None:
    assert callable(point.load())


def test_the_promised_entry_points_are_there() -> None:
    names = {(point.group, point.name) for point in POINTS}
    assert names >= {("console_scripts", "berth"), ("jupyterhub.spawners", "berth-local")}


def test_the_spawner_is_one() -> None:
    (point,) = (point for point in POINTS if point.name == "berth-local")
    assert issubclass(point.load(), Spawner)
