"""Scopes of each process: what DESIGN's table grants, and nothing more. Pure data."""

from __future__ import annotations

KIT_SCOPE = "custom:berth:kit"
METRICS_SCOPE = "custom:berth:metrics"

CUSTOM_SCOPES = {
    KIT_SCOPE: {
        "description": "Report signals of one's own server to Berth",
    },
    METRICS_SCOPE: {
        "description": "Read Berth's metrics",
    },
}

#: What the pages and the dispatcher need.
BERTH_SCOPES = (
    "list:users",
    "read:users",
    "list:groups",
    "read:groups",
    "read:servers",
    "start:servers",
    "delete:servers",
)

#: What reclaiming needs.
CULLER_SCOPES = ("list:users", "read:users:activity", "read:servers", "delete:servers")

#: What the scrape token may: both pages of metrics, and nothing else of either.
PROMETHEUS_SCOPES = ("read:metrics", "access:services!service=berth", METRICS_SCOPE)

ROLES = [
    {"name": "berth", "scopes": list(BERTH_SCOPES), "services": ["berth"]},
    {"name": "idle-culler", "scopes": list(CULLER_SCOPES), "services": ["idle-culler"]},
    {"name": "prometheus", "scopes": list(PROMETHEUS_SCOPES), "services": ["prometheus"]},
]

#: Added to every user, else the pages answer 403; a token gets only what its owner holds, hence the kit scope too.
USER_SCOPES = {"access:services!service=berth", f"{KIT_SCOPE}!user"}

#: Added to each server's own token: it can speak for that server alone.
SERVER_SCOPES = (f"{KIT_SCOPE}!server",)
