"""Users and their passwords, hashed by bcrypt, in the Hub's database: the table of `nativeauthenticator`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import bcrypt
import sqlalchemy as sa
from jupyterhub import orm
from nativeauthenticator.orm import UserInfo
from sqlalchemy.orm import Session

_ROUNDS: Final = 12


class PasswordTable:
    """`session` gives a session of the Hub's database. What another process has changed is seen at once."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        UserInfo.__table__.create(self._session().get_bind(), checkfirst=True)

    def find(self, name: str) -> Any:
        """The row of that user, or None."""
        query = self._session().query(UserInfo).filter(UserInfo.username == name)
        return query.populate_existing().order_by(UserInfo.id).first()

    def states(self) -> list[tuple[str, bool]]:
        """Each name, and whether the account is open."""
        found = self._session().query(UserInfo.username, UserInfo.is_authorized)
        return [(str(name), bool(is_open)) for name, is_open in found]

    def waiting(self) -> int:
        """How many sign-ups nobody has looked at: who has been let in once is a user of the Hub."""
        closed = self._session().query(UserInfo).filter(UserInfo.is_authorized.isnot(True))
        return int(closed.filter(UserInfo.username.notin_(sa.select(orm.User.name))).count())

    def add(self, name: str, hashed: bytes, *, is_open: bool) -> bool:
        """A new user; False where there is one of that name already."""
        if self.find(name) is not None:
            return False
        session = self._session()
        session.add(UserInfo(username=name, password=hashed, is_authorized=is_open))
        session.commit()
        return True

    def change(self, name: str, hashed: bytes) -> None:
        """Another password for somebody who is there; whether the account is open stays as it is."""
        self.find(name).password = hashed
        self._session().commit()

    def let_in(self, name: str, *, is_open: bool) -> None:
        """Open or close the account of somebody who is there."""
        self.find(name).is_authorized = is_open
        self._session().commit()

    def remove(self, name: str) -> None:
        row = self.find(name)
        if row is not None:
            self._session().delete(row)
            self._session().commit()


@contextmanager
def opened(database: Path) -> Iterator[PasswordTable]:
    """The table in the file of the Hub's database, which may be at work. Raises `FileNotFoundError`."""
    if not database.exists():
        raise FileNotFoundError(f"There is no {database} yet: start Berth once, then try again.")
    engine = sa.create_engine(f"sqlite:///{database}", connect_args={"timeout": 15})
    try:
        with Session(engine) as session:
            yield PasswordTable(lambda: session)
    finally:
        engine.dispose()


def hashed(password: str) -> bytes:
    """Takes a quarter of a second, on purpose; in a thread, where others wait."""
    return bcrypt.hashpw(password.encode("utf-8"), bcrypt.gensalt(_ROUNDS))


def is_it(password: str, kept: bytes) -> bool:
    """Whether that was hashed. Takes as long as `hashed`; what bcrypt cannot take is never it."""
    try:
        return bcrypt.checkpw(password.encode("utf-8"), bytes(kept))
    except ValueError:  # too long for it, a NUL, or half a surrogate pair
        return False
