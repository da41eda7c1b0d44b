"""A notebook kernel in a user's server, driven over the same websocket that JupyterLab uses."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import ExitStack
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.harness.person import Person, quote


class Kernel:
    """Starts a kernel, or takes the one with this id; `run` executes and gives back what was printed. `leave` closes
    the websocket and lets the kernel go on, as a closed browser would."""

    def __init__(self, person: Person, server: str = "", user: str = "", id: str = "") -> None:
        self.person, self.server, self.user = person, server, user or person.name
        self.id = id or self._started()
        self.socket: ClientConnection | None = None
        self._open = ExitStack()

    def _started(self) -> str:
        answer = self.person.notebook(
            "POST", "api/kernels", server=self.server, user=self.user, json={"name": "python3"}
        )
        assert answer.status_code == 201, f"{answer.status_code} {answer.text}"
        return str(answer.json()["id"])

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def attach(self) -> ClientConnection:
        if self.socket is None:
            name = f"/user/{quote(self.user)}/{self.server + '/' if self.server else ''}"
            url = self.person.url.replace("http", "ws", 1) + f"{name}api/kernels/{self.id}/channels"
            headers = {"Authorization": f"token {self.person.token}"}
            self.socket = self._open.enter_context(connect(f"{url}?session_id=test", additional_headers=headers))
        return self.socket

    def leave(self) -> None:
        self.socket = None
        self._open.close()

    def send(self, code: str, cell: str = "") -> str:
        """Start executing, perhaps as a cell of a notebook, and do not wait; the message's id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "version": "5.3",
            "username": "",
            "session": "t",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        metadata = {"cellId": cell} if cell else {}
        message = {"header": header, "parent_header": {}, "metadata": metadata, "content": content, "channel": "shell"}
        self.attach().send(json.dumps(message))
        return header["msg_id"]

    def run(self, code: str, seconds: float = 30, cell: str = "") -> str:
        """Execute to the end; what it printed. Raises `AssertionError` for an error in the code."""
        sent, printed = self.send(code, cell), []
        deadline = time.monotonic() + seconds
        while True:
            message = self._next(deadline, code)
            if message.get("parent_header", {}).get("msg_id") != sent:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                raise AssertionError(f"{code}\n{content['ename']}: {content['evalue']}")
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(printed)

    def _next(self, deadline: float, code: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self.attach().recv(timeout=max(0.01, deadline - time.monotonic()))))
        except (TimeoutError, ConnectionClosed) as error:
            raise AssertionError(f"no end of {code!r}: {error!r}") from None

    def busy(self) -> bool:
        answer = self.person.notebook("GET", f"api/kernels/{self.id}", server=self.server, user=self.user)
        return bool(answer.json()["execution_state"] == "busy")
