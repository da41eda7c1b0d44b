"""Two starts of one server at once: one begins, the other is shown the first instead of a fault."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.pages import SpawnHandler
from tornado import web

from hub_config import fresh

Start = Callable[..., Awaitable[None]]


def install() -> None:
    """Have every page and REST handler of this process's Hub start servers by `one_at_a_time`."""
    if not hasattr(BaseHandler.spawn_single_user, "__wrapped__"):
        BaseHandler.spawn_single_user = one_at_a_time(BaseHandler.spawn_single_user)
        SpawnHandler._post = leading_on(SpawnHandler._post)


def one_at_a_time(start: Start) -> Start:
    """The Hub's `spawn_single_user`, one call per server at a time, and none for a server that is there by then.

    JupyterHub 6.1 looks whether the server is pending or ready, then reads the form and asks the provider whether the
    user is still a member, and only then starts. Who came second by a moment got a 500, or a second start over a
    running server. Here a form leads on to the progress page of the start that is under way, and REST gets the same
    400 as if it had come later.
    """
    locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    @functools.wraps(start)
    async def wrapped(self: Any, user: Any, server_name: str = "", display_name: str = "", options: Any = None) -> None:
        lock = locks.setdefault((user.orm_user.id, server_name), asyncio.Lock())
        async with lock:
            there = _there(user, server_name)
            if not there:
                await fresh.demand(self, user)
                await start(self, user, server_name, display_name, options)
            elif isinstance(self, APIHandler):
                raise web.HTTPError(400, there)

    return wrapped


def leading_on(post: Start) -> Start:
    """The start form's `_post`: sent from a second tab, or again after a look back, it leads to the start that is under
    way, or through it to the server. The Hub answers 400."""

    @functools.wraps(post)
    async def wrapped(self: Any, user_name: str, server_name: str, display_name: str) -> None:
        try:
            await post(self, user_name=user_name, server_name=server_name, display_name=display_name)
        except web.HTTPError as error:
            user = self.find_user(user_name)
            if error.status_code != 400 or user is None or not _there(user, server_name):
                raise
            self.redirect(self._get_pending_url(user, server_name), status=303)

    return wrapped


def _there(user: Any, server_name: str) -> str:
    """Why nothing is to be started, in the Hub's words; empty where nothing is in the way."""
    spawner = user.spawners[server_name] if server_name in user.spawners else None
    if spawner is None:
        return ""
    if spawner.ready:
        return f"{spawner._log_name} is already running"
    return f"{spawner._log_name} is pending {spawner.pending}" if spawner.pending else ""
