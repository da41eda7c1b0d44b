"""Accounts of this machine: passwords by PAM, people by uid, groups by gid. Whatever the machine itself asks (files,
SSSD, Winbind) is asked through it."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Final

import pamela

from hub_config.auth_directory import Account, Silent

#: Linux-PAM's return values that tell of PAM and not of the person: a module or service that is missing or broken, a
#: source that cannot be reached.
_NO_ANSWER: Final = frozenset({1, 2, 3, 4, 5, 9, 26, 28})
#: Below are the system's own, as Debian and its kin, Red Hat and its kin, and SUSE have it.
_FIRST_PERSON: Final = 1000
_NOBODY: Final = 65534


@dataclass(frozen=True, slots=True)
class Accounts:
    """By one of PAM's services, a file in /etc/pam.d. A `Source`."""

    service: str = "login"
    encoding: str = "utf8"

    def check(self, name: str, password: str) -> Account | None:
        if not password or "\0" in password:  # PAM reads no further than a NUL
            return None
        entry = _entry(name)
        if entry is None or not self._says_yes(name, password):
            return None
        return self._account(entry)

    def named(self, name: str) -> Account | None:
        entry = _entry(name)
        return self._account(entry) if entry is not None else None

    def known(self, subject: str) -> Account | None:
        try:
            entry = pwd.getpwuid(int(subject))
        except KeyError:
            return None
        return self._account(entry)

    def _says_yes(self, name: str, password: str) -> bool:
        try:
            pamela.authenticate(name, password, service=self.service, encoding=self.encoding)
        except pamela.PAMError as error:
            return _no(error)
        return True

    def _account(self, entry: pwd.struct_passwd) -> Account | None:
        """None for an account that has run out or is locked."""
        try:
            pamela.check_account(entry.pw_name, service=self.service, encoding=self.encoding)
        except pamela.PAMError as error:
            if not _no(error):
                return None
        groups = frozenset(map(str, os.getgrouplist(entry.pw_name, entry.pw_gid)))
        ordinary = _FIRST_PERSON <= entry.pw_uid != _NOBODY
        return Account(str(entry.pw_uid), entry.pw_name, groups, ordinary)


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _no(error: pamela.PAMError) -> bool:
    """Always False: no. Raises `Silent` where it is no answer about the person."""
    if error.errno in _NO_ANSWER:
        raise Silent(f"PAM: {error.message}")
    return False
