"""A machine with an NVIDIA driver, as far as a test needs one: a scenario, and the product's own inventory over it. It
reads through the real pynvml in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from spawner.nvml_process import NvmlProcess
from spawner.ports import GpuReading, Unreachable

#: Scenarios that more than one test plays; scenario.h tells how they are written.
SCENARIOS = Path(__file__).with_name("scenarios")


def scenario_path(name: str) -> Path:
    """The file of a scenario of the library."""
    return SCENARIOS / f"{name}.scenario"


def stages(name: str) -> list[str]:
    """The stages of a scenario of the library, in order; empty where it has one alone."""
    lines = scenario_path(name).read_text(encoding="utf-8").splitlines()
    return [line.strip("[] ") for line in lines if line.startswith("[")]


class Driver:
    """An `Inventory` over the shim in `library` (None: no driver).

    What is played is `lines`, written as scenario.h tells, or the scenario of the library called `name`. `reboot` is a
    new process on a machine that has started anew, `stage` a change under the running one. After a read, `took` is its
    duration in seconds, and `threads` the number that the reading process has for devices and driver.
    """

    simulated = False

    def __init__(
        self,
        folder: Path,
        library: Path | None,
        *lines: str,
        name: str = "",
        path: Path | None = None,
        device_timeout_s: float = 5.0,
        driver_timeout_s: float = 30.0,
    ) -> None:
        self._scenario = folder / "scenario"
        self._timeouts = {"device_timeout_s": device_timeout_s, "driver_timeout_s": driver_timeout_s}
        self.took = 0.0
        self._inventory: NvmlProcess | None = None
        if name:
            self.scenario(scenario_path(name).read_text(encoding="utf-8"))
        else:
            self.scenario(*lines)
        self.env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        self.env["BERTH_NVML_SCENARIO"] = str(self._scenario)
        if path is not None:
            self.env["PYTHONPATH"] = str(path)
        if library is not None:
            self.env["LD_LIBRARY_PATH"] = str(library)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._inventory is not None:
            self._inventory.close()

    def scenario(self, *lines: str) -> None:
        """Change the world: the shim reads the file at every call, so it is replaced as a whole."""
        _replace(self._scenario, "\n".join(lines) + "\n")

    def stage(self, name: str) -> None:
        """Go on to another stage of the scenario, under the running process."""
        _replace(self._scenario.with_name("scenario.stage"), name + "\n")

    def reboot(self, stage: str) -> None:
        """The machine starts anew, in this stage: nothing is left of the process that read it."""
        self.inventory.close()
        self.stage(stage)
        self._inventory = None

    def reboot_as(self, *lines: str) -> None:
        """The same, and it plays these lines."""
        self.inventory.close()
        self.scenario(*lines)
        self._inventory = None

    @property
    def inventory(self) -> NvmlProcess:
        """The product's inventory."""
        if self._inventory is None:
            self._inventory = NvmlProcess(env=self.env, **self._timeouts)
        return self._inventory

    @property
    def threads(self) -> int:
        """Less the main thread and the one that listens."""
        return self.inventory.threads - 2

    def detect(self) -> bool:
        """Whether the product finds a driver here."""
        self._inventory = NvmlProcess.detect(env=self.env, **self._timeouts)
        return self._inventory is not None

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        began = time.monotonic()
        answer = self.inventory.read()
        self.took = time.monotonic() - began
        return answer

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


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
