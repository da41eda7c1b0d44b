"""Reading what the service answers, as a program or a person does."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx

CREDIT = 1_000_000
#: How a browser sends a form of the page it shows.
FORM = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}


def problem(answer: Any, status: int, reason: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert set(body) - {"request_id", "offer_seconds"} == {"type", "title", "status", "reason", "detail"}
    assert (body["status"], body["reason"]) == (status, reason)
    return body


class Words(HTMLParser):
    """The visible words of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def words(answer: httpx.Response) -> str:
    """What a page says, with plain single spaces."""
    assert answer.headers["content-type"].startswith("text/html"), answer.text
    reader = Words()
    reader.feed(answer.text)
    return re.sub(r"[\s\u00a0\u202f]+", " ", " ".join(reader.found))


def xsrf(answer: httpx.Response) -> str:
    found = re.search(r'name="_xsrf" value="([^"]+)"', answer.text)
    assert found, answer.text
    return found[1]


async def post(client: httpx.AsyncClient, page: str, path: str, **fields: Any) -> httpx.Response:
    """Send a form of a page, as a browser does."""
    token = xsrf(await client.get(page))
    return await client.post(path, data={"_xsrf": token, **fields}, headers=FORM)
