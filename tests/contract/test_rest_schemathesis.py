"""Schemathesis against the real service, with a real book and a fake Hub: no 5xx, and no answer that the document does
not tell.

Its command line runs in a process of its own: its pytest plugin would bring markers and warnings of its own into this
suite (setup.cfg switches it off). Each caller has a book with something in it, a fixed seed and a bounded number of
examples; `--deep` is the long form.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service

#: The first is replaced by a sharper one of ours (`rest_checks`), which knows what JSON Schema cannot say. The second
#: takes DELETE for the end of what has the address; here it stops a server, and the lease stays as a record.
LEFT_OUT = "positive_data_acceptance,use_after_free"
#: Who asks: examples for each operation, and the phases that say something about this caller.
CALLERS = {
    "admin": (10, "examples,coverage,fuzzing,stateful"),
    "researcher": (6, "fuzzing,stateful"),
    "nobody": (3, "fuzzing"),
    "kit": (8, "fuzzing"),
}
DEEP = 300
#: A wrong body may also be too large, which its own list of refusals leaves out.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429"]
"""


def fill(desk: Desk) -> None:
    """Leases of three people in several states, money that was given, refunded and spent."""
    desk.devices(2)
    refunded = desk.session(3600, profile="test")
    desk.bank.refund(refunded.id, 1000, by="boss", note="a test")
    desk.session(10, "bob", profile="test")
    desk.run(profile="test")
    stopping = desk.run("bob", "two", profile="test")
    desk.book.acknowledge(desk.end(stopping).id, "boot-1")
    desk.reserve("carol", profile="test")
    desk.bank.grant("alice", 5_000_000, by="boss", note="with “words”")


def token_of(service: Service, caller: str) -> str:
    alice, boss = service.hub.add_user("alice"), service.hub.add_user("boss", admin=True)
    for name in ("bob", "carol"):
        service.hub.add_user(name)
    return {"admin": boss, "researcher": alice, "nobody": "", "kit": service.hub.server_token("alice")}[caller]


async def schemathesis(service: Service, token: str, examples: int, phases: str, folder: Path) -> tuple[int, str]:
    """Run its command line; its exit status and what it said."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += ["--config-file", "schemathesis.toml", "run"]
    command += [f"{service.url}{PREFIX}api/v1/openapi.json", "--phases", phases, "-n", str(examples)]
    command += ["--checks", "all", "--exclude-checks", LEFT_OUT, "--seed", "3", "--continue-on-failure", "--no-shrink"]
    if token:
        command += ["-H", f"Authorization: Bearer {token}"]
    more = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.contract.rest_checks", "NO_PROXY": "127.0.0.1"}
    running = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **more},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    lines = said.decode(errors="replace").splitlines()
    return running.returncode or 0, "\n".join(line[:600] for line in lines)  # bodies may be long


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("caller", CALLERS)
async def test_no_5xx_and_no_undeclared_answer(
    tmp_path: Path, caller: str, deep: bool, caplog: pytest.LogCaptureFixture
) -> None:
    examples, phases = CALLERS[caller]
    with open_desk(tmp_path) as desk:
        fill(desk)
        async with open_service(desk) as service:
            token = token_of(service, caller)
            service.parts.reports.burst = 10**9  # this clock stands still, so that no token would ever come back
            with caplog.at_level(logging.ERROR):
                status, said = await schemathesis(service, token, DEEP if deep else examples, phases, tmp_path)
        assert status == 0, said
        assert " 0 generated" not in said and "generated" in said, said
        faults = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert faults == []
        assert desk.bank.audit() == []
