"""Hands notices to the site's own function: one channel of the outbox beside mail and chat, bounded in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

from hub_config.site_calls import AlertBoard, SiteFailed, SiteFunction
from quota.delivery import Message, Undelivered
from quota.errors import Refused
from quota.routing import SITE
from quota.told import retold

DELIVERY_SECONDS: Final = 30.0


class SiteChannel:
    """A `quota.delivery.Channel` before one function of the site, which is given each notice at most once: one that it
    failed at may have gone out, and only the function knows."""

    name: ClassVar[str] = SITE
    idempotent: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    joins: ClassVar[bool] = False

    def __init__(
        self, own: Callable[..., Any], alerts: AlertBoard | None = None, seconds: float = DELIVERY_SECONDS
    ) -> None:
        self._site = SiteFunction("notify", own, seconds, alerts)

    def send(self, message: Message) -> None:
        """Raises `Undelivered`, always final once the function was called."""
        message.begin()
        for notice in message.notices:
            try:
                self._site.call(lambda answer: answer, replace(notice, words=retold(notice.words)))
            except (SiteFailed, Refused) as error:
                raise Undelivered(str(error), final=True) from None
