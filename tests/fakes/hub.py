"""A Hub over HTTP, as far as a service sees it: who owns a token, the OAuth dance, users, stopping servers.

It is strict where the real one is: an unknown token is a 403, a code is good once, the PKCE verifier must fit, a
service without the scope gets a 403. `down` makes every answer a 503.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler

SERVICE = "berth"
CLIENT_ID = f"service-{SERVICE}"
ACCESS = f"access:services!service={SERVICE}"
#: The cookie by which the fake knows whose browser it is; the real one has its own log-in.
BROWSER = "fake-hub-user"


@dataclass
class FakeHub:
    """Users, tokens and what was asked of it."""

    users: dict[str, bool] = field(default_factory=dict)  # name -> admin
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    stopped: list[tuple[str, str]] = field(default_factory=list)
    started: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)  # answers to the next starts
    service_token: str = field(default_factory=lambda: secrets.token_hex(16))
    service_scopes: set[str] = field(default_factory=lambda: {"read:users", "start:servers", "delete:servers"})
    groups: dict[str, list[str]] = field(default_factory=dict)  # name -> users
    down: bool = False
    page_size: int = 200

    def add_user(self, name: str, *, admin: bool = False) -> str:
        """A user with a token of all their rights; returns the token."""
        self.users[name] = admin
        return self.add_token(name, ("self", ACCESS, f"custom:berth:kit!user={name}"))

    def add_token(self, name: str, scopes: Sequence[str], kind: str = "user") -> str:
        token = secrets.token_hex(16)
        self.tokens[token] = {"name": name, "kind": kind, "scopes": sorted(scopes)}
        return token

    def groups_of(self, user: str) -> list[str]:
        return sorted(name for name, users in self.groups.items() if user in users)

    def server_token(self, user: str, server: str = "") -> str:
        """The token of a running server, as the roles give it."""
        return self.add_token(
            user, (f"access:servers!server={user}/{server}", f"custom:berth:kit!server={user}/{server}")
        )

    def app(self, static: str | None = None) -> Application:
        common = {"hub": self}
        routes: list[Any] = [
            (r"/hub/api/user", Identity, common),
            (r"/hub/api/users", Users, common),
            (r"/hub/api/users/([^/]+)", User, common),
            (r"/hub/api/groups/([^/]+)", Group, common),
            (r"/hub/api/users/([^/]+)/servers?/?([^/]*)", Server, common),
            (r"/hub/api/oauth2/authorize", Authorize, common),
            (r"/hub/api/oauth2/token", Token, common),
        ]
        if static:
            routes.append((r"/hub/static/(.*)", StaticFileHandler, {"path": static}))
        return Application(routes)


class Base(RequestHandler):
    def initialize(self, hub: FakeHub) -> None:
        self.hub = hub

    def prepare(self) -> None:
        if self.hub.down:
            raise HTTPError(503)

    def token(self) -> str:
        return self.request.headers.get("Authorization", "").partition(" ")[2]

    def need_service(self) -> None:
        if self.token() != self.hub.service_token:
            raise HTTPError(403)


class Identity(Base):
    def get(self) -> None:
        if self.token() == self.hub.service_token:
            self.write({"name": "berth", "kind": "service", "scopes": sorted(self.hub.service_scopes)})
            return
        model = self.hub.tokens.get(self.token())
        if model is None or (model["kind"] == "user" and model["name"] not in self.hub.users):
            raise HTTPError(403)
        more: dict[str, Any] = {"session_id": None}
        if model["kind"] == "user":
            more |= {"admin": self.hub.users[model["name"]], "groups": self.hub.groups_of(model["name"])}
        self.write(model | more)


class Users(Base):
    def get(self) -> None:
        self.need_service()
        offset = int(self.get_argument("offset", "0"))
        limit = min(int(self.get_argument("limit", "50")), self.hub.page_size)
        everybody = list(self.hub.users.items())
        if self.get_argument("sort", "id") == "-id":
            everybody.reverse()
        items = [{"kind": "user", "name": name, "admin": admin} for name, admin in everybody[offset : offset + limit]]
        following = {"offset": offset + limit, "limit": limit} if offset + limit < len(everybody) else None
        if "jupyterhub-pagination" in self.request.headers.get("Accept", ""):
            self.write({"items": items, "_pagination": {"offset": offset, "total": len(everybody), "next": following}})
        else:
            self.write(json.dumps(items))


class User(Base):
    def get(self, name: str) -> None:
        self.need_service()
        if name not in self.hub.users:
            raise HTTPError(404)
        model = {"name": name, "admin": self.hub.users[name], "groups": self.hub.groups_of(name)}
        self.write(model | {"created": "2026-01-01T00:00:00.000000Z"})


class Group(Base):
    def get(self, name: str) -> None:
        self.need_service()
        if name not in self.hub.groups:
            raise HTTPError(404)
        self.write({"name": name, "users": self.hub.groups[name], "kind": "group"})


class Server(Base):
    def post(self, user: str, server: str) -> None:
        """As the real one: 201, refusals as JSON with a message, 400 for one that runs."""
        self.need_service()
        if "start:servers" not in self.hub.service_scopes:
            raise HTTPError(403)
        if user not in self.hub.users:
            raise HTTPError(404)
        refused = self.hub.refusals.pop(0) if self.hub.refusals else None
        if any(each[:2] == (user, server) for each in self.hub.started):
            refused = (400, f"{user}:{server} is already running")
        if refused is not None:
            self.set_status(refused[0])
            self.write({"status": refused[0], "message": refused[1]})
            return
        self.hub.started.append((user, server, json.loads(self.request.body)["user_options"]))
        self.set_status(201)

    def delete(self, user: str, server: str) -> None:
        self.need_service()
        if user not in self.hub.users:
            raise HTTPError(404)
        self.hub.stopped.append((user, server))
        self.set_status(202)


class Authorize(Base):
    def get(self) -> None:
        user = self.get_cookie(BROWSER)
        if not user or self.get_argument("client_id") != CLIENT_ID:
            raise HTTPError(403)
        code = secrets.token_hex(8)
        self.hub.codes[code] = {"user": user, "challenge": self.get_argument("code_challenge", "")}
        query = urlencode({"code": code, "state": self.get_argument("state")})
        self.redirect(f"{self.get_argument('redirect_uri')}?{query}")


class Token(Base):
    def post(self) -> None:
        sent = {name: values[0] for name, values in parse_qs(self.request.body.decode()).items()}
        code = self.hub.codes.pop(sent["code"], None)
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if code is None or sent["client_secret"] != self.hub.service_token or code["challenge"] != challenge:
            raise HTTPError(400)
        self.write({"access_token": self.hub.add_token(code["user"], (ACCESS,)), "token_type": "Bearer"})
