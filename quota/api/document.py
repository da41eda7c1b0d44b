"""The OpenAPI 3.1 document, made of the routes and of what each verb promises. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from quota.api.asked import KEY_PATTERN, LONGEST_KEY, Paged, Parameters
from quota.api.operation import Access, Operation
from quota.api.routes import ADDRESSES, PATH_PARAMETERS
from quota.api.shapes import Fault
from quota.errors import Reason
from quota.web.problem import TITLES, Why

Json = dict[str, Any]

VERBS = ("get", "put", "post", "delete", "patch", "head", "options")
JSON, PROBLEM = "application/json", "application/problem+json"
_REF = "#/components/schemas/{model}"
_TAGS = {
    "me": "Who asks, and what they used.",
    "leases": "Who holds what: look, stop, refund.",
    "appeals": "Stops that users say were wrong.",
    "scheduled-starts": "Starts at a time that one chose.",
    "notices": "What one was told, and how one is told.",
    "accounts": "Who pays: balances, grants, limits.",
    "groups": "Groups that pay, and who used what of them.",
    "site": "What there is: the menu, prices, devices.",
    "kit": "For the kit inside a user's server.",
}

ABOUT = """What Berth's pages show and do, for programs.

Send a token of the Hub (its *Token* page) as `Authorization: Bearer TOKEN`. Times are RFC 3339 in UTC, GPU-time is in
`milli_gpu_seconds`, money in `micro_credits`, all integers; unknown is null. Lists come in pages: go on with `next` as
`cursor`, until it is null. A POST that spends or creates takes an `Idempotency-Key`: the same request under the same
key has one effect and, for a week, one answer. Errors are `application/problem+json` (RFC 9457) with a `reason` for
programs. Unknown fields and parameters are refused; answers may grow new fields. A server is started by the Hub's own
REST interface.
"""


def operations() -> Iterator[tuple[str, str, Operation]]:
    """Address, verb and promise of everything there is."""
    for address, handler in ADDRESSES.items():
        for verb in VERBS:
            spec = getattr(getattr(handler, verb), "operation", None)
            if spec is not None:
                yield address, verb, spec


def all_reasons() -> list[str]:
    """Every reason that an error may carry."""
    return sorted({reason.value for reason in (*Why, *Reason)})


@cache
def _version() -> str:
    try:
        return version("berth")
    except PackageNotFoundError:
        return "0"


def document(prefix: str, title: str = "Berth") -> Json:
    """The whole document; `prefix` is the service's ("/services/berth/")."""
    paths: dict[str, Json] = {}
    for address, verb, spec in operations():
        paths.setdefault("/" + address, _shared(address))[verb] = _operation(address, verb, spec)
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{title}: REST", "version": _version(), "description": ABOUT, "license": _LICENSE},
        "servers": [{"url": prefix.rstrip("/") + "/api/v1"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": _SECURITY, "parameters": {"IdempotencyKey": _KEY}},
    }


_LICENSE = {"name": "BSD 3-Clause", "identifier": "BSD-3-Clause"}
_SECURITY: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the Hub, from its Token page. `Authorization: token …` is understood as well.",
    },
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "service-berth",
        "description": "The cookie of the pages. It counts only together with the XSRF token.",
    },
    "xsrf": {
        "type": "apiKey",
        "in": "header",
        "name": "X-XSRFToken",
        "description": "The value of the cookie `_xsrf` that the pages set.",
    },
    "server": {
        "type": "http",
        "scheme": "bearer",
        "description": "The own token of one running server (`JUPYTERHUB_API_TOKEN` in it).",
    },
}
_ACCESS: Mapping[Access, list[Json]] = {
    Access.ANYBODY: [],
    Access.USER: [{"token": []}, {"cookie": [], "xsrf": []}],
    Access.ADMIN: [{"token": []}, {"cookie": [], "xsrf": []}],
    Access.SERVER: [{"server": []}],
}
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A name that you choose for this one request (a UUID, say). Keys of two users never meet.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": f"^{KEY_PATTERN}$"},
}
_HEADERS: Mapping[str, Json] = {
    "Link": {"description": 'The next page: `<…>; rel="next"`. Absent at the end.', "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true`: the answer that this request had before; nothing was done again.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Retry-After": {"description": "Seconds to wait before the next try.", "schema": {"type": "string"}},
    "X-Request-Id": {"description": "Names the request in the service's logs.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "How to say who asks.", "schema": {"type": "string"}},
}
#: Said with every answer.
_EVERY = "X-Request-Id"
_MAY_WAIT = frozenset({409, 429, 502, 503})
#: Statuses of errors that come from what was asked for, and are kept under a key.
_KEPT = frozenset({403, 404, 409})


def _shared(address: str) -> Json:
    names = re.findall(r"\{(\w+)\}", address)
    found = [{"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name][1]} for name in names]
    return {"parameters": found} if found else {}


def _operation(address: str, verb: str, spec: Operation) -> Json:
    tag = address.partition("/")[0]
    words = spec.words if spec.access is not Access.ADMIN else f"{spec.words} For administrators.".strip()
    found: Json = {
        "operationId": "_".join([verb, *re.findall(r"\w+", address)]),
        "tags": [tag if tag in _TAGS else "site"],
        "summary": spec.summary,
        "description": words,
        "security": _ACCESS[spec.access],
        "parameters": list(_parameters(spec.query)),
        "responses": _responses(spec),
    }
    if spec.keyed:
        found["parameters"].append({"$ref": "#/components/parameters/IdempotencyKey"})
    if spec.body is not None:
        schema = spec.body.model_json_schema()
        needed = bool(schema.get("required") or schema.get("minProperties") or schema.get("oneOf"))
        found["requestBody"] = {"required": needed, "content": {JSON: {"schema": _ref(spec.body)}}}
    return found


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": _REF.format(model=model.__name__)}


def _parameters(query: type[Parameters]) -> Iterator[Json]:
    for name, schema in query.model_json_schema(by_alias=True).get("properties", {}).items():
        words = schema.pop("description", "")
        schema.pop("title", None)
        if schema.get("default", 0) is None:
            del schema["default"]
        branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
        if len(branches) == 1:  # absent is not null in an address
            schema = {**branches[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
        elif branches:
            schema["anyOf"] = branches
        yield {"name": name, "in": "query", "description": words, "schema": schema}


def _responses(spec: Operation) -> Json:
    found: Json = {}
    for status, model in sorted(spec.answers.items()):
        headers = ["Link"] if issubclass(spec.query, Paged) else []
        headers += ["Idempotency-Replayed"] if spec.keyed else []
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {JSON: {"schema": _ref(model)}},
            "headers": {name: _HEADERS[name] for name in (*headers, _EVERY)},
        }
    for status, reasons in spec.reasons.items():
        headers = ["Retry-After"] if status in _MAY_WAIT else ["WWW-Authenticate"] if status == 401 else []
        headers += ["Idempotency-Replayed"] if spec.keyed and status in _KEPT else []
        narrow = {"properties": {"status": {"const": status}, "reason": {"enum": list(reasons)}}}
        found[str(status)] = {
            "description": f"{TITLES[status]}: {', '.join(f'`{reason}`' for reason in reasons)}",
            "content": {PROBLEM: {"schema": {"allOf": [{"$ref": _REF.format(model="Problem")}, narrow]}}},
            "headers": {name: _HEADERS[name] for name in (*headers, _EVERY)},
        }
    return found


def _schemas() -> Json:
    models: dict[tuple[type[BaseModel], Any], None] = {}
    for _, _, spec in operations():
        models |= {(model, "serialization"): None for model in spec.answers.values()}
        if spec.body is not None:
            models[(spec.body, "validation")] = None
    _, found = models_json_schema(list(models), by_alias=True, ref_template=_REF)
    schemas: Json = dict(sorted(found["$defs"].items()))
    schemas["Problem"] = _problem_schema()
    return schemas


def _problem_schema() -> Json:
    """The error of all answers. `request_id` is there where the request has one."""
    schema = Fault.model_json_schema(mode="serialization")
    schema["title"] = "Problem"
    schema["properties"]["reason"] = {"type": "string", "enum": all_reasons(), "description": "For programs."}
    schema["properties"]["detail"]["description"] = "A sentence for people. It may change."
    schema["properties"]["request_id"] = {"type": "string", "description": "Names the request in the service's log."}
    return schema
