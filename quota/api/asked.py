"""What REST may be asked: parameters and bodies as models, which check, and from which the document is made.

Bodies are strict (no "5" for 5, no true for 1) and know no other fields; parameters are text and strict alike.
A wrong value becomes a `Problem` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from quota.i18n import _
from quota.said import sentences
from quota.units import MicroCredits
from quota.web import fields
from quota.web.problem import Problem, Why

LARGEST_PAGE = 500
PAGE = 100
#: A GPU limit above this says nothing: 10 000 GPUs.
MOST_GPU_MILLI = 10_000_000
MOST_SERVERS = 100_000
DEAREST = 10**12
MOST_KERNELS = 500
MOST_TERMINALS = 10_000
#: Processes and cells that a kit counts; beyond that it does not matter how many there are.
MOST_COUNTED = 1_000_000
LEASE_ID = r"l[0-9a-f]{16}"
#: An idempotency key: printable ASCII, no space at its ends (HTTP would drop it).
LONGEST_KEY = 200
KEY_PATTERN = r"[!-~]([ -~]*[!-~])?"

M = TypeVar("M", bound=BaseModel)


# ---- parameters of the address ----


class Parameters(BaseModel):
    """Parameters of an address; here none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _digits(value: object) -> int:
    """Plain ASCII digits. Raises `ValueError`."""
    if isinstance(value, int):  # the default
        return value
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError(_("a whole number is needed"))
    return int(value)


def _name(value: str) -> str:
    if not fields.is_name(value):
        raise ValueError(_("this is no name"))
    return value


_NAME = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\u0000-\u001f\u007f/]+$"}
Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_name), WithJsonSchema(_NAME)]
_MOMENT: dict[str, Any] = {"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}]}
#: Read in the site's time zone, so by the handler; what is wrong with it is `date-invalid`.
Moment = Annotated[str, WithJsonSchema(_MOMENT)]
_BEFORE = {"type": "string", "anyOf": [*_MOMENT["anyOf"], {"pattern": f"^{LEASE_ID}$"}]}
Before = Annotated[str, WithJsonSchema(_BEFORE)]


class Paged(Parameters):
    """How much of a list, and where it goes on."""

    limit: Annotated[int, BeforeValidator(_digits)] = Field(
        PAGE, ge=1, le=LARGEST_PAGE, description="How many items a page has at most."
    )
    cursor: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="`next` of the page before, with the same other parameters.",
    )


class AskedLeases(Paged):
    user: Name | None = Field(None, description="Whose servers; of everybody where it is absent (administrators).")
    before: Before | None = Field(
        None, description="Only older ones than this lease (its id), or than this moment. Not with a cursor."
    )


class AskedAccounts(Paged):
    search: Name | None = Field(None, description="Only names that contain this, in any case.")


class AskedUsage(Paged):
    """A stretch of time."""

    from_: Moment | None = Field(
        None, alias="from", description="The first moment, or the day that begins it in the site's time zone."
    )
    to: Moment | None = Field(None, description="The moment after the last, or the day that it begins.")


class AskedMine(AskedUsage):
    payer: Name | None = Field(None, description="The account that paid, such as `group:lab-a`; by default one's own.")


# ---- bodies ----


def _whole(value: object) -> object:
    """A JSON number that is whole: to JSON Schema 5.0 is the integer 5 as well. The rest is for the model to judge."""
    if isinstance(value, Decimal) and value.adjusted() < 20 and value == value.to_integral_value():
        return int(value)
    return value


def whole_between(low: int, high: int) -> tuple[Any, BeforeValidator]:
    """A whole number in low..high."""
    return Field(ge=low, le=high), BeforeValidator(_whole)


