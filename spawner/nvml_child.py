"""`python -m spawner.nvml_child FD`: reads the devices of this host for `spawner.nvml_process`, which can end it.

FD is a connection of `multiprocessing`. Each message on it is a question, "detect" or "read", and is answered with
one `Reply`. The process ends with the connection: it does not outlive who asked, even while a call hangs.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from multiprocessing.connection import Connection

from spawner.nvml import DEVICE_TIMEOUT_S, DRIVER_TIMEOUT_S, ForeignModule, NvmlInventory, load
from spawner.nvml_process import Reply
from spawner.ports import Unreachable


class Reader:
    """Answers questions, one at a time. Time-outs in seconds, as of `NvmlInventory`."""

    def __init__(self, device_timeout_s: float = DEVICE_TIMEOUT_S, driver_timeout_s: float = DRIVER_TIMEOUT_S) -> None:
        self._timeouts = {"device_timeout_s": device_timeout_s, "driver_timeout_s": driver_timeout_s}
        self._inventory: NvmlInventory | None = None

    def answer(self, question: str) -> Reply:
        try:
            if question == "detect":
                self._inventory = NvmlInventory.detect(**self._timeouts)
                return Reply(missing=self._inventory is None)
            if self._inventory is None:
                self._inventory = NvmlInventory(load(), **self._timeouts)
            found = self._inventory.read()
        except ForeignModule as error:
            return Reply(Unreachable(str(error)))
        return Reply(
            found, silent=self._inventory.silent, stuck=self._inventory.stuck, threads=threading.active_count()
        )


def _listen(connection: Connection, questions: queue.Queue[str]) -> None:
    try:
        while True:
            questions.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # nobody asks any more; a thread that hangs must not keep this process


def main() -> None:
    """Answer until the connection ends."""
    connection = Connection(int(sys.argv[1]))
    reader = Reader(*(float(seconds) for seconds in sys.argv[2:4]))
    questions: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(connection, questions), name="questions", daemon=True).start()
    while True:
        reply = reader.answer(questions.get())
        try:
            connection.send(reply)
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    main()
