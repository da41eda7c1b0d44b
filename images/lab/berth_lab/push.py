"""Tell service `berth` what the kernels do: every few seconds, and soon after a change. Never disturbs the server."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest

log = logging.getLogger("berth_lab")

INTERVAL_SECONDS = 10.0
DEBOUNCE_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
#: The service takes 64 KiB; a report is about 180 bytes a kernel.
MOST_KERNELS = 300


def bounded(report: dict[str, Any]) -> dict[str, Any]:
    """The report, within what the service takes: busy and unknown kernels first, then the most recently used."""

    def rank(kernel: dict[str, Any]) -> tuple[bool, str]:
        return kernel["busy"] is not False, kernel["last_execute_at"] or ""

    kernels = sorted(report["kernels"], key=rank, reverse=True)
    return {**report, "kernels": kernels[:MOST_KERNELS]}


class Push:
    """Posts `read()` to `{service}/api/v1/kit/signals`; what fails is tried again with the next round."""

    def __init__(self, service: str, token: str, read: Callable[[], dict[str, Any]]) -> None:
        self._url = service.rstrip("/") + "/api/v1/kit/signals"
        self._token = token
        self._read = read
        self._wake = asyncio.Event()
        self._client = AsyncHTTPClient(force_instance=True, defaults={"follow_redirects": False})

    def changed(self) -> None:
        """Something worth telling soon."""
        self._wake.set()

    async def run(self) -> None:
        """Push until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._send()
                try:
                    await asyncio.wait_for(self._wake.wait(), INTERVAL_SECONDS)
                except TimeoutError:
                    continue
                await asyncio.sleep(DEBOUNCE_SECONDS)
        finally:
            self._client.close()

    async def _send(self) -> None:
        request_id = secrets.token_hex(16)  # as service `berth` will log it
        try:
            await self._client.fetch(
                HTTPRequest(
                    self._url,
                    method="POST",
                    headers={
                        "Authorization": f"token {self._token}",
                        "Content-Type": "application/json",
                        "X-Request-Id": request_id,
                    },
                    body=json.dumps(bounded(self._read())),
                    connect_timeout=TIMEOUT_SECONDS,
                    request_timeout=TIMEOUT_SECONDS,
                )
            )
        except Exception as error:  # the service restarts, the network hiccups: the notebook must not notice
            log.debug("signals were not taken: %s (request %s)", error, request_id)
