"""A machine with an NVIDIA driver, as far as a test needs one: a scenario file, and a process that reads it through
the real pynvml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from spawner.ports import GpuReading, Unreachable

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("child.py")


class Driver:
    """An `Inventory` whose `NvmlInventory` lives in another process, over the shim in `library` (None: no driver).

    `scenario` takes lines as the shim reads them. After a read, `took` is its duration in seconds and `threads` the
    number of threads that the inventory has in the other process.
    """

    simulated = False

    def __init__(
        self,
        folder: Path,
        library: Path | None,
        *lines: str,
        path: Path | None = None,
        device_timeout_s: float = 5.0,
        driver_timeout_s: float = 30.0,
    ) -> None:
        self._scenario = folder / "scenario"
        self._timeouts = {"device_timeout_s": device_timeout_s, "driver_timeout_s": driver_timeout_s}
        self.took, self.threads = 0.0, 0
        self.scenario(*lines)
        env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        env["PYTHONPATH"] = os.pathsep.join(str(part) for part in (path, ROOT) if part is not None)
        env["BERTH_NVML_SCENARIO"] = str(self._scenario)
        if library is not None:
            env["LD_LIBRARY_PATH"] = str(library)
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=folder
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def scenario(self, *lines: str) -> None:
        """Change the world: the shim reads the file at every call, so it is replaced as a whole."""
        new = self._scenario.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new.replace(self._scenario)

    def detect(self) -> bool:
        """Whether an inventory was found; raises `RuntimeError` with the words about a foreign pynvml."""
        answer = self._ask({"do": "detect", "timeouts": self._timeouts})
        if "foreign" in answer:
            raise RuntimeError(answer["foreign"])
        return bool(answer["found"])

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        answer = self._ask({"do": "read"})
        self.took, self.threads = answer["took"], answer["threads"]
        if "why" in answer:
            return Unreachable(answer["why"])
        return tuple(GpuReading(**reading) for reading in answer["readings"])

    def devices(self) -> tuple[GpuReading, ...]:
        """A read that must succeed."""
        answer = self.read()
        assert not isinstance(answer, Unreachable), answer.why
        return answer

    def unreachable(self) -> str:
        """The words of a read that must fail."""
        answer = self.read()
        assert isinstance(answer, Unreachable), answer
        return answer.why

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the reading process ended with {self._process.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer
