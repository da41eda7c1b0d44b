"""Tables of the book about the end of a server: what its user wants of it, what was saved, told and doubted."""

from __future__ import annotations

import sqlalchemy as sa

from quota.schema_base import BigInt, UtcMicros, metadata, one_of

WAITING_SQL, DUE_SQL = "state IN ('waiting', 'starting')", "state IN ('waiting', 'sending')"

wish = sa.Table(
    "wish",  # what the user of a server wants of its end
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("keep_until", UtcMicros, nullable=True),  # not stopped for idleness before
    sa.Column("shutdown_at", UtcMicros, nullable=True),  # stopped then, whatever it does
    sa.Column("when_done", sa.Boolean, nullable=False, server_default=sa.false()),  # stopped once nothing runs
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
)

farewell = sa.Table(
    "farewell",  # what the kit saved before a server was stopped, in its own words
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("began_at", UtcMicros, nullable=False),
    sa.Column("heard_at", UtcMicros, nullable=False),
    sa.Column("done_at", UtcMicros, nullable=True),
    sa.Column("report", sa.JSON, nullable=False),
)

appeal = sa.Table(
    "appeal",  # "this was wrong", said of a stop; decided by an administrator
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("words", sa.Text, nullable=False),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("decided_at", UtcMicros, nullable=True, index=True),
    sa.Column("decided_by", sa.String(255), nullable=False, server_default=""),
    sa.Column("granted", sa.Boolean, nullable=True),
    sa.Column("answer", sa.Text, nullable=False, server_default=""),
    sa.Column("refund", BigInt, nullable=False, server_default="0"),
    sa.CheckConstraint("(granted IS NULL) = (decided_at IS NULL)", name="decided"),
    sa.CheckConstraint("refund >= 0", name="refund"),
)

scheduled_start = sa.Table(
    "scheduled_start",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("user", sa.String(255), nullable=False, index=True),
    sa.Column("server", sa.String(255), nullable=False),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("start_at", UtcMicros, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("tried_at", UtcMicros, nullable=True),
    sa.Column("outcome", sa.Text, nullable=False, server_default=""),
    one_of("state", ("waiting", "starting", "started", "failed", "missed", "cancelled")),
    sa.Index(
        "ix_scheduled_start_waiting",
        "start_at",
        sqlite_where=sa.text(WAITING_SQL),
        postgresql_where=sa.text(WAITING_SQL),
    ),
)

notice = sa.Table(
    "notice",  # the outbox: what people are told, and which they have read
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("key", sa.String(255), nullable=False, unique=True),  # the same thing is told once
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("lease_id", sa.String(64), nullable=True, index=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("expires_at", UtcMicros, nullable=True),  # nobody need be told any more
    sa.Column("words", sa.Text, nullable=False),  # as the book has sentences: English, told again when read
    sa.Column("link", sa.Text, nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Column("read_at", UtcMicros, nullable=True),
    sa.Index("ix_notice_user", "user", "id"),
)

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("notice_id", BigInt, sa.ForeignKey("notice.id"), primary_key=True),
    sa.Column("channel", sa.String(32), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("next_at", UtcMicros, nullable=False),
    sa.Column("claimed_by", sa.String(255), nullable=False, server_default=""),
    sa.Column("done_at", UtcMicros, nullable=True),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    one_of("state", ("waiting", "sending", "sent", "failed", "dropped")),
    sa.CheckConstraint("tries >= 0", name="tries"),
    sa.Index("ix_delivery_due", "next_at", sqlite_where=sa.text(DUE_SQL), postgresql_where=sa.text(DUE_SQL)),
)

preference = sa.Table(
    "preference",  # how somebody wants to be told
    metadata,
    sa.Column("user", sa.String(255), primary_key=True),
    sa.Column("email", sa.String(320), nullable=False, server_default=""),
    sa.Column("choices", sa.JSON, nullable=False),
    sa.Column("secret", sa.Text, nullable=False, server_default=""),  # addresses of chats, encrypted
    sa.Column("at", UtcMicros, nullable=False),
)
