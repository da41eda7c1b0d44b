"""Calls to the host's Docker Engine: each with a bound on its time, and what may go wrong in words.

The Engine that does not answer, answers with an error of its own (5xx), or cannot be reached is one kind of trouble:
nothing is known, so nothing may be concluded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import docker
import docker.errors
import requests

#: Seconds that a call may take, by what it does. A pull is bounded by the silence between two lines.
LOOK_S: Final = 10.0
CHANGE_S: Final = 60.0
SILENCE_S: Final = 300.0

#: Whatever a call raises that says nothing about what was asked.
TROUBLE: Final = (docker.errors.DockerException, requests.RequestException, OSError, ValueError)


class EngineSilent(RuntimeError):
    """The Engine gave no usable answer; words for the log and for alerts."""


class Engine:
    """The Engine at `url` ("" for the environment's DOCKER_HOST, else the usual socket). Clients are made for each
    thread and time limit, as a connection is no two threads' at once."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self._local = threading.local()
        self._version = ""

    def client(self, seconds: float) -> Any:
        """A client (`docker.APIClient`) of this thread whose calls end after so many seconds. Raises
        `EngineSilent`."""
        clients: dict[float, Any] = self._local.__dict__.setdefault("clients", {})
        if seconds not in clients:
            with telling():
                clients[seconds] = self._connect(seconds)
        return clients[seconds]

    def _connect(self, seconds: float) -> Any:
        found: dict[str, Any] = docker.utils.kwargs_from_env()
        if self.url:
            found = {"base_url": self.url}
        client = docker.APIClient(version=self._version or "auto", timeout=seconds, **found)
        self._version = client.api_version  # asked once
        return client


@contextmanager
def telling() -> Iterator[None]:
    """Turn trouble with the Engine into `EngineSilent`. `docker.errors.NotFound` and other answers about what was
    asked (4xx) go through."""
    try:
        yield
    except docker.errors.APIError as error:
        if error.status_code is not None and 400 <= error.status_code < 500:
            raise
        raise EngineSilent(f"the Docker Engine answers {words(error)}") from error
    except requests.Timeout as error:
        raise EngineSilent("the Docker Engine does not answer in time") from error
    except TROUBLE as error:
        raise EngineSilent(f"the Docker Engine cannot be reached: {words(error)}") from error


def words(error: BaseException) -> str:
    """One line about an error of the Engine."""
    explanation = getattr(error, "explanation", None)
    return " ".join(str(explanation or error).split())[:300]
