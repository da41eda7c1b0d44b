"""What a provider says about a person, in Berth's words: who it is, and what its groups mean here. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hub_config.settings_auth import AuthGroup


@dataclass(frozen=True, slots=True)
class Identity:
    """A person at a provider. Names change hands; the issuer's subject does not (OpenID Connect Core 1.0, 5.7)."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True)
class Membership:
    """What the groups of a person mean here: names of `[[groups]]`, whether admin, whether any is listed at all."""

    groups: tuple[str, ...] = ()
    admin: bool = False
    listed: bool = False


def membership(table: Iterable[AuthGroup], ids: Collection[str]) -> Membership:
    """By the ids of a person's groups at the provider. Groups that `berth.toml` does not list mean nothing."""
    hits = [each for each in table if each.id in ids]
    names = dict.fromkeys(each.group for each in hits if each.group)
    return Membership(tuple(names), any(each.admin for each in hits), bool(hits))


def ids_in(claim: Any) -> frozenset[str]:
    """The ids in a groups claim: a list of texts or numbers, or a single one. What is neither names no group: a
    provider that says nothing about groups opens nothing."""
    values = claim if isinstance(claim, list | tuple) else [claim]
    return frozenset(
        str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    )


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path with dots such as `realm_access.roles`; None where there is none. A name that
    has dots itself, such as a URL, goes first."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def subject_of(claims: Mapping[str, Any]) -> str:
    """The provider's id of the person: `sub`, or `id` where there is no OpenID Connect. Raises `ValueError`."""
    value = claims.get("sub") or claims.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value):
        raise ValueError("the provider does not say who this is: there is neither sub nor id in its answer")
    return str(value)
