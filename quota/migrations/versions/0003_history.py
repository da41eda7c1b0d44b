"""Indexes that keep statements and balances quick as history grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

OPEN = sa.text("expired_at IS NULL")
ENDED = sa.text("ended_at IS NOT NULL")
REFUNDED = sa.text("refunded > 0")


def upgrade() -> None:
    op.create_index(
        op.f("ix_lease_ended"),
        "lease",
        ["account_id", "ended_at"],
        unique=False,
        sqlite_where=ENDED,
        postgresql_where=ENDED,
    )
    op.create_index(
        op.f("ix_grant_bucket_open"),
        "grant_bucket",
        ["account_id", "id"],
        unique=False,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_index(
        op.f("ix_lease_refunded"),
        "lease",
        ["account_id"],
        unique=False,
        sqlite_where=REFUNDED,
        postgresql_where=REFUNDED,
    )


def downgrade() -> None:
    downgrade_refused()
