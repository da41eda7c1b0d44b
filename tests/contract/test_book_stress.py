"""Several processes do everything at once: nothing is given away twice, no credit is lost, nobody meets a deadlock."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from quota.bank import Defaults
from quota.groups import kind_of
from quota.units import MicroCredits
from tests.contract.stress import DEVICES, GROUPS, USERS, work
from tests.fakes.book import open_desk, weights


def test_p03_x07_everything_at_once(tmp_path: Path, database: str, deep: bool, request: pytest.FixtureRequest) -> None:
    processes, seconds = (8, 60.0) if deep else (4, 5.0)
    with open_desk(tmp_path, defaults=Defaults(monthly_grant=MicroCredits(2_000_000))) as desk:
        desk.devices(DEVICES)
        for name in (*USERS[:2], *GROUPS, *USERS[2:]):  # groups before and behind who names them
            desk.bank.ensure_account(name, kind_of(name))
        for group in GROUPS:
            desk.bank.grant(group, 3_000_000, "admin")
        url = desk.store.url.render_as_string(hide_password=False)
        outcomes: Counter[str] = Counter()
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for part in [pool.submit(work, url, seed, seconds) for seed in range(processes)]:
                outcomes += part.result(seconds + 120)
        print(f"{database}: {outcomes.total() / seconds:.0f} operations a second by {processes} processes: {outcomes}")
        assert outcomes["done"] > 20
        assert all(share <= 1000 for share in weights(desk.book.live()).values())
        assert desk.bank.audit() == []
        if database == "postgresql":
            name = desk.store.url.database
            assert name is not None
            assert request.getfixturevalue("cluster").deadlocks(name) == 0
