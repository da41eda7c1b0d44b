"""`[gpus]` and `[[gpus.devices]]` of `berth.toml`: the devices of this machine and how each is divided."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hub_config.settings_docker import tuples
from hub_config.settings_durations import Duration
from spawner.modes import DeviceRule
from spawner.watchdog import OverShare, Rule


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GpuDevice(_Table):
    mode: Literal["time-slice", "exclusive"] = Field(description="How it is divided, as `mode` of [gpus].")
    uuid: str = Field("", description='The device, as `nvidia-smi -L` names it ("GPU-…"); it never changes.')
    name: str = Field("", description='All devices of such a name; * stands for anything: "NVIDIA A100*".')
    position: int | None = Field(
        None, ge=0, le=255, description="The device at this place; places may change when the driver starts anew."
    )

    @model_validator(mode="after")
    def _names_one(self) -> GpuDevice:
        if not self.uuid and not self.name and self.position is None:
            raise ValueError("it names no device; write its uuid (see: nvidia-smi -L), a name or a position")
        return self

    @property
    def rule(self) -> DeviceRule:
        """As the agent applies it."""
        return DeviceRule(self.mode, self.uuid, self.name, self.position)


class Gpus(_Table):
    source: Literal["auto", "nvml", "simulated", "none"] = Field(
        "auto",
        description='"auto": real ones where an NVIDIA driver answers, else simulated ones; "nvml": real or none.',
    )
    simulated: int = Field(2, ge=0, le=64, description="How many devices to simulate where they are simulated.")
    mode: Literal["time-slice", "exclusive"] = Field(
        "time-slice",
        description='How devices are divided. "time-slice": shares by agreement only; "exclusive": whole devices only.',
    )
    over_share: Literal["off", "notice", "stop"] = Field(
        "stop",
        description="What is done about a server that uses more GPU memory than its share: nothing, a notice to its "
        "user, or a notice and then a stop.",
    )
    over_share_tolerance: int = Field(10, ge=0, le=100, description="Percent beyond its share that are let pass.")
    over_share_patience: Duration = Field(
        timedelta(minutes=2), description="How long after the notice a server that is still over is stopped."
    )
    devices: Annotated[tuple[GpuDevice, ...], BeforeValidator(tuples)] = Field(
        (), description="Devices that are divided otherwise; the first that fits counts."
    )

    @property
    def share_policy(self) -> OverShare:
        """As the watchdog applies it."""
        return OverShare(Rule(self.over_share), self.over_share_tolerance, self.over_share_patience)

    @property
    def rules(self) -> tuple[DeviceRule, ...]:
        """How devices are divided that `devices` names."""
        return tuple(each.rule for each in self.devices)
