"""The compute mode of a device, set through NVML by a process of its own: a driver that hangs takes nobody along.

`python -m spawner.nvml_mode UUID exclusive|default` does it, and is what `NvmlModes` runs. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from spawner.nvml import ForeignModule, load

#: Seconds for the driver to start and to set it.
PATIENCE_S: Final = 30.0
_MODES: Final = {"exclusive": "NVML_COMPUTEMODE_EXCLUSIVE_PROCESS", "default": "NVML_COMPUTEMODE_DEFAULT"}


class NvmlModes:
    """Satisfies `spawner.mps_daemon.ComputeModes`. `env` is what the process is run with; None: this one's."""

    def __init__(self, env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S) -> None:
        self._env = dict(os.environ if env is None else env)
        self._patience_s = patience_s

    def exclusive(self, uuid: str) -> None:
        self._set(uuid, "exclusive")

    def default(self, uuid: str) -> None:
        self._set(uuid, "default")

    def _set(self, uuid: str, mode: str) -> None:
        argv = [sys.executable, "-m", "spawner.nvml_mode", uuid, mode]
        try:
            done = subprocess.run(
                argv, env=self._env, capture_output=True, text=True, timeout=self._patience_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"the driver did not set its compute mode within {self._patience_s:g} s") from error
        if done.returncode:
            raise OSError(f"its compute mode cannot be set: {done.stderr.strip() or done.returncode}")


def _handle(api: Any, uuid: str) -> Any:
    """The device of that UUID; others that fail do not hide it."""
    for position in range(api.nvmlDeviceGetCount()):
        try:
            handle = api.nvmlDeviceGetHandleByIndex(position)
            if api.nvmlDeviceGetUUID(handle) == uuid:
                return handle
        except api.NVMLError:
            continue
    raise LookupError(f"the driver lists no {uuid}")


def main() -> None:
    """Set it; the reason on standard error and exit code 1 where that fails."""
    uuid, mode = sys.argv[1:3]
    try:
        api = load()
    except ForeignModule as error:
        sys.exit(str(error))
    try:
        api.nvmlInit()
        api.nvmlDeviceSetComputeMode(_handle(api, uuid), getattr(api, _MODES[mode]))
    except (api.NVMLError, LookupError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
