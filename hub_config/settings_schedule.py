"""`[schedule]` of `berth.toml`: starts that users ask for at a time."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hub_config.settings_durations import Duration

SHORTEST, LONGEST = timedelta(seconds=5), timedelta(hours=4)


class ScheduleTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    most: int = Field(
        10, ge=0, le=200, description="Starts at a time that one user may have waiting; 0: nobody schedules any."
    )
    window: Duration = Field(
        timedelta(minutes=10),
        description="For so long a start that is refused or fails is tried again, until it is given up; one that Berth "
        "was not there for is missed after that.",
    )

    @field_validator("window")
    @classmethod
    def _bounds(cls, value: timedelta) -> timedelta:
        if not SHORTEST <= value <= LONGEST:
            raise ValueError('write 5 s at least and 4 h at most, such as "10 min"')
        return value
