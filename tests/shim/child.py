"""A process that reads devices on command: the driver's library can only be chosen when a process starts.

One JSON object per line on standard input ({"do": "detect" | "read", ...}), one on standard output.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from spawner.nvml import ForeignModule, NvmlInventory
from spawner.ports import Unreachable

found: NvmlInventory | None = None


def detect(timeouts: dict[str, float]) -> dict[str, Any]:
    global found
    try:
        found = NvmlInventory.detect(**timeouts)
    except ForeignModule as error:
        return {"foreign": str(error)}
    return {"found": found is not None}


def read() -> dict[str, Any]:
    assert found is not None
    started = time.monotonic()
    answer = found.read()
    took = time.monotonic() - started
    threads = sum(thread.name.startswith("nvml-") for thread in threading.enumerate())
    told = {"why": answer.why} if isinstance(answer, Unreachable) else {"readings": [asdict(one) for one in answer]}
    return {**told, "took": took, "threads": threads}


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(detect(asked["timeouts"]) if asked["do"] == "detect" else read()), flush=True)
