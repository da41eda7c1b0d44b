"""What servers may reach over the network, as rules of the packet filter. Pure: text in, text out.

All that is not let through is refused, so that a server whose rule is not there yet, or no more, reaches the Hub and
nothing else. A server cannot borrow its neighbour's address: containers lack the capabilities to change theirs or
to make packets by hand.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: Where clouds tell a machine its secrets: link-local (AWS, Google, Azure, OpenStack), Alibaba, Azure's wire server.
METADATA: Final = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")
#: Chains of iptables may have 28 signs.
_CHAIN_SIGNS: Final = 28


class Egress(StrEnum):
    """What a profile lets its servers reach besides the Hub and service `berth`."""

    OPEN = "open"
    REGISTRIES = "registries"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Fence:
    """Around one deployment's network. `ports` are TCP ports of the Hub and service `berth` on `gateway`; `registries`
    IPv4 addresses and networks that may be reached on 80 and 443, `resolvers` those asked for names; `bridge` is
    the host's interface."""

    deployment: str
    bridge: str
    gateway: str
    ports: tuple[int, ...]
    registries: tuple[str, ...] = ()
    resolvers: tuple[str, ...] = ()


def chains(deployment: str) -> tuple[str, str]:
    """Names of the chain for packets to the host, and of that for packets through it. Raises `ValueError` where the
    deployment's name has no room in them."""
    names = (f"BERTH-{deployment}-I", f"BERTH-{deployment}-F")
    if len(names[0]) > _CHAIN_SIGNS or not deployment.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"{deployment!r} is no name for a chain of the packet filter")
    return names


def jumps(fence: Fence) -> tuple[tuple[str, ...], ...]:
    """What leads packets into the chains, as arguments after `-C`, `-I` or `-D`. DOCKER-USER is asked before any rule
    of Docker's own, and Docker keeps it when it starts anew."""
    inward, through = chains(fence.deployment)
    return (
        ("INPUT", "-i", fence.bridge, "-j", inward),
        ("DOCKER-USER", "-i", fence.bridge, "-j", through),
        ("DOCKER-USER", "-o", fence.bridge, "-j", through),
    )


def rules(fence: Fence, admitted: Mapping[str, Egress]) -> str:
    """The input of `iptables-restore --noflush` that makes both chains anew in one step. `admitted` are the IPv4
    addresses of servers that run. Raises `ValueError` for what is no address."""
    inward, through = chains(fence.deployment)
    lines = [
        *_inward(fence, inward),
        # Answers to what the Hub, or a server that may, has begun; and no more of what a server began that may not.
        f"-A {through} -m conntrack --ctstate ESTABLISHED,RELATED --ctdir REPLY -j RETURN",
        # Towards servers: neither from another one nor from outside the host.
        f"-A {through} -o {fence.bridge} -j REJECT",
        *(f"-A {through} -d {network} -j REJECT" for network in METADATA),
    ]
    for address in sorted(admitted, key=ipaddress.IPv4Address):
        lines += _from(fence, through, address, admitted[address])
    lines.append(f"-A {through} -j REJECT")
    return "\n".join(["*filter", f":{inward} - [0:0]", f":{through} - [0:0]", *lines, "COMMIT", ""])


def _inward(fence: Fence, chain: str) -> list[str]:
    gateway = ipaddress.IPv4Address(fence.gateway)
    return [
        f"-A {chain} -m conntrack --ctstate ESTABLISHED,RELATED --ctdir REPLY -j ACCEPT",
        *(f"-A {chain} -d {gateway}/32 -p tcp --dport {port:d} -j ACCEPT" for port in sorted(fence.ports)),
        f"-A {chain} -j REJECT",
    ]


def _from(fence: Fence, chain: str, address: str, egress: Egress) -> list[str]:
    source = f"-A {chain} -s {ipaddress.IPv4Address(address)}/32"
    if egress is Egress.OPEN:
        return [f"{source} -j RETURN"]
    if egress is Egress.NONE:
        return []
    names = [
        f"{source} -d {ipaddress.IPv4Address(resolver)}/32 -p {protocol} --dport 53 -j RETURN"
        for resolver in fence.resolvers
        for protocol in ("udp", "tcp")
    ]
    places = [
        f"{source} -d {ipaddress.IPv4Network(place)} -p tcp -m multiport --dports 80,443 -j RETURN"
        for place in fence.registries
    ]
    return [*names, *places]


def rules6(fence: Fence) -> str:
    """The same for IPv6, which a network of Berth has not: nothing goes in or through."""
    inward, through = chains(fence.deployment)
    drops = (f"-A {inward} -j DROP", f"-A {through} -j DROP")
    return "\n".join(["*filter", f":{inward} - [0:0]", f":{through} - [0:0]", *drops, "COMMIT", ""])


def jumps6(fence: Fence) -> tuple[tuple[str, ...], ...]:
    """What leads IPv6 into them; Docker need not have a chain there."""
    inward, through = chains(fence.deployment)
    return (
        ("INPUT", "-i", fence.bridge, "-j", inward),
        ("FORWARD", "-i", fence.bridge, "-j", through),
        ("FORWARD", "-o", fence.bridge, "-j", through),
    )
