"""The tables `[notices]`, `[mail]` and `[chat]` of `berth.toml`: how people are told."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from hub_config.settings_durations import Duration
from quota.routing import is_email

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?", re.ASCII)


def _email(value: str) -> str:
    if value and not is_email(value):
        raise ValueError(f'{value!r} is no mail address; write one such as "berth@example.org"')
    return value


def _domain(value: str) -> str:
    if value and not is_email(f"user@{value}"):
        raise ValueError(f'{value!r} is no domain of mail addresses; write one such as "example.org"')
    return value


def _host(value: str) -> str:
    if value and not _HOST.fullmatch(value):
        raise ValueError(f'{value!r} is no name of a host; write one such as "mail.example.org"')
    return value


Email = Annotated[str, AfterValidator(_email)]
Host = Annotated[str, AfterValidator(_host)]


#: What is told is looked at for days; a year is the longest that `berth.toml` can say.
SHORTEST_KEPT = timedelta(days=7)


class NoticesTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    keep: Duration = Field(
        timedelta(days=90), description="For so long notices stay on people's pages, and what became of each."
    )

    @field_validator("keep")
    @classmethod
    def _bounds(cls, value: timedelta) -> timedelta:
        if value < SHORTEST_KEPT:
            raise ValueError('write 7 d at least, such as "90 d"')
        return value


class MailTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    host: Host = Field("", description="The mail server; empty: nobody is written mail.")
    port: int = Field(587, ge=1, le=65535, description="Its port.")
    security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description='"starttls", "tls" from the first byte, or "none" for a server on this machine.'
    )
    user: str = Field("", max_length=255, description="As whom Berth logs in there; empty: it does not.")
    password_file: str = Field(
        "", description="A file with its password; BERTH_MAIL_SECRET in the environment goes before it."
    )
    sender: Email = Field("", description="From whom the mails are.")
    domain: Annotated[str, AfterValidator(_domain)] = Field(
        "", description='A user who named no address is written to at USER@ this, e.g. "example.org".'
    )
    own_addresses: bool = Field(True, description="Whether users may name an address of their own.")
    admins: tuple[Email, ...] = Field((), strict=False, description="Who is written about alerts and appeals.")

    @model_validator(mode="after")
    def _whole(self) -> MailTable:
        if self.host and not self.sender:
            raise ValueError('sender: a mail needs one; write one such as "berth@example.org"')
        if self.user and self.security == "none" and self.host not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError('security: with "none" the password would cross the network in the clear; use "starttls"')
        return self


class ChatTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    users: bool = Field(True, description="Whether users may be told in a chat whose webhook they name.")
    hosts: tuple[Host, ...] = Field(
        (), strict=False, description="Hosts of your own network that webhooks may lie on; public ones need no entry."
    )
    plain_http: bool = Field(False, description="Whether webhooks may be http:// as well.")
    admin_file: str = Field("", description="A file with the webhook of the administrators' chat.")
