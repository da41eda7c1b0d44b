"""Where the kit in a server that is to stop tells what it saves, and what it could not."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from quota.api import asked, shapes
from quota.api.base import operation
from quota.api.kit import KitHandler
from quota.api.operation import Access
from quota.farewells import KIT, NotStopping
from quota.i18n import _
from quota.reported import MOST_ROWS
from quota.web.problem import Problem, Why

#: Two lists of `MOST_ROWS` rows with long names fit.
LARGEST_REPORT = 512 * 1024


def _number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


_ROWS = f"Objects; {MOST_ROWS} are kept, and long texts are cut."


class FarewellReport(BaseModel):
    """What the kit saved so far. Rows of a wrong shape and fields that are not known are left out, not refused."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    state: Literal["saving", "done"]
    reason: str = ""
    saved: list[Any] = Field([], description=f"`kind`, `path`, `what`, `count`, `bytes`. {_ROWS}")
    lost: list[Any] = Field([], description=f"`kind`, `what`, `where`, `why`, `code`. {_ROWS}")
    saved_left_out: Any = Field(0, description="How many rows of `saved` the kit left out.")
    lost_left_out: Any = Field(0, description="How many rows of `lost` the kit left out.")
    resume: str | None = None
    seconds: Annotated[float | None, BeforeValidator(_number)] = None


class KitFarewell(KitHandler):
    """What is saved before a stop."""

    largest: ClassVar[int] = LARGEST_REPORT

    @operation(
        "Report of what a server saves before it stops",
        shapes.Farewell,
        body=FarewellReport,
        problems=(Why.NO_LEASE, Why.NOT_FOUND, Why.NOT_STOPPING, Why.TOO_OFTEN),
        access=Access.SERVER,
    )
    async def post(self) -> shapes.Farewell:
        """Once `state` is `done`, whoever stops the server need not wait any longer. Only while it is being stopped."""
        holder = await self.holder()
        self.slowly(self.parts.saves, holder)
        report = self.body(FarewellReport)
        lease = await self.lease_of(holder)
        done = report.state == "done"
        try:
            found = await self.in_thread(self.parts.farewells.heard, lease.id, report.model_dump(), done)
        except NotStopping:
            raise Problem(409, Why.NOT_STOPPING, _("Nobody has asked this server to stop.")) from None
        return shapes.Farewell(
            lease_id=lease.id, began_at=found.began_at, done_at=found.done_at, stop_after=lease.stop_after
        )


class KitUsed(KitHandler):
    """The server is used after all."""

    @operation(
        "The stop of an idle server is taken back",
        shapes.Kept,
        body=asked.Body,
        problems=(Why.NO_LEASE, Why.NOT_FOUND, Why.CHANGED, Why.TOO_OFTEN),
        access=Access.SERVER,
    )
    async def post(self) -> shapes.Kept:
        """Its user runs code in a server that is to stop for want of use, or at a time that they set: it runs on, if
        nothing of it was interrupted yet. Other stops are not taken back."""
        holder = await self.holder()
        self.slowly(self.parts.saves, holder)
        lease = await self.lease_of(holder)
        kept = await self.in_thread(self.parts.out.take_back, lease.id, KIT)
        return shapes.Kept(lease_id=kept.id, target=kept.target)
