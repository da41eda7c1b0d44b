"""Log-in by a directory (LDAP)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from traitlets import Any as AnyTrait

from hub_config.auth_directory import DirectoryRules, Source


class LdapRules(DirectoryRules):
    """People and groups of a directory; see `hub_config.ldap_directory`."""

    directory_of = AnyTrait(help="Returns the directory: a function, since traitlets copies values.").tag(config=True)

    @cached_property
    def source(self) -> Source:
        made: Callable[[], Source] = self.directory_of
        return made()
