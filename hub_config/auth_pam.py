"""Log-in by accounts of this machine (PAM)."""

from __future__ import annotations

from functools import cached_property

from jupyterhub.auth import PAMAuthenticator

from hub_config.auth_directory import DirectoryRules, Source
from hub_config.pam_accounts import Accounts


class PamRules(DirectoryRules, PAMAuthenticator):
    """The Hub's own (`service`, `encoding`, only accounts that are there can be added), under the house rules. It asks
    by itself, since the Hub's takes a broken PAM for a wrong password."""

    @cached_property
    def source(self) -> Source:
        return Accounts(self.service, self.encoding)
