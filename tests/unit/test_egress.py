"""The rules say what they should, whatever they are made from; the real packet filter is tests/docker_engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawner import fence
from spawner.egress import METADATA, Egress, Fence, chains, jumps, rules
from spawner.fencing import EGRESS_LABEL, admitted

FENCE = Fence("abc123", "berth-abc123", "10.9.0.1", (8081, 8090), ("192.0.2.7/32",), ("192.0.2.53",))
ADDRESSES = st.integers(2, 254).map(lambda last: f"10.9.0.{last}")


def through(text: str) -> list[str]:
    chain = chains(FENCE.deployment)[1]
    return [line for line in text.splitlines() if line.startswith(f"-A {chain}")]


@given(st.dictionaries(ADDRESSES, st.sampled_from(Egress)))
def test_metadata_and_neighbours_are_refused_before_anybody_is_let_through(admitted: dict[str, Egress]) -> None:
    lines = through(rules(FENCE, admitted))
    first = next((number for number, line in enumerate(lines) if " -s " in line), len(lines))
    before = "\n".join(lines[:first])
    assert all(f"-d {network} -j REJECT" in before for network in METADATA)
    assert f"-o {FENCE.bridge} -j REJECT" in before
    assert lines[-1].endswith("-F -j REJECT")


@given(st.dictionaries(ADDRESSES, st.sampled_from(Egress)))
def test_only_an_open_server_is_let_through_to_everywhere(admitted: dict[str, Egress]) -> None:
    lines = through(rules(FENCE, admitted))
    everywhere = {line.split(" -s ")[1].split("/")[0] for line in lines if " -s " in line and " -d " not in line}
    assert everywhere == {address for address, egress in admitted.items() if egress is Egress.OPEN}
    named = {line.split(" -s ")[1].split("/")[0] for line in lines if " -s " in line and " -d " in line}
    assert named == {address for address, egress in admitted.items() if egress is Egress.REGISTRIES}


@pytest.mark.parametrize("address", ["10.9.0.2 -j ACCEPT", "::1", "", "10.9.0.2\n-A INPUT -j ACCEPT"])
def test_what_is_no_address_makes_no_rule(address: str) -> None:
    with pytest.raises(ValueError):
        rules(FENCE, {address: Egress.OPEN})


@pytest.mark.parametrize("deployment", ["", "a b", "x" * 40, "a\n"])
def test_a_deployment_that_is_no_name_makes_no_chain(deployment: str) -> None:
    with pytest.raises(ValueError):
        chains(deployment)


def test_two_deployments_share_no_chain_and_no_jump() -> None:
    other = Fence("abc124", "berth-abc124", "10.8.0.1", ())
    assert not set(chains(FENCE.deployment)) & set(chains(other.deployment))
    assert not set(jumps(FENCE)) & set(jumps(other))


def test_a_name_that_is_not_answered_keeps_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(host: str, *_: object) -> list[tuple[object, ...]]:
        if host == "silent.example":
            raise OSError("no answer")
        return [(2, 1, 6, "", ("192.0.2.9", 0)), (2, 1, 6, "", ("192.0.2.8", 0)), (2, 1, 6, "", ("192.0.2.9", 0))]

    monkeypatch.setattr(fence.socket, "getaddrinfo", ask)
    found = fence.resolved(["silent.example", "a.example"], {"silent.example": ("192.0.2.1",)})
    assert found == {"silent.example": ("192.0.2.1",), "a.example": ("192.0.2.8", "192.0.2.9")}


@pytest.mark.parametrize(
    ("state", "label", "found"),
    [
        ("running", "open", {"10.9.0.5": Egress.OPEN}),
        ("running", "", {"10.9.0.5": Egress.NONE}),
        ("running", "everything", {"10.9.0.5": Egress.NONE}),
        ("exited", "open", {}),
    ],
)
def test_a_server_is_let_through_by_its_label_while_it_lives(state: str, label: str, found: dict[str, Egress]) -> None:
    networks = {"Networks": {"berth-x": {"IPAddress": "10.9.0.5"}}}
    listed = {"State": state, "Labels": {EGRESS_LABEL: label}, "NetworkSettings": networks}
    assert admitted(listed, "berth-x") == found
    assert admitted(listed, "another") == {}
