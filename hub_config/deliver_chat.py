"""Notices in chats, by the library apprise: Slack, Teams, Mattermost, DingTalk, Feishu, Lark, any webhook that takes
JSON. Whose webhook it is says its address; each call goes through `quota.outgoing`."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import requests
from apprise import AppriseAsset
from apprise.plugins.custom_json import NotifyJSON
from apprise.plugins.dingtalk import NotifyDingTalk
from apprise.plugins.feishu import NotifyFeishu
from apprise.plugins.lark import NotifyLark
from apprise.plugins.mattermost import NotifyMattermost
from apprise.plugins.slack import NotifySlack
from apprise.plugins.workflows import NotifyWorkflows

from quota.delivery import Message, Undelivered
from quota.notices import TO_ADMINS
from quota.outbox import UNKNOWN
from quota.outgoing import Calls, NotReached, Policy, Unsafe
from quota.routing import CHAT
from quota.sealed import Sealer
from quota.told import booked

log = logging.getLogger("berth.notices")

NO_CHAT = booked("No chat is known for this user")
BAD_HOOK = booked("this is no webhook of %(name)s as it gives them out")
ANSWERED = booked("the chat answered with status %(code)s")

_MODULES = ("custom_json", "dingtalk", "feishu", "lark", "mattermost", "slack", "workflows")
_AGAIN = frozenset({408, 425, 429})
_QUIET = AppriseAsset(app_id="Berth", app_desc="Berth", secure_logging=True)


class _Told(threading.local):
    status: int | None = None
    unknown: bool = False


class _Recorded(Calls):
    """Remembers, for each thread, how its last call ended: apprise only says that it did not go well."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.told = _Told()

    def request(self, method: str, url: str, **more: Any) -> requests.Response:
        self.told.status, self.told.unknown = None, False
        try:
            answer = super().request(method, url, **more)
        except requests.RequestException:
            self.told.unknown = True
            raise
        self.told.status = answer.status_code
        return answer


class ChatChannel:
    """A `quota.delivery.Channel`. `admin` is the webhook of the administrators' chat."""

    name: ClassVar[str] = CHAT
    idempotent: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    joins: ClassVar[bool] = True

    def __init__(self, policy: Policy, sealer: Sealer, admin: str = "", users: bool = True) -> None:
        self._policy, self._sealer, self._admin, self._users = policy, sealer, admin, users
        self._calls = _Recorded(policy)
        for module in _MODULES:  # these call the module `requests`; here they call what checks
            importlib.import_module(f"apprise.plugins.{module}").requests = self._calls  # type: ignore[attr-defined]

    def send(self, message: Message) -> None:
        """Raises `Undelivered`."""
        url = self._admin if message.user == TO_ADMINS else self._address(message)
        if not url:
            raise Undelivered(NO_CHAT, final=True)
        try:
            self._policy.check(url)
            hook = hook_of(url)
            message.begin()
            well = hook.send(body=_body(hook, message), title=message.title)
        except Unsafe as error:
            raise Undelivered(str(error), final=True) from None
        except NotReached as error:
            raise Undelivered(str(error)) from None
        if not well:
            self._say()

    def _say(self) -> None:
        status = self._calls.told.status
        if self._calls.told.unknown or status is None:
            raise Undelivered(UNKNOWN, final=True)
        raise Undelivered(ANSWERED % {"code": status}, final=status < 500 and status not in _AGAIN)

    def _address(self, message: Message) -> str:
        return (self._sealer.open(message.to.chat) or "") if self._users and message.to.chat else ""


def _body(hook: Any, message: Message) -> str:
    """With the title where the service has no place for one of its own."""
    lines = [] if hook.title_maxlen else [message.title]
    return "\n".join([*lines, message.words, message.link])


def hook_of(url: str) -> Any:
    """The library's sender for a webhook. Raises `Unsafe` for one that is not as its service gives them out."""
    parts = urlsplit(url)
    host, path = (parts.hostname or "").lower(), parts.path.strip("/")
    for ending, name, make in _HOSTS:
        if host == ending or host.endswith(f".{ending}"):
            return _made(name, partial(make, url, path))
    if re.fullmatch(r"hooks/[A-Za-z0-9]{20,40}", path):
        return _made("Mattermost", lambda: _mattermost(url, path))
    return _made("JSON", lambda: _json(url))


def _made(name: str, make: Callable[[], Any]) -> Any:
    try:
        found = make()
    except (TypeError, ValueError, KeyError, IndexError):  # what apprise raises for a bad token is a TypeError
        found = None
    if found is None:
        raise Unsafe(BAD_HOOK % {"name": name})
    return found


def _native(kind: Any) -> Callable[[str, str], Any]:
    def make(url: str, path: str) -> Any:
        found = kind.parse_native_url(url)
        return kind(asset=_QUIET, **found) if found else None

    return make


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "secure": parts.scheme == "https", "asset": _QUIET}


def _mattermost(url: str, path: str) -> Any:
    return NotifyMattermost(token=path.rpartition("/")[2], **_server(url))


def _json(url: str) -> Any:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    kind: Any = NotifyJSON
    return kind(fullpath=parts.path or "/", params=query, **_server(url))


def _dingtalk(url: str, path: str) -> Any:
    kind: Any = NotifyDingTalk
    return kind(token=parse_qs(urlsplit(url).query)["access_token"][0], asset=_QUIET)


def _last(kind: Any) -> Callable[[str, str], Any]:
    return lambda url, path: kind(token=path.rpartition("/")[2], asset=_QUIET)


_HOSTS: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("hooks.slack.com", "Slack", _native(NotifySlack)),
    ("logic.azure.com", "Teams", _native(NotifyWorkflows)),
    ("api.powerplatform.com", "Teams", _native(NotifyWorkflows)),
    ("oapi.dingtalk.com", "DingTalk", _dingtalk),
    ("open.feishu.cn", "Feishu", _last(NotifyFeishu)),
    ("open.larksuite.com", "Lark", _last(NotifyLark)),
)
