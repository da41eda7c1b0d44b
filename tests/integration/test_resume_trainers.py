"""Training programs on a real site: asked when their server is to stop, listed on the receipt, and going on where they
were; and a stop that a person takes back in the middle of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hub_config.compose import Parts
from tests.harness import Kernel, Person, Stack, until

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 2

[save]
grace = "75 s"
by_hand = "30 s"

[idle]
with_gpu = "8 s"
without_gpu = "2 h"
notice = "2 s"
check_every = "1 s"
"""
#: It goes on from its checkpoint, writes each step down, and waits without using the processor.
TRAINER = """
import os, time
from berth_lab import checkpoint
first = int(open("last.txt").read()) + 1 if os.path.exists("last.txt") else 0
def save():
    open("new.txt", "w").write(str(step))
    os.replace("new.txt", "last.txt")
    return "last.txt"
step = first
with checkpoint.register(save, "train.py") as point:
    while True:
        with open("steps.txt", "a") as log:
            log.write(f"{step}\\\\n")
        time.sleep(0.2)
        if ASKED:
            break
        step += 1
"""
BEGIN = """
import subprocess, sys
open("train.py", "w").write('''TRAINER''')
trainer = subprocess.Popen([sys.executable, "train.py"], stdout=subprocess.DEVNULL, stderr=open("errors.txt", "w"))
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("trainers") / "data", TOML) as stack:
        yield stack


def text(person: Person, path: str) -> str:
    """A file of the person's server; "" where there is none."""
    answer = person.notebook("GET", f"api/contents/{path}?type=file&format=text")
    return str(answer.json()["content"]) if answer.status_code == 200 else ""


def begin(person: Person, profile: str, deaf: bool = False) -> Kernel:
    """A server whose kernel has begun a training program; the kernel."""
    person.start(profile)
    kernel = Kernel(person)
    program = TRAINER.replace("ASKED", "False" if deaf else "point(step)")
    with kernel:
        kernel.run(BEGIN.replace("TRAINER", program), 60)
    return kernel


def steps(person: Person) -> list[int]:
    return [int(word) for word in text(person, "steps.txt").split()]


def of_kind(report: dict[str, Any], name: str, kind: str) -> list[dict[str, Any]]:
    return [row for row in report[name] if row["kind"] == kind]


def test_i24_a_training_that_is_stopped_loses_no_step_and_goes_on(stack: Stack, made: Parts) -> None:
    person = stack.add("ada")
    begin(person, "cpu")
    lease = str(person.lease()["id"])
    until(lambda: len(steps(person)) >= 5, 60, "it trains")
    until(lambda: made.rows.signals(lease).get("kit", (None, {}))[1].get("kernels"), 30, "the kit has told of it")
    person.stop(seconds=90)
    person.settled(lease)
    farewell = made.farewells.of(lease)
    assert farewell is not None and farewell.done_at is not None
    (saved,) = of_kind(farewell.report, "saved", "checkpoint")
    assert (saved["what"], saved["path"]) == ("train.py", "last.txt"), farewell.report
    page = person.browser.get(f"/services/berth/lease/{lease}").text
    assert re.search(r"Checkpoint.{0,200}train\.py", page, re.S), page
    begin(person, "cpu")
    until(lambda: len(steps(person)) > saved["count"] + 3, 60, "it trains on")
    seen = steps(person)
    assert seen == list(range(len(seen))), "no step was done twice, none left out"
    person.stop(seconds=90)


def test_i24_code_that_is_run_at_the_last_moment_keeps_an_idle_server(stack: Stack, made: Parts) -> None:
    """Its program is deaf, so that the kit waits for it and there is time."""
    person = stack.add("eve")
    kernel = begin(person, "gpu-1-8", deaf=True)
    lease = str(person.lease()["id"])
    until(lambda: made.farewells.of(lease) is not None, 120, "its kit has begun to save")
    assert person.lease(lease)["target"] == "STOP"
    with kernel:
        kernel.run("1")
    until(lambda: person.lease(lease)["target"] == "RUN", 30, "the stop is taken back")
    assert made.farewells.of(lease) is None and person.ready()
    kinds = [each.kind for each in made.rows.events(lease)]
    assert "stop-cancelled" in kinds, kinds
    with kernel:
        assert kernel.run("print('still here')", 60) == "still here\n"
    person.stop(seconds=120)
    farewell = made.farewells.of(lease)
    assert farewell is not None and farewell.done_at is not None, farewell
    lost = [(row["what"], row["code"]) for row in of_kind(farewell.report, "lost", "checkpoint")]
    assert lost == [("train.py", "no-checkpoint")], farewell.report
