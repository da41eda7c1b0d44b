"""Parts of a device that MIG made: how large one is, and how CUDA names it at present."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column(
        "device",
        sa.Column(
            "capacity",
            BIG,
            sa.CheckConstraint("capacity >= 0 AND capacity <= 1000", name=op.f("ck_device_capacity")),
            server_default="0",
            nullable=False,
        ),
    )
    op.add_column("device", sa.Column("handle", sa.String(length=100), server_default="", nullable=False))


def downgrade() -> None:
    downgrade_refused()
