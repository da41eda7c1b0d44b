"""Somebody who uses a deployment: logs in by the form, then speaks to the Hub and to service `berth` by token."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote as percent

import httpx

from tests.harness.waiting import until


def quote(name: str) -> str:
    """A user name in a path, written as the Hub and browsers do: an at sign stays."""
    return percent(name, safe="@")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of 4xx or 5xx as a value."""

    status: int
    body: dict[str, Any]

    @property
    def words(self) -> str:
        return str(self.body.get("message") or self.body.get("detail") or self.body.get("title") or "")


class Person:
    """A logged-in user with an API token of their own. Close it, or use it as a context."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self.url, self.name = url, name
        self.browser = httpx.Client(base_url=url, follow_redirects=True, timeout=60)
        self.token = ""
        try:
            self._log_in(password)
            self.token = self._new_token()
        except BaseException:
            self.browser.close()
            raise
        self.api = httpx.Client(base_url=url, headers={"Authorization": f"token {self.token}"}, timeout=150)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.browser.close()
        self.api.close()

    # ---- logging in ------------------------------------------------------------------------------------------

    @property
    def xsrf(self) -> str:
        """The token of the Hub's own pages; user servers and services have cookies of the same name elsewhere."""
        return next(c.value or "" for c in self.browser.cookies.jar if c.name == "_xsrf" and c.path == "/hub/")

    def _log_in(self, password: str) -> None:
        self.browser.get("/hub/login").raise_for_status()
        form = {"username": self.name, "password": password, "_xsrf": self.xsrf}
        answer = self.browser.post("/hub/login", data=form)
        assert answer.status_code == 200, f"log-in of {self.name}: {answer.status_code} {answer.text[:500]}"
        assert "/hub/login" not in str(answer.url), f"log-in of {self.name} was not accepted"

    def _new_token(self) -> str:
        path = f"/hub/api/users/{quote(self.name)}/tokens"
        answer = self.browser.post(path, headers={"X-XSRFToken": self.xsrf}, json={"note": "test"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    # ---- the Hub ---------------------------------------------------------------------------------------------

    def hub(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """A call of the Hub's REST API, `path` below /hub/api."""
        return self.api.request(method, f"/hub/api{path}", json=json)

    def model(self, user: str = "") -> dict[str, Any]:
        answer = self.hub("GET", f"/users/{quote(user or self.name)}")
        answer.raise_for_status()
        return dict(answer.json())

    def server(self, server: str = "", user: str = "") -> dict[str, Any] | None:
        """The Hub's view of a server, None where there is none."""
        found = self.model(user).get("servers", {}).get(server)
        return dict(found) if found else None

    def _server_path(self, server: str, user: str) -> str:
        base = f"/users/{quote(user or self.name)}"
        return f"{base}/servers/{quote(server)}" if server else f"{base}/server"

    def ask_start(self, options: Any = None, *, server: str = "", user: str = "") -> httpx.Response:
        """POST a start; the answer as it came."""
        return self.hub("POST", self._server_path(server, user), options)

    def start(self, profile: str = "cpu", *, server: str = "", user: str = "", seconds: float = 60) -> dict[str, Any]:
        """Start and wait until ready; the Hub's view of the server."""
        answer = self.ask_start({"profile": profile}, server=server, user=user)
        assert answer.status_code in (201, 202), f"{answer.status_code} {answer.text}"
        return until(lambda: self.ready(server, user), seconds, f"{user or self.name}'s server {server!r} is ready")

    def ready(self, server: str = "", user: str = "") -> dict[str, Any] | None:
        found = self.server(server, user)
        return found if found and found["ready"] else None

    def refused(self, options: Any = None, *, server: str = "", user: str = "") -> Refusal:
        """A start that must be refused: asserts a 4xx with words and gives it back."""
        answer = self.ask_start(options, server=server, user=user)
        assert 400 <= answer.status_code < 500, f"not refused: {answer.status_code} {answer.text}"
        refusal = Refusal(answer.status_code, dict(answer.json()))
        assert refusal.words, answer.text
        return refusal

    def ask_stop(self, *, server: str = "", user: str = "") -> httpx.Response:
        return self.hub("DELETE", self._server_path(server, user))

    def stop(self, *, server: str = "", user: str = "", seconds: float = 45) -> None:
        """Stop and wait until the Hub has forgotten the server."""
        answer = self.ask_stop(server=server, user=user)
        assert answer.status_code in (202, 204), f"{answer.status_code} {answer.text}"
        until(lambda: self.gone(server, user), seconds, f"{user or self.name}'s server {server!r} is gone")

    def gone(self, server: str = "", user: str = "") -> bool:
        """Whether the Hub has neither a running nor a pending server of that name."""
        found = self.server(server, user)
        return found is None or bool(found.get("stopped"))

    # ---- service berth ---------------------------------------------------------------------------------------

    def berth(self, path: str, method: str = "GET", json: Any = None, **query: Any) -> httpx.Response:
        """A call of the service's REST, `path` below /services/berth/api/v1."""
        return self.api.request(method, f"/services/berth/api/v1{path}", json=json, params=query or None)

    def read(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.berth(path, **query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def account(self) -> dict[str, Any]:
        """My own account."""
        return dict(self.read("/me")["account"])

    def available(self) -> int:
        """Micro-credits that may be spent now."""
        return int(self.account()["available_micro_credits"])

    def held(self) -> int:
        """Micro-credits set aside for running servers."""
        return int(self.account()["held_micro_credits"])

    def free_now(self) -> dict[str, int]:
        """How many of each profile could start now."""
        return {item["name"]: item["free_now"] for item in self.read("/profiles")["items"]}

    def leases(self) -> list[dict[str, Any]]:
        """Newest first; mine, or all for an admin."""
        return list(self.read("/leases")["items"])

    def lease(self, lease_id: str = "") -> dict[str, Any]:
        """One lease; the newest where no id is given."""
        return self.read(f"/leases/{lease_id}") if lease_id else self.leases()[0]

    def settled(self, lease_id: str, seconds: float = 30) -> dict[str, Any]:
        """Wait until the lease's last bill is written."""

        def ask() -> dict[str, Any] | None:
            lease = self.lease(lease_id)
            return lease if lease["state"] == "SETTLED" else None

        return until(ask, seconds, f"lease {lease_id} is settled")

    # ---- the notebook server ---------------------------------------------------------------------------------

    def notebook(self, method: str, path: str, *, server: str = "", user: str = "", json: Any = None) -> httpx.Response:
        """A call of the user server's own REST, through the proxy."""
        base = f"/user/{quote(user or self.name)}/{quote(server) + '/' if server else ''}"
        return self.api.request(method, base + path.lstrip("/"), json=json)


def lasted(lease: dict[str, Any]) -> float:
    """Seconds that a server ran, by its lease as REST tells it."""
    start, end = (datetime.fromisoformat(lease[key]) for key in ("started_at", "ended_at"))
    return (end - start).total_seconds()
