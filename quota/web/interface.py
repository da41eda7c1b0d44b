"""The page that tells what programs may ask: the REST interface for people, made of its own document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quota.web.base import endpoint
from quota.web.pages import PageHandler


@dataclass(frozen=True, slots=True)
class Row:
    """One operation in words."""

    verb: str
    path: str
    summary: str
    words: str
    asked: tuple[str, ...]
    body: tuple[str, ...]
    answers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Chapter:
    """Operations that belong together."""

    name: str
    words: str
    rows: tuple[Row, ...]


def chapters(document: Mapping[str, Any]) -> tuple[Chapter, ...]:
    """The document's operations by tag, in its order."""
    rows: dict[str, list[Row]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for verb, told in item.items():
            if verb != "parameters":
                rows[told["tags"][0]].append(_row(verb, path, told, document["components"]["schemas"]))
    return tuple(Chapter(tag["name"], tag["description"], tuple(rows[tag["name"]])) for tag in document["tags"])


def _row(verb: str, path: str, told: Mapping[str, Any], schemas: Mapping[str, Any]) -> Row:
    asked = (each.get("name") or each["$ref"].rpartition("/")[2] for each in told["parameters"])
    body = told["requestBody"]["content"]["application/json"]["schema"]["$ref"] if "requestBody" in told else ""
    fields = schemas[body.rpartition("/")[2]].get("properties", {}) if body else {}
    answers = ((status, answer["description"].replace("`", "")) for status, answer in told["responses"].items())
    return Row(
        verb=verb.upper(),
        path=path,
        summary=told["summary"],
        words=told["description"],
        asked=tuple("Idempotency-Key (header)" if name == "IdempotencyKey" else name for name in asked),
        body=tuple(fields),
        answers=tuple(answers),
    )


class Interface(PageHandler):
    @endpoint()
    async def get(self) -> None:
        document = self.application.settings["berth_document"]
        self.page(
            "interface.html",
            "REST",
            base=document["servers"][0]["url"],
            about=document["info"]["description"],
            chapters=chapters(document),
        )
