"""What schemathesis checks besides its own rules; loaded by its command line (SCHEMATHESIS_HOOKS)."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import GenerationMode

#: What may be wrong with data that fits the document: it belongs to another moment, page or site, or is a number with
#: more places than a credit has, or two places of a request say different keys. JSON Schema cannot say these.
UNDERSTOOD = {"cursor-invalid", "date-invalid"}
BEYOND_SCHEMA = (
    "profiles:",
    "credits:",
    "before:",
    "profile:",
    "image:",
    "payer:",
    "server:",
    "email:",
    "chat:",
    "quiet:",
    "key: the Idempotency-Key header says",
)


@schemathesis.check
def what_fits_the_document_is_understood(ctx: Any, response: Any, case: Any) -> None:
    """Data made to fit the document is never refused as malformed."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE or response.status_code != 400:
        return
    told = response.json()
    known = told["reason"] in UNDERSTOOD or told["detail"].startswith(BEYOND_SCHEMA)
    assert known, f"fits the document, and was refused: {told}"


@schemathesis.check
def an_error_is_a_problem_with_a_reason(ctx: Any, response: Any, case: Any) -> None:
    """Also where an address or a method is not in the document at all."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == ["application/problem+json"], response.headers
    told = response.json()
    assert told["status"] == response.status_code
    assert told["reason"] and told["title"] and told["detail"]