Micro = Annotated[int, *whole_between(0, fields.LARGEST_AMOUNT)]
SomeMicro = Annotated[int, *whole_between(1, fields.LARGEST_AMOUNT)]
Servers = Annotated[int, *whole_between(0, MOST_SERVERS)]
Milli = Annotated[int, *whole_between(0, MOST_GPU_MILLI)]
PerHour = Annotated[int, *whole_between(0, DEAREST)]
Terminals = Annotated[int, *whole_between(0, MOST_TERMINALS)]
#: A kit that does not know, or is too old to tell, says null or nothing.
Counted = Annotated[int | None, *whole_between(0, MOST_COUNTED)]


class Body(BaseModel):
    """A body; here an object without fields, which may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def text_field(name: str, longest: int) -> tuple[BeforeValidator, WithJsonSchema]:
    """A text field without control characters, as `fields.text` reads it."""
    schema = {"type": "string", "maxLength": longest, "pattern": r"^[^\u0000-\u0008\u000b-\u001f\u007f]*$"}
    return BeforeValidator(lambda value: fields.text({name: value}, name, longest)), WithJsonSchema(schema)


def _credits(value: object) -> MicroCredits | None:
    return None if value is None else fields.credits_of(value, "credits")


#: What `fields.credits_of` reads.
_CREDITS = {
    "anyOf": [
        {"type": "string", "pattern": r"^\+?[0-9]{1,10}(\.[0-9]{0,6})?$"},
        {"type": "number", "exclusiveMinimum": 0, "maximum": fields.LARGEST_AMOUNT // 10**6},
        {"type": "null"},
    ],
    "description": 'Credits as a person writes them: "12.5", at most six places.',
    "examples": ["12.5"],
}
Credits = Annotated[int | None, BeforeValidator(_credits), WithJsonSchema(_CREDITS)]
Note = Annotated[str, *text_field("note", 500)]
KernelId = Annotated[str, *text_field("id", 128)]
_MICRO: JsonDict = {"properties": {"amount_micro_credits": {"type": "integer"}}, "required": ["amount_micro_credits"]}
_PLAIN: JsonDict = {"properties": {"credits": {"type": ["string", "number"]}}, "required": ["credits"]}


class Amount(Body):
    """An amount: `amount_micro_credits` (an integer) or `credits` ("12.5")."""

    amount_micro_credits: SomeMicro | None = None
    credits: Credits = None
    note: Note = ""

    _needed: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        """Raises `Problem`."""
        given = [value for value in (self.amount_micro_credits, self.credits) if value is not None]
        if len(given) > 1 or (self._needed and not given):
            raise fields.wrong("amount_micro_credits", _("give either this (an integer) or credits (such as 12.5)"))
        if given and given[0] <= 0:
            raise fields.wrong("credits", _("an amount above zero is needed"))
        return self

    @property
    def amount(self) -> MicroCredits | None:
        """What was given, above zero; None where nothing was."""
        value = self.credits if self.amount_micro_credits is None else self.amount_micro_credits
        return None if value is None else MicroCredits(value)


class NewGrant(Amount):
    """A grant of one amount. `key` is what the Idempotency-Key header says, for clients that cannot send it."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_MICRO, _PLAIN]})
    _needed: ClassVar[bool] = True

    key: str | None = Field(None, min_length=1, max_length=LONGEST_KEY, pattern=f"^{KEY_PATTERN}$")


class NewRefund(Amount):
    """A refund: wholly where no amount is given, never above what was charged."""

    model_config = ConfigDict(json_schema_extra={"not": {"allOf": [_MICRO, _PLAIN]}})


class NewLimits(Body):
    """Limits to change; null is no limit, what is absent stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max_servers: Servers | None = None
    max_gpu_milli: Milli | None = None
    monthly_micro_credits: Micro | None = None
    profiles: list[str] | None = Field(None, description="Names of profiles.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        """Raises `Problem`."""
        if not self.model_fields_set:
            raise fields.wrong("limits", _("nothing to set was sent"))
        return self

    def changes(self, known: set[str]) -> dict[str, object]:
        """What was sent, in the book's words. Raises `Problem` for a profile that is not in the menu."""
        strange = sorted(set(self.profiles or ()) - known)
        if strange:
            raise fields.wrong(
                "profiles",
                _(
                    "%(name)s is no profile; known: %(names)s",
                    name=repr(strange[0][:40]),
                    names=", ".join(sorted(known)),
                ),
            )
        words = {"monthly_micro_credits": "monthly_micro"}
        sent = {words.get(name, name): getattr(self, name) for name in self.model_fields_set}
        if sent.get("profiles") is not None:
            sent["profiles"] = frozenset(sent["profiles"])
        return sent


