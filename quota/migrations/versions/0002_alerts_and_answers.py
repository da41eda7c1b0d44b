"""Alerts, and answers to requests that carried an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "alert",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("since", BIG, nullable=False),
        sa.Column("seen_at", BIG, nullable=False),
        sa.Column("cleared_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_alert")),
    )
    op.create_table(
        "answered",
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_answered")),
    )
    op.create_index(op.f("ix_answered_at"), "answered", ["at"], unique=False)


def downgrade() -> None:
    downgrade_refused()
