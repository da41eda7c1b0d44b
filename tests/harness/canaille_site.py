"""A real OpenID provider (Canaille, in memory) as a process of its own: one JSON command a line.

    canaille_site.py PORT CALLBACK

It prints a line when it answers, and one for each command: `{"do": "user", "name": …}`, `join`, `leave`, `lock`,
`unlock`, `rename`, `expire`. Run by `tests.harness.provider`.
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")

from canaille import create_app  # noqa: E402
from canaille.app import models  # noqa: E402
from canaille.backends import Backend  # noqa: E402
from joserfc.jwk import RSAKey  # noqa: E402
from werkzeug.serving import make_server  # noqa: E402

PASSWORD = "a long enough password"


def application(port: int) -> Any:
    return create_app(
        {
            "SECRET_KEY": "of a test",
            "SERVER_NAME": f"localhost:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory", "TIMEZONE": "UTC", "LOGGING": None},
            "CANAILLE_OIDC": {
                "REQUIRE_NONCE": False,
                "ACTIVE_JWKS": [RSAKey.generate_key(2048).as_dict(private=True)],
                "USERINFO_MAPPING": {"SUB": "{{ user.id }}", "PREFERRED_USERNAME": "{{ user.user_name }}"},
            },
        }
    )


def add_client(callback: str) -> None:
    client = models.Client(
        client_id="berth",
        client_secret="the client's secret",
        client_name="Berth",
        client_uri="http://127.0.0.1",
        redirect_uris=[callback],
        post_logout_redirect_uris=[callback.replace("/hub/oauth_callback", "/hub/login")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_post",
        client_id_issued_at=datetime.datetime.now(datetime.UTC),
    )
    Backend.instance.save(client)
    client.audience = [client]
    Backend.instance.save(client)


def user(name: str) -> Any:
    return Backend.instance.get(models.User, user_name=name)


def group(name: str) -> Any:
    return Backend.instance.get(models.Group, display_name=name)


def add_user(name: str) -> None:
    made = models.User(
        user_name=name, formatted_name=name, family_name=name, emails=[f"{name}@example.org"], password=PASSWORD
    )
    Backend.instance.save(made)


def join(name: str, to: str) -> None:
    found = group(to)
    if found is None:
        Backend.instance.save(models.Group(display_name=to, members=[user(name)]))
        return
    found.members = [*found.members, user(name)]
    Backend.instance.save(found)


def leave(name: str, of: str) -> None:
    found = group(of)
    found.members = [member for member in found.members if member.user_name != name]
    if found.members:
        Backend.instance.save(found)
    else:
        Backend.instance.delete(found)


def lock(name: str, locked: bool) -> None:
    found = user(name)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    found.lock_date = past if locked else None
    Backend.instance.save(found)


def rename(name: str, to: str) -> None:
    found = user(name)
    found.user_name = to
    Backend.instance.save(found)


def expire(name: str, refresh: bool) -> None:
    """Access tokens of that person are worth nothing from now on, with `refresh` the refresh tokens neither. Not by
    the date, which Canaille keeps for both together."""
    for token in Backend.instance.query(models.Token):
        if token.subject and token.subject.user_name == name:
            token.access_token = f"gone {token.access_token}"
            if refresh:
                token.revokation_date = datetime.datetime.now(datetime.UTC)
            Backend.instance.save(token)


COMMANDS: dict[str, Callable[..., None]] = {
    "user": add_user,
    "join": join,
    "leave": leave,
    "lock": lock,
    "rename": rename,
    "expire": expire,
}


def main(port: int, callback: str) -> None:
    app = application(port)
    with app.app_context(), Backend.instance.session():
        add_client(callback)
    server = make_server("127.0.0.1", port, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        with app.app_context(), Backend.instance.session():
            COMMANDS[command.pop("do")](**command)
        print("done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