class NewMonthlyGrant(Body):
    """What is given each month from the next one on; 0 is nothing."""

    micro_credits: Micro


class NewPrices(Body):
    """Prices of leases from now on; those that exist keep theirs."""

    gpu_hour_micro_credits: PerHour
    cpu_hour_micro_credits: PerHour


def _past(value: object) -> datetime | None:
    """A time of a server's own clock, RFC 3339 with its zone. Raises `Problem`."""
    if value is None:
        return None
    try:
        if not isinstance(value, str) or len(value) > 64:
            raise ValueError
        moment = datetime.fromisoformat(value.upper())
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem(400, Why.DATE_INVALID, _("An RFC 3339 time with its zone, or null, is needed.")) from None


def moment_of(value: object) -> datetime:
    """A time, RFC 3339 with its zone. Raises `Problem`."""
    found = _past(value)
    if found is None:
        raise Problem(400, Why.DATE_INVALID, _("An RFC 3339 time with its zone is needed."))
    return found


_TIME = {"anyOf": [{"type": "string", "format": "date-time", "maxLength": 64}, {"type": "null"}]}
ServerTime = Annotated[datetime | None, BeforeValidator(_past), WithJsonSchema(_TIME)]


class Kernel(BaseModel):
    """A kernel as its server sees it; `busy` null is unknown. Times after now count as now."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: KernelId = ""
    busy: bool | None = None
    last_execute_at: ServerTime = None
    busy_since: ServerTime = None


class Report(BaseModel):
    """What the kit in a server reports. What a newer kit may say besides is left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    kernels: list[Kernel] = Field(max_length=MOST_KERNELS)
    terminals: Terminals
    children: Counted = Field(None, description="Terminals in which a program runs.")
    background: Counted = Field(None, description="Processes that are neither kernels nor terminals' shells.")
    saved_at: ServerTime = Field(None, description="When a person last saved something new.")
    unsaved: Counted = Field(None, description="Cells whose outputs are in no file yet.")


# ---- reading them ----


def read_key(header: str | None, content: Mapping[str, Any]) -> str | None:
    """The idempotency key of the header, None where there is none. Raises `Problem` for a bad one, and where the body
    says another."""
    if header is None:
        return None
    if len(header) > LONGEST_KEY or not re.fullmatch(KEY_PATTERN, header):
        raise fields.wrong(
            "Idempotency-Key", _("1 to %(number)s printable ASCII characters are needed", number=LONGEST_KEY)
        )
    if content.get("key", header) not in (None, header):
        raise fields.wrong("key", _("the Idempotency-Key header says another one"))
    return header


def read(model: type[M], content: Mapping[str, Any], kind: str = "field") -> M:
    """`content` as the model. Raises `Problem` (400) that names the first wrong field and never repeats its value."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _problem(model, error, kind) from None


def _problem(model: type[BaseModel], error: ValidationError, kind: str) -> Problem:
    first = min(
        error.errors(include_url=False, include_input=False), key=lambda each: each["type"] != "extra_forbidden"
    )
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = ", ".join(field.alias or name for name, field in model.model_fields.items())
        words = _("Known: %(names)s.", names=known) if known else _("None is needed.")
        shown = repr(where[:40])
        no = (
            _("%(name)s is no parameter here.", name=shown)
            if kind == "parameter"
            else _("%(name)s is no field here.", name=shown)
        )
        return Problem(400, Why.FIELD_UNKNOWN, sentences(no, words))
    words = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return fields.wrong(where[:80], words)
