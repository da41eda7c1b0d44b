"""Composes the dispatcher of scheduled starts, which runs in service `berth`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hub_config.deliver import outbox_of
from quota.dispatch import Dispatcher, Starter
from quota.inbox import Inbox
from quota.schedules import Schedules

if TYPE_CHECKING:
    from hub_config.compose import Parts


def dispatcher_of(made: Parts, hub: Starter) -> Dispatcher:
    """What makes scheduled starts."""
    inbox, outbox = Inbox(made.store, made.clock), outbox_of(made)
    return Dispatcher(
        schedules=Schedules(made.store, made.clock, made.settings.schedule.most),
        book=made.book,
        hub=hub,
        alerts=made.alerts,
        clock=made.clock,
        tell=outbox.put,
        language=lambda user: inbox.preference(user).language or made.settings.site.language,
        window=made.settings.schedule.window,
    )
