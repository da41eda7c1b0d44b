"""Puts the rules of `spawner.egress` into the host's packet filter, and takes them out. Needs root on the host (or
CAP_NET_ADMIN in its network)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from spawner import egress
from spawner.egress import Egress, Fence

_PATH: Final = "/usr/sbin:/sbin:/usr/local/sbin"
#: Seconds that another program may have the packet filter for itself, and that one command may take.
_LOCK_S, _COMMAND_S = 10, 30


class FenceFailed(RuntimeError):
    """The packet filter could not be set; words for the log and for alerts."""


def put_up(fence: Fence, admitted: Mapping[str, Egress]) -> None:
    """Make the fence what it should be, whatever stood there: both chains are exchanged in one step, then packets are
    led into them where they are not yet. Raises `FenceFailed`."""
    _restore("iptables", egress.rules(fence, admitted))
    for jump in egress.jumps(fence):
        _lead("iptables", jump)
    if _has_ipv6():
        _restore("ip6tables", egress.rules6(fence))
        for jump in egress.jumps6(fence):
            _lead("ip6tables", jump)


def stands(fence: Fence) -> bool:
    """Whether packets are led into the chains, as far as IPv4 goes. Raises `FenceFailed` where that cannot be told."""
    return all(_run("iptables", "-C", *jump).returncode == 0 for jump in egress.jumps(fence))


def take_down(fence: Fence) -> None:
    """No rule of this deployment is left; nothing happens where there is none. Raises `FenceFailed`."""
    pairs = [("iptables", egress.jumps(fence))]
    pairs += [("ip6tables", egress.jumps6(fence))] if _has_ipv6() else []
    for program, jumps in pairs:
        for jump in jumps:
            while _run(program, "-C", *jump).returncode == 0:
                _must(program, "-D", *jump)
        for chain in egress.chains(fence.deployment):
            if _run(program, "-n", "-L", chain).returncode == 0:
                _must(program, "-F", chain)
                _must(program, "-X", chain)


def resolved(hosts: Iterable[str], before: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of each host now, sorted. A name that is not answered keeps those it had: that is not knowing, and
    not "none"."""
    found = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            found[host] = before.get(host, ())
        else:
            found[host] = tuple(sorted({str(answer[4][0]) for answer in answers}))
    return found


def _has_ipv6() -> bool:
    return Path("/proc/net/if_inet6").exists()


def _lead(program: str, jump: tuple[str, ...]) -> None:
    if _run(program, "-C", *jump).returncode:
        chain, *rest = jump
        _must(program, "-I", chain, "1", *rest)


def _must(program: str, *arguments: str) -> None:
    done = _run(program, *arguments)
    if done.returncode:
        raise FenceFailed(f"{program} {' '.join(arguments)}: {' '.join(done.stderr.split())[:300]}")


def _restore(program: str, text: str) -> None:
    done = _start([_found(f"{program}-restore"), "--noflush", "--wait", str(_LOCK_S)], text)
    if done.returncode:
        raise FenceFailed(f"{program}-restore: {' '.join(done.stderr.split())[:300]}")


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _start([_found(program), "--wait", str(_LOCK_S), *arguments], "")


def _start(argv: list[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FenceFailed(f"{argv[0]}: {error}") from error


def _found(program: str) -> str:
    found = shutil.which(program, path=f"{_PATH}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise FenceFailed(f"{program} is not on this host; install it (Debian and Ubuntu: apt install iptables)")
    return found
