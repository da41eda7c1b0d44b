"""Profiles by group on a real hub: membership is what the Hub knows at the moment of the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Stack

pytestmark = pytest.mark.hub

TOML = """
[[groups]]
name = "lab-a"
leads = ["lead"]
[[profiles]]
name = "lab"
share = 0
groups = ["lab-a"]
[[profiles]]
name = "open"
share = 0
"""


def test_s17_s19_x09_a_removed_member_is_refused_without_a_new_log_in(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", TOML) as stack:
        admin, member, like = stack.admin, stack.add("ada"), stack.add("lab-a")
        assert admin.hub("POST", "/groups/lab-a").status_code == 201
        assert admin.hub("POST", "/groups/lab-a/users", {"users": ["ada"]}).status_code == 200
        assert like.refused({"profile": "lab"}).status == 403  # a name like the group's grants nothing
        member.start("lab")
        member.stop()
        gone = admin.hub("DELETE", "/groups/lab-a/users", {"users": ["ada"]})
        assert gone.status_code == 200, gone.text
        refusal = member.refused({"profile": "lab"})
        assert refusal.status == 403
        assert "lead or an admin" in str(refusal)
        admin.ask_start(user="ada").raise_for_status()  # without options: the default of ada, not of the admin
        lease = member.lease()
        assert (lease["profile"], lease["account"], lease["requested_by"]) == ("open", "ada", "admin")
        stack.tidy()
