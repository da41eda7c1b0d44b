"""The guards of tests/conftest.py guard."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from pytest_socket import SocketBlockedError


def test_a_unit_test_opens_no_socket() -> None:
    with pytest.warns(UserWarning, match="socket"), pytest.raises(SocketBlockedError):
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def test_a_unit_test_resolves_no_name() -> None:
    with pytest.warns(UserWarning, match="getaddrinfo"), pytest.raises(SocketBlockedError):
        socket.getaddrinfo("localhost", 80)


async def test_a_unit_test_may_run_a_loop() -> None:
    await asyncio.sleep(0)


def test_no_setting_from_outside_reaches_a_test() -> None:
    assert not [name for name in os.environ if name.startswith(("BERTH_", "JUPYTERHUB_"))]
