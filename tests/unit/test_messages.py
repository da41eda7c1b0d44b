"""Words for refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.errors import Reason, Refused
from spawner.messages import status, words

JUNK = st.one_of(st.none(), st.integers(), st.text(max_size=400), st.booleans(), st.lists(st.integers(), max_size=2))
KEYS = st.sampled_from(
    "profile known allowed limit used held asked free largest whole devices count out_of_service available needed "
    "option why name account tail exit_code seconds by ask payers unpaid".split()
)


ON_LAB = {"no-credit": ["lab pays", "0.00 credits left", "0.26", "another payer", "ask lead or an admin"]}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_with_a_remedy_and_a_status(reason: Reason) -> None:
    text = words(Refused(reason))
    assert text[0].isupper() and text.endswith(".")
    assert len(text.split(". ")) >= 2 or "choose" in text.lower(), f"{reason}: no remedy in {text!r}"
    assert "None" not in text
    assert 400 <= status(reason) < 600


@given(st.sampled_from(Reason), st.dictionaries(KEYS, JUNK))
def test_words_are_total_and_printable(reason: Reason, facts: dict[str, object]) -> None:
    text = words(Refused(reason, **facts))
    assert text
    assert len(text) < 1200
    assert "\n" not in text


@pytest.mark.parametrize(
    ("refused", "parts"),
    [
        (
            Refused(Reason.NO_ROOM, profile="gpu-1-2", asked=500, count=1, devices=2, free=500, largest=250, whole=0),
            ["1/2 GPU is not free", "1/4 GPU", "Choose a smaller profile"],
        ),
        (Refused(Reason.NO_ROOM, asked=1000, largest=0), ["1 GPU is not free", "Every device is taken"]),
        (Refused(Reason.NO_ROOM, asked=2000, largest=1000, whole=1), ["2 GPUs", "free on one machine: 1"]),
        (Refused(Reason.NO_ROOM, asked=125, largest=0, out_of_service=2), ["2 of the devices are out of service"]),
        (Refused(Reason.NO_ROOM, asked=125, largest=0, simulated=True), ["1/8 GPU (simulated) is not free"]),
        (Refused(Reason.NO_DEVICES, asked=1000, devices=0), ["1 GPU", "has none"]),
        (Refused(Reason.NO_DEVICES, asked=2000, devices=1, simulated=True), ["its 1 simulated GPU."]),
        (Refused(Reason.NO_DEVICES, asked=2000, devices=1), ["2 GPUs", "its 1 GPU"]),
        (Refused(Reason.NO_CREDIT, needed=250_001, available=120_000), ["0.12 credits", "0.26", "grant"]),
        (Refused(Reason.NO_CREDIT, needed=1, available=0, payers="group:lab"), ["another payer (group:lab)"]),
        (Refused(Reason.NO_CREDIT, needed=250_001, available=1, account="group:lab", ask="lead"), ON_LAB["no-credit"]),
        (Refused(Reason.MONTHLY_LIMIT, limit=7_000_000, used=1, account="group:lab"), ["lab", "7.00", "ask an admin"]),
        (Refused(Reason.PROFILE_FORBIDDEN, profile="gpu-2", account="group:lab", ask="lead"), ["lab", "gpu-2", "lead"]),
        (Refused(Reason.TOO_MANY_GPUS, limit=1, held=1, account="group:lab"), ["lab pays already", "another payer"]),
        (Refused(Reason.ACCOUNT_FORBIDDEN, account="bob", allowed="ada, group:lab"), ["“bob”", "ada, group:lab"]),
        (Refused(Reason.ACCOUNT_FORBIDDEN, account="group:b", unpaid="b"), ["The group b does not pay"]),
        (Refused(Reason.TOO_MANY_SERVERS, limit=2, held=2), ["(2)", "Stop one"]),
        (Refused(Reason.TOO_MANY_SERVERS, limit=0, held=0), ["may not run servers"]),
        (Refused(Reason.TOO_MANY_GPUS, limit=2000, held=1500, asked=1000), ["1 GPU", "2 GPUs", "1.5 GPU"]),
        (Refused(Reason.MONTHLY_LIMIT, limit=100_000_000, used=99_500_000), ["100.00", "99.50"]),
        (Refused(Reason.PROFILE_FORBIDDEN, profile="gpu-2", allowed="cpu, gpu-1"), ["gpu-2", "cpu, gpu-1"]),
        (Refused(Reason.PROFILE_UNKNOWN, profile="h100", known="cpu, gpu-1"), ["“h100”", "cpu, gpu-1"]),
        (Refused(Reason.START_FAILED, exit_code=3, tail="boom"), ["exit code 3", "boom", "Nothing is charged"]),
        (Refused(Reason.START_TIMEOUT, seconds=120), ["120 s"]),
        (Refused(Reason.USER_NAME_INVALID, name="a b", why="it contains ' '"), ["a b", "it contains ' '"]),
    ],
)
def test_numbers_are_told(refused: Refused, parts: list[str]) -> None:
    text = words(refused)
    for part in parts:
        assert part in text, text


def test_a_needed_hold_is_never_shown_as_nothing() -> None:
    assert "needs 0.01" in words(Refused(Reason.NO_CREDIT, needed=1, available=0))


def test_a_very_long_value_is_cut() -> None:
    assert len(words(Refused(Reason.OPTION_UNKNOWN, option="x" * 10_000))) < 300
