"""Which person of a provider is which user of the Hub: a table beside the Hub's own, in its database.

A name at the provider can be changed and given to somebody else; then its next owner must not find another's notebooks
and balance behind it. So a user belongs to the (issuer, subject) that first logged in by that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from jupyterhub import orm

from hub_config.membership import Identity

_TABLE: Final = sa.Table(
    "berth_identity",
    sa.MetaData(),
    sa.Column("issuer", sa.Unicode(500), primary_key=True),
    sa.Column("subject", sa.Unicode(500), primary_key=True),
    sa.Column("user_id", sa.Integer, nullable=False, unique=True),
)


class Taken(Exception):
    """The name belongs to another person of the provider."""


class Identities:
    """`session` gives the Hub's database session; used on the Hub's one thread only."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        with self._session().get_bind().begin() as connection:
            _TABLE.create(connection, checkfirst=True)

    def name(self, who: Identity, claimed: str) -> str:
        """The user of this person: the one it has had, whatever it is called at the provider by now; else the claimed
        name. Raises `Taken` where that is another person's."""
        user = self._user_of(who)
        if user is not None:
            return str(user.name)
        session = self._session()
        owner = session.query(orm.User).filter_by(name=claimed).first()
        if owner is not None and self.of(owner.id) is not None:
            raise Taken(claimed)
        return claimed

    def bind(self, who: Identity, name: str) -> None:
        """From now on that user is this person. Raises `Taken` when it is another's already."""
        session = self._session()
        user = session.query(orm.User).filter_by(name=name).one()
        owner = self.of(user.id)
        if owner == who:
            return
        if owner is not None or self._user_of(who) is not None:
            raise Taken(name)
        session.execute(sa.insert(_TABLE).values(issuer=who.issuer, subject=who.subject, user_id=user.id))
        session.commit()

    def of(self, user_id: int) -> Identity | None:
        """Whose that user is; None as long as nobody has logged in by the name."""
        row = self._session().execute(sa.select(_TABLE).where(_TABLE.c.user_id == user_id)).first()
        return Identity(row.issuer, row.subject) if row else None

    def forget(self, user_id: int) -> None:
        """The user is deleted: the next with that number or name is somebody new."""
        session = self._session()
        session.execute(sa.delete(_TABLE).where(_TABLE.c.user_id == user_id))
        session.commit()

    def _user_of(self, who: Identity) -> orm.User | None:
        session = self._session()
        where = (_TABLE.c.issuer == who.issuer) & (_TABLE.c.subject == who.subject)
        number = session.scalar(sa.select(_TABLE.c.user_id).where(where))
        return session.get(orm.User, number) if number is not None else None
