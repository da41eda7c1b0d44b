"""Refusals as the Hub wants them. Anything else that a start raises counts towards the Hub's own exit."""

from __future__ import annotations

from jupyterhub.spawner import SpawnException

from quota.errors import Refused
from spawner import metrics
from spawner.messages import status, words


def spawn_exception(refused: Refused) -> SpawnException:
    """A refusal as the Hub wants it: words for people, the reason for the metric, the whole for the log."""
    metrics.refused(refused.reason)
    text = words(refused)
    facts = {key: value for key, value in refused.facts.items() if key != "log"}
    tail = refused.facts.get("log")
    log_message = f"{refused.reason.value} {facts}" if facts else refused.reason.value
    if isinstance(tail, tuple) and tail:
        log_message += "; the end of its log:\n" + "\n".join(f"    {line}" for line in tail)
    error = SpawnException(
        text, reason=refused.reason.value, status_code=status(refused.reason), log_message=log_message
    )
    error.jupyterhub_message = text  # else the start page shows the log's words
    return error
