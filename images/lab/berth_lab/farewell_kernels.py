"""A kernel asked, silently, to put its variables into a folder. The kit's half: the asking and what came of it.

What is saved and how is `berth_lab.snapshot`'s affair, inside the kernel. Nothing of the user's namespace is touched.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.session import Session
from zmq.eventloop.zmqstream import ZMQStream

from berth_lab.activity import kernel_pid, working_folder

log = logging.getLogger("berth_lab")

#: A kernel may save for so much less than is waited for it, so that it can say what it could not save.
ANSWER_SECONDS = 1.0
#: Why something could not be saved, by code: sentences for people.
WHY = {
    "busy": "The kernel was still busy when the time to save was over.",
    "busy-now": "The kernel is busy; save again when it is idle.",
    "kernel-language": "Variables are saved of Python kernels alone.",
    "kit-missing": "This kernel's environment does not have Berth's kit, so its variables could not be saved.",
    "time": "There was no time left to save it.",
    "failed": "It failed; the server's log says how.",
    "checkpoint-failed": "Its program could not write the checkpoint.",
    "no-checkpoint": "Its program did not write a checkpoint in time; what it had written before is still there.",
    "ended": "Its program ended without saying that it had written a checkpoint.",
    "missing": "The notebook file is no longer there.",
    "foreign": "What was saved of it could have been written by somebody else, so it is not read.",
    "not-started": "Its kernel could not be started; the server's log says why.",
    "unwritable": "The notebook file could not be written.",
    "changed": "The notebook file was being written by something else.",
    "format": "The notebook file is of a format that Berth does not write.",
    "terminal": "What runs in a terminal ends with the server.",
}


class CannotSay(Exception):
    """The kernel did not answer well; `code` is a key of `WHY`."""

    def __init__(self, code: str) -> None:
        super().__init__(WHY[code])
        self.code = code


@dataclass(frozen=True, slots=True)
class Seat:
    """One kernel of a session, as it is found again at the next start."""

    id: str
    kernel: str  # the name of its kernelspec
    language: str
    path: str  # of its notebook or console
    type: str
    name: str
    cwd: str | None

    def value(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "language": self.language,
            "path": self.path,
            "type": self.type,
            "name": self.name,
            "cwd": self.cwd,
        }


def lost(kind: str, what: str, where: str, code: str) -> dict[str, str]:
    """A row of the report."""
    return {"kind": kind, "what": what, "where": where, "why": WHY.get(code, WHY["failed"]), "code": code}


def alone(kernel_id: str, kernels: Any) -> dict[str, Any]:
    """A row, as of the server's list of sessions, of a kernel that has none: a program's, or another editor's."""
    name = str(kernels.get_kernel(kernel_id).kernel_name)
    return {"kernel": {"id": kernel_id, "name": name}, "path": "", "type": "kernel", "name": f"{name} {kernel_id[:8]}"}


def seat_of(row: dict[str, Any], kernels: Any) -> Seat:
    """Out of a row of the server's list of sessions."""
    kernel_id = str(row["kernel"]["id"])
    try:
        language = str(kernels.get_kernel(kernel_id).kernel_spec.language)
    except Exception:
        language = ""
    cwd = working_folder(kernel_pid(kernels, kernel_id))
    name, path = str(row["kernel"]["name"]), str(row["path"])
    return Seat(kernel_id, name, language.lower(), path, str(row["type"]), str(row.get("name") or ""), cwd)


async def evaluate(manager: Any, expression: str, seconds: float) -> str:
    """The text of a Python expression's value in the kernel. Raises `CannotSay`."""
    session = Session(key=manager.session.key, signature_scheme=manager.session.signature_scheme, digest_history_size=0)
    stream = manager.connect_shell()
    shell = stream if isinstance(stream, ZMQStream) else ZMQStream(stream)
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def heard(frames: list[bytes]) -> None:
        try:
            message: dict[str, Any] = session.deserialize(session.feed_identities(frames)[1])
        except Exception:
            return
        if not answer.done() and message["parent_header"].get("msg_id") == sent["header"]["msg_id"]:
            answer.set_result(message["content"])

    shell.on_recv(heard)
    content = {
        "code": "",
        "silent": True,
        "store_history": False,
        "user_expressions": {"berth": expression},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    sent: Any = session.send(shell, "execute_request", content)
    try:
        reply = await asyncio.wait_for(answer, seconds)
    except TimeoutError:
        raise CannotSay("time") from None
    finally:
        shell.close(linger=0)
    return _value(reply)


def _value(reply: dict[str, Any]) -> str:
    value = (reply.get("user_expressions") or {}).get("berth") or {}
    if value.get("status") == "ok":
        return str(value["data"].get("text/plain", ""))
    if value.get("ename") in {"ModuleNotFoundError", "ImportError"}:
        raise CannotSay("kit-missing")
    log.warning("a kernel could not do what the kit asked: %s: %s", value.get("ename"), value.get("evalue"))
    raise CannotSay("failed")


def call(function: str, *arguments: str) -> str:
    """An expression that calls a function of `berth_lab.snapshot` with texts."""
    words = ", ".join(repr(argument) for argument in arguments)
    return f"__import__('importlib').import_module('berth_lab.snapshot').{function}({words})"


async def save(manager: Any, seat: Seat, folder: Path, limits: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Have the kernel save its variables into `folder`; its own report (`saved`, `lost`, `bytes`). Raises
    `CannotSay`."""
    if seat.language != "python":
        raise CannotSay("kernel-language")
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    inside = max(0.1, seconds - ANSWER_SECONDS)
    asked = limits | {"seconds": min(limits.get("seconds", inside), inside)}
    await evaluate(manager, call("save", str(folder), json.dumps(asked)), seconds)
    return _report(folder / "report.json")


async def load(manager: Any, folder: Path, seconds: float) -> dict[str, Any]:
    """Have the kernel take its variables back. Raises `CannotSay`."""
    report = folder / "restored.json"
    report.unlink(missing_ok=True)
    await evaluate(manager, call("load", str(folder)), seconds)
    return _report(report)


def _report(path: Path) -> dict[str, Any]:
    try:
        report: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise CannotSay("failed") from None
    if not isinstance(report, dict) or not isinstance(report.get("saved"), list):
        raise CannotSay("failed")
    return report
