"""Calls of REST that the documents show are in its description, with fields that it takes, and answers as it gives."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from quota.api.document import document
from tests.architecture.source import ROOT

DOCUMENT = document("/services/berth/")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.M | re.S)
WRITTEN = {*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs/reference").glob("*.md")}
PAGES = sorted(page for page in WRITTEN if "$BERTH/" in page.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Call:
    """One curl of service berth: what it asks, and the answer that follows it as JSON, where one does."""

    verb: str
    path: str
    query: tuple[str, ...]
    body: Any
    answer: Any = None


def calls(text: str) -> Iterator[Call]:
    """The calls of a page in order."""
    asked: Call | None = None
    for language, block in FENCE.findall(text):
        if language == "json" and asked is not None:
            asked = Call(asked.verb, asked.path, asked.query, asked.body, json.loads(block))
        elif language == "sh":
            for line in block.replace("\\\n", " ").splitlines():
                if "curl" in line and "$BERTH/" in line:
                    if asked is not None:
                        yield asked
                    asked = call(shlex.split(line))
    if asked is not None:
        yield asked


def call(words: list[str]) -> Call:
    """What a curl line asks."""
    url = next(word for word in words if word.startswith("$BERTH/")).removeprefix("$BERTH")
    path, _, query = url.partition("?")
    verb = words[words.index("-X") + 1] if "-X" in words else "GET"
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    return Call(verb.lower(), path, tuple(part.partition("=")[0] for part in query.split("&") if part), body)


def operation(asked: Call) -> dict[str, Any]:
    """What the description says of it."""
    for path, item in DOCUMENT["paths"].items():
        if asked.verb in item and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), asked.path):
            return dict(item[asked.verb])
    raise AssertionError(f"there is no {asked.verb} {asked.path}")


def faults(value: Any, schema: Any) -> list[str]:
    whole = {**schema, "components": DOCUMENT["components"]}
    return [f"{fault.json_path}: {fault.message}" for fault in Draft202012Validator(whole).iter_errors(value)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_calls_and_answers_are_as_described(page: Path) -> None:
    found = list(calls(page.read_text(encoding="utf-8")))
    assert found
    for asked in found:
        told = operation(asked)
        if asked.body is not None:
            assert faults(asked.body, told["requestBody"]["content"]["application/json"]["schema"]) == [], asked
        answers = {
            status: schema["schema"]
            for status, each in told["responses"].items()
            for schema in each["content"].values()
        }
        refused = isinstance(asked.answer, dict) and "reason" in asked.answer
        known = {each.get("name") for each in told["parameters"]}
        assert refused or known >= {*asked.query}, asked
        if asked.answer is not None:
            status = str(asked.answer["status"]) if refused else next(code for code in answers if code < "300")
            assert faults(asked.answer, answers[status]) == [], asked


@pytest.mark.parametrize(
    "wrong",
    [
        '```sh\ncurl "$BERTH/leases/x/strop"\n```\n',
        '```sh\ncurl -X PUT -d \'{"max_gpus": 1}\' "$BERTH/accounts/*/limits"\n```\n',
        "```sh\ncurl $BERTH/prices\n```\n```json\n{}\n```\n",
        "```sh\ncurl $BERTH/leases?lim=1\n```\n",
    ],
)
def test_a_call_that_is_wrong_is_seen(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(wrong, encoding="utf-8")
    with pytest.raises(AssertionError):
        test_calls_and_answers_are_as_described(tmp_path / "page.md")
