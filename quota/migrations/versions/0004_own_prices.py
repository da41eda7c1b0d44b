"""Prices that a rule of the site made for one server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "rule_price",
        sa.Column("plan_id", BIG, nullable=False),
        sa.Column("per_hour", BIG, nullable=False),
        sa.Column("rule", sa.String(length=100), nullable=False),
        sa.CheckConstraint("per_hour >= 0", name=op.f("ck_rule_price_not_negative")),
        sa.ForeignKeyConstraint(["plan_id"], ["price_plan.id"], name=op.f("fk_rule_price_plan_id")),
        sa.PrimaryKeyConstraint("plan_id", name=op.f("pk_rule_price")),
        sa.UniqueConstraint("per_hour", "rule", name=op.f("uq_rule_price_per_hour")),
    )


def downgrade() -> None:
    downgrade_refused()
