"""`[save]` of `berth.toml`: how long servers may save before they are ended, and how much of it is variables."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hub_config.settings_durations import Duration, DurationOrOff

#: Somebody looks at a page, or at a terminal, all the while.
LONGEST_BY_HAND = timedelta(minutes=2)
#: The device is held and charged all the while.
LONGEST = timedelta(minutes=30)


class SaveTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    grace: DurationOrOff = Field(
        timedelta(minutes=2),
        description="How long a server may save before a stop that nobody waits for (idle, max age, credit, drain …); "
        '"off": it is ended at once.',
    )
    by_hand: DurationOrOff = Field(
        timedelta(seconds=15),
        description="The same before a stop by its user, an administrator or the end of Berth itself; it is waited for "
        'only where there is something to save. "off": such a stop saves nothing.',
    )
    variables_mib: int = Field(
        2048, ge=0, le=1_048_576, description="MiB of variables that are saved of one server at most; 0 saves none."
    )
    variables_time: Duration = Field(
        timedelta(minutes=1), description="How long saving the variables of one server may take at most."
    )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        for name, longest in (("grace", LONGEST), ("by_hand", LONGEST_BY_HAND)):
            value: timedelta | None = getattr(self, name)
            if value is not None and value > longest:
                minutes = int(longest.total_seconds()) // 60
                raise ValueError(f'{name}: {int(value.total_seconds())} s is too long; write at most "{minutes} min"')
        return self

    def environment(self) -> dict[str, str]:
        """What the kit in a server reads."""
        return {
            "BERTH_SAVE_MOST_MIB": str(self.variables_mib),
            "BERTH_SAVE_SECONDS": str(int(self.variables_time.total_seconds())),
        }
