"""A terminal in a user's server, driven over the websocket that JupyterLab uses."""

from __future__ import annotations

import json

from websockets.sync.client import connect

from tests.harness.person import Person, quote


def type_in_terminal(person: Person, line: str) -> str:
    """Open a terminal, type a line as somebody would, and close the browser; the terminal's name. What it runs goes
    on, or not, without anybody looking."""
    answer = person.notebook("POST", "api/terminals", json={})
    assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
    name = str(answer.json()["name"])
    url = person.url.replace("http", "ws", 1) + f"/user/{quote(person.name)}/terminals/websocket/{name}"
    headers = {"Authorization": f"token {person.token}"}
    with connect(url, additional_headers=headers) as socket:
        while json.loads(socket.recv(timeout=20))[0] not in ("setup", "stdout"):
            pass
        socket.send(json.dumps(["stdin", f"{line}\r"]))
        echo = ""
        while line[:20] not in echo:  # the shell has read it
            words = json.loads(socket.recv(timeout=20))
            echo += words[1] if words[0] == "stdout" else ""
    return name
