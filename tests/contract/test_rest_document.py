"""The OpenAPI document tells everything that REST does, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tornado.web import RequestHandler

from quota.api import ADDRESSES, API_ROUTES, document
from quota.api.document import VERBS, operations
from quota.errors import Reason
from quota.web.problem import STATUS, TITLES, Why, status_of
from tests.contract.service_reading import words
from tests.fakes.book import open_desk
from tests.fakes.service import Service, open_service

DOCUMENT = document("/services/berth/", "A site")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        async with open_service(desk) as found:
            yield found


def test_the_document_is_valid_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_route_and_verb_is_in_the_document_and_nothing_else() -> None:
    nothing = RequestHandler._unimplemented_method
    offered = {
        ("/" + address, verb)
        for address, handler in ADDRESSES.items()
        for verb in VERBS
        if getattr(handler, verb) is not nothing
    }
    told = {(path, verb) for path, item in DOCUMENT["paths"].items() for verb in item if verb in VERBS}
    assert told == offered
    assert len(API_ROUTES) == len(ADDRESSES) == len(DOCUMENT["paths"])
    assert [handler for _, handler in API_ROUTES] == list(ADDRESSES.values())


def test_every_reason_is_listed() -> None:
    listed = DOCUMENT["components"]["schemas"]["Problem"]["properties"]["reason"]["enum"]
    assert set(listed) == {reason.value for reason in (*Why, *Reason)}


def test_every_reason_has_one_status_with_a_title() -> None:
    assert set(STATUS) == set(Why)
    assert {status_of(reason) for reason in (*Why, *Reason)} <= set(TITLES)


def test_every_operation_says_what_a_newcomer_needs() -> None:
    seen = set()
    for address, verb, spec in operations():
        found = DOCUMENT["paths"]["/" + address][verb]
        assert found["summary"] and found["description"], (address, verb)
        assert found["operationId"] not in seen
        seen.add(found["operationId"])
        assert set(found["responses"]) == {str(status) for status in (*spec.answers, *spec.reasons)}
        for status, answer in found["responses"].items():
            kind = "application/json" if int(status) < 400 else "application/problem+json"
            assert list(answer["content"]) == [kind]
    assert len(seen) > 15


def test_every_list_has_pages() -> None:
    """An answer with `items` has `next`, and its address takes a limit and a cursor."""
    lists = 0
    for address, verb, spec in operations():
        for model in spec.answers.values():
            if "items" in model.model_fields:
                lists += 1
                names = {each.get("name") for each in DOCUMENT["paths"]["/" + address][verb]["parameters"]}
                assert {"limit", "cursor"} <= names
                assert "next" in model.model_fields
    assert lists == 11


def test_every_post_that_creates_or_spends_takes_a_key() -> None:
    for address, verb, spec in operations():
        if verb == "post" and not address.startswith("kit/"):
            parameters = DOCUMENT["paths"]["/" + address]["post"]["parameters"]
            assert {"$ref": "#/components/parameters/IdempotencyKey"} in parameters
            assert spec.keyed


async def test_it_is_served_without_log_in(service: Service) -> None:
    answer = await service.api().get("openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    assert found == json.loads(json.dumps(document("/services/berth/", "Berth")))
    assert found["servers"] == [{"url": "/services/berth/api/v1"}]


async def test_the_page_tells_every_operation(service: Service) -> None:
    service.hub.add_user("alice")
    page = await service.browser("alice").get("api")
    assert page.status_code == 200
    text = words(page)
    for address, verb, spec in operations():
        assert f"{verb.upper()} /{address}" in text
        assert spec.summary in text
    assert "openapi.json" in page.text
