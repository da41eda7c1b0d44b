"""Which device gets which sharing mode, and how a site writes it."""

from __future__ import annotations

import pytest

from hub_config.settings import SettingsError, parse
from spawner.modes import DeviceRule, modes_of
from spawner.ports import GpuReading

BIG = GpuReading("GPU-aaaa", 0, "NVIDIA A100-SXM4-80GB", 81920, 0, 0, simulated=False)
SMALL = GpuReading("GPU-bbbb", 1, "NVIDIA A10", 24576, 0, 0, simulated=False)
NAMELESS = GpuReading("", 2, "", None, None, None, simulated=False, error="it does not answer")


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (DeviceRule("exclusive", uuid="gpu-AAAA"), {"GPU-aaaa"}),
        (DeviceRule("exclusive", name="nvidia a100*"), {"GPU-aaaa"}),
        (DeviceRule("exclusive", name="NVIDIA A10"), {"GPU-bbbb"}),
        (DeviceRule("exclusive", position=1), {"GPU-bbbb"}),
        (DeviceRule("exclusive", name="NVIDIA A10*", position=0), {"GPU-aaaa"}),
        (DeviceRule("exclusive", uuid="GPU-bbbb", position=0), set()),
    ],
)
def test_a_rule_names_devices(rule: DeviceRule, named: set[str]) -> None:
    assert modes_of([rule], [BIG, SMALL, NAMELESS]) == dict.fromkeys(named, "exclusive")


def test_the_first_rule_that_fits_counts() -> None:
    rules = [DeviceRule("time-slice", uuid="GPU-aaaa"), DeviceRule("exclusive", name="*")]
    assert modes_of(rules, [BIG, SMALL]) == {"GPU-aaaa": "time-slice", "GPU-bbbb": "exclusive"}


def test_the_settings_name_devices() -> None:
    settings = parse('[gpus]\n[[gpus.devices]]\nuuid = "GPU-aaaa"\nmode = "exclusive"\n')
    assert settings.gpus.rules == (DeviceRule("exclusive", uuid="GPU-aaaa"),)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('mode = "exclusive"', "it names no device"),
        ('uuid = "GPU-1"\nmode = "halves"', "'halves' does not do"),
        ('uid = "GPU-1"\nmode = "exclusive"', "did you mean 'uuid'"),
    ],
)
def test_what_is_wrong_is_told(table: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"gpus\.devices\[1\]") as caught:
        parse(f"[[gpus.devices]]\n{table}\n")
    assert words in str(caught.value)
