"""Calls to addresses that somebody else chose: a scheme that is allowed, a host whose every address is public, no
redirects, and an answer of bounded size.

The check is made at the moment of the connection, with the very address that is connected to: a name that says another
address a moment later changes nothing. What the site's settings allow by name may be private.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from quota.told import booked

CONNECT_SECONDS, READ_SECONDS, WHOLE_SECONDS = 5.0, 10.0, 30.0
LARGEST_ANSWER: Final = 64 * 1024
LONGEST_URL: Final = 2000

NOT_A_URL = booked("this is not an address such as https://chat.example.org/hooks/abc")
BAD_SCHEME = booked("only addresses with %(names)s are called")
WITH_NAME = booked("an address must not carry a user name or password")
NO_HOST = booked("the name %(host)s is not known")
NOT_REACHED = booked("%(host)s cannot be reached: %(why)s")
PRIVATE = booked("%(host)s is not a public address; an administrator may allow it by name")

_CARRIER: Final = ipaddress.ip_network("100.64.0.0/10")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], list[str]]


class Unsafe(Exception):
    """An address that is not called; the text says why, as the book has it."""


class NotReached(Exception):
    """No connection was made, so nothing was sent; it may work later."""


def resolved(host: str, port: int) -> list[str]:
    """All addresses of a host. Raises `NotReached`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotReached(NO_HOST % {"host": host[:100]}) from None
    return [str(each[4][0]) for each in found]


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be called: schemes, and hosts by name that may have addresses of this network."""

    schemes: Collection[str] = ("https",)
    hosts: Collection[str] = ()
    resolve: Resolve = field(default=resolved)

    def check(self, url: str) -> None:
        """Raises `Unsafe` for an address that would not be called at this moment, `NotReached` for an unknown host."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise Unsafe(NOT_A_URL) from None
        if len(url) > LONGEST_URL or not url.isprintable() or " " in url or "\\" in url or not parts.hostname:
            raise Unsafe(NOT_A_URL)
        if parts.scheme not in self.schemes:
            raise Unsafe(BAD_SCHEME % {"names": ", ".join(f"{name}://" for name in self.schemes)})
        if parts.username is not None or parts.password is not None:
            raise Unsafe(WITH_NAME)
        self.address(parts.hostname, port or (443 if parts.scheme == "https" else 80))

    def address(self, host: str, port: int) -> str:
        """The address to connect to. Raises `Unsafe` unless all that the host has are public, or it is allowed."""
        found = self.resolve(host, port)
        if host.lower().rstrip(".") not in {name.lower() for name in self.hosts}:
            if not found or not all(is_public(each) for each in found):
                raise Unsafe(PRIVATE % {"host": host[:100]})
        return found[0]


def is_public(text: str) -> bool:
    """Whether an address is one of the open internet: nothing of this machine, of its networks, of its cloud."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    elif address in _CARRIER:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


# ---- calling -----------------------------------------------------------------------------------------------------


class Calls:
    """Stands where a library expects the module `requests`: each call is checked, bounded and follows nothing."""

    RequestException = requests.RequestException
    codes = requests.codes
    Timeout = requests.Timeout
    ConnectionError = requests.ConnectionError

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def post(self, url: str, **more: Any) -> requests.Response:
        return self.request("POST", url, **more)

    def get(self, url: str, **more: Any) -> requests.Response:
        return self.request("GET", url, **more)

    def request(self, method: str, url: str, **more: Any) -> requests.Response:
        """Raises `Unsafe`, `NotReached`, `requests.RequestException`."""
        self._policy.check(url)
        kept = {name: more[name] for name in ("data", "params", "headers") if name in more}
        with requests.Session() as session:
            session.trust_env = False  # no proxy and no .netrc of the process's user
            adapter = _Adapter(self._policy)
            session.mount("https://", adapter)
            session.mount("http://", adapter)
            answer = session.request(
                method, url, **kept, timeout=(CONNECT_SECONDS, READ_SECONDS), allow_redirects=False, stream=True
            )
            answer._content = _bounded(answer)
            answer._content_consumed = True
        return answer


def _bounded(answer: requests.Response) -> bytes:
    until, found = time.monotonic() + WHOLE_SECONDS, b""
    for chunk in answer.iter_content(4096):
        found += chunk
        if len(found) > LARGEST_ANSWER or time.monotonic() > until:
            break
    return found[:LARGEST_ANSWER]


class _Adapter(HTTPAdapter):
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._policy)


def _pools(policy: Policy) -> dict[str, type]:
    """Pools whose connections go to a checked address, while names and certificates stay those of the host."""

    def connect(connection: HTTPConnection) -> socket.socket:
        address = policy.address(connection.host, connection.port or 0)
        try:
            return socket.create_connection((address, connection.port or 0), CONNECT_SECONDS)
        except OSError as error:
            raise NotReached(
                NOT_REACHED % {"host": connection.host[:100], "why": error.strerror or "no answer"}
            ) from None

    class Plain(HTTPConnection):
        _new_conn = connect

    class Secure(HTTPSConnection):
        _new_conn = connect

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
