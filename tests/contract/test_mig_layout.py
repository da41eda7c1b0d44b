"""Making a layout through the real pynvml over the shim, in a process of its own, and reading it as the agent does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.driver import Driver

Make = Callable[..., Driver]

PROGRAM = """
import json, sys
import pynvml
from spawner import mig
from spawner.nvml_mig import MigCard

pynvml.nvmlInit()
card = MigCard(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
told = {}
try:
    wanted, fixed = mig.parse(sys.argv[1]) if sys.argv[1] else ((), mig.EMPTY)
    profiles = card.profiles()
    told["profiles"] = {
        name: [each.compute, each.memory, each.starts, each.memory_mib] for name, each in profiles.items()
    }
    change = card.become(mig.plan(wanted, profiles, fixed) if profiles else fixed)
    told["done"] = [list(map(str, change.destroy)), list(map(str, change.create))]
except mig.MigRefused as refused:
    told["refused"] = str(refused)
told["present"] = mig.show(card.present())
told["complete"] = card.complete()
print(json.dumps(told))
"""


def become(machine: Driver, layout: str) -> dict[str, object]:
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, layout],
        env={**machine.env, "PYTHONPATH": root},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_a_layout_is_made_and_read_and_what_stays_keeps_its_uuid(driver: Make) -> None:
    machine = driver(name="mig-layout")
    told = become(machine, "3g.20gb,2g.10gb,2g.10gb")
    profiles = told["profiles"]
    assert isinstance(profiles, dict)
    assert profiles["2g.10gb"] == [2, 2, [0, 2, 4], 9856]
    assert (told["present"], told["complete"]) == ("3g.20gb@4,2g.10gb@2,2g.10gb@0", True)
    before = {reading.uuid: reading for reading in machine.devices()}
    assert list(before) == [
        "GPU-0000000a",
        *(f"GPU-0000000a:{part}" for part in ("2g.10gb:0", "2g.10gb:2", "3g.20gb:4")),
    ]
    told = become(machine, "4g.20gb,3g.20gb")
    assert told["done"] == [["2g.10gb@2", "2g.10gb@0"], ["4g.20gb@0"]]
    after = {reading.uuid: reading for reading in machine.devices()}
    assert list(after) == ["GPU-0000000a", "GPU-0000000a:3g.20gb:4", "GPU-0000000a:4g.20gb:0"]
    kept = "GPU-0000000a:3g.20gb:4"
    assert after[kept].part == before[kept].part
    assert become(machine, "4g.20gb,3g.20gb")["done"] == [[], []], "nothing is done twice"
    assert become(machine, "")["present"] == ""


def test_a_layout_is_gone_after_a_reboot_and_is_made_again(driver: Make) -> None:
    machine = driver(name="mig-layout")
    become(machine, "3g.20gb@0,1g.5gb@6")
    first = {reading.uuid: reading.part for reading in machine.devices() if reading.part}
    machine.reboot("rebooted")
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0000000a", "GPU-0000000a:1g.5gb:6"]
    told = become(machine, "3g.20gb@0,1g.5gb@6")
    assert (told["done"], told["complete"]) == ([[], []], True), "a part that was half made is completed"
    again = {reading.uuid: reading.part for reading in machine.devices() if reading.part}
    assert set(again) == set(first)
    name = "GPU-0000000a:1g.5gb:6"
    left, right = first[name], again[name]
    assert left and right and left.mig_uuid != right.mig_uuid


def test_a_part_in_use_is_not_taken_away(driver: Make) -> None:
    machine = driver(name="mig-layout")
    machine.stage("rebooted")
    told = become(machine, "3g.20gb@4")
    assert told["refused"] == (
        "1g.5gb@6 cannot be removed: a program still uses it: end the servers and programs on this card first"
    )
    assert "1g.5gb@6" in str(told["present"])


@pytest.mark.parametrize(
    ("stage", "layout", "words"),
    [
        ("empty", "1g.12gb", "no MIG profile 1g.12gb"),
        ("empty", "4g.20gb,4g.20gb", "do not fit on one card"),
        ("waits for a reset", "1g.5gb@0", "next reset"),
        ("off", "1g.5gb@0", "nvidia-smi -mig 1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(driver: Make, stage: str, layout: str, words: str) -> None:
    machine = driver(name="mig-layout")
    machine.stage(stage)
    told = become(machine, layout)
    assert words in str(told["refused"])
    assert told["present"] == ""


def test_without_rights_nothing_is_done_and_it_is_said(driver: Make) -> None:
    text = (Path(__file__).parents[1] / "shim/scenarios/mig-layout.scenario").read_text(encoding="utf-8")
    only = text.partition("[empty]\n")[2].partition("[rebooted]")[0]
    machine = driver(only, "fail nvmlDeviceCreateGpuInstanceWithPlacement NO_PERMISSION")
    assert become(machine, "3g.20gb")["refused"] == "3g.20gb@4 cannot be made: only root may do this"
