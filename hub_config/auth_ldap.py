"""Log-in by a directory (LDAP)."""

from __future__ import annotations

from hub_config.auth_directory import DirectoryRules


class LdapRules(DirectoryRules):
    """People and groups of a directory; see `hub_config.ldap_directory`."""
