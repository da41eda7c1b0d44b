"""Notices, farewells, wishes, appeals and scheduled starts; class and groups of a lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "notice",
        sa.Column("id", BIG, nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("lease_id", sa.String(length=64), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.Column("expires_at", BIG, nullable=True),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("read_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice")),
        sa.UniqueConstraint("key", name=op.f("uq_notice_key")),
    )
    op.create_index(op.f("ix_notice_lease_id"), "notice", ["lease_id"], unique=False)
    op.create_index("ix_notice_user", "notice", ["user", "id"], unique=False)
    op.create_table(
        "preference",
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("email", sa.String(length=320), server_default="", nullable=False),
        sa.Column("choices", sa.JSON(), nullable=False),
        sa.Column("secret", sa.Text(), server_default="", nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("user", name=op.f("pk_preference")),
    )
    op.create_table(
        "scheduled_start",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("server", sa.String(length=255), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("start_at", BIG, nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tried_at", BIG, nullable=True),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "state IN ('waiting', 'starting', 'started', 'failed', 'missed', 'cancelled')",
            name=op.f("ck_scheduled_start_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scheduled_start")),
    )
    op.create_index(op.f("ix_scheduled_start_user"), "scheduled_start", ["user"], unique=False)
    op.create_index(
        "ix_scheduled_start_waiting",
        "scheduled_start",
        ["start_at"],
        unique=False,
        sqlite_where=sa.text("state IN ('waiting', 'starting')"),
        postgresql_where=sa.text("state IN ('waiting', 'starting')"),
    )
    op.create_table(
        "delivery",
        sa.Column("notice_id", BIG, nullable=False),
        sa.Column("channel", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", BIG, nullable=False),
        sa.Column("claimed_by", sa.String(length=255), server_default="", nullable=False),
        sa.Column("done_at", BIG, nullable=True),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "state IN ('waiting', 'sending', 'sent', 'failed', 'dropped')", name=op.f("ck_delivery_state")
        ),
        sa.CheckConstraint("tries >= 0", name=op.f("ck_delivery_tries")),
        sa.ForeignKeyConstraint(["notice_id"], ["notice.id"], name=op.f("fk_delivery_notice_id")),
        sa.PrimaryKeyConstraint("notice_id", "channel", name=op.f("pk_delivery")),
    )
    op.create_index(
        "ix_delivery_due",
        "delivery",
        ["next_at"],
        unique=False,
        sqlite_where=sa.text("state IN ('waiting', 'sending')"),
        postgresql_where=sa.text("state IN ('waiting', 'sending')"),
    )
    op.create_table(
        "appeal",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("decided_at", BIG, nullable=True),
        sa.Column("decided_by", sa.String(length=255), server_default="", nullable=False),
        sa.Column("granted", sa.Boolean(), nullable=True),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("refund", BIG, server_default="0", nullable=False),
        sa.CheckConstraint("(granted IS NULL) = (decided_at IS NULL)", name=op.f("ck_appeal_decided")),
        sa.CheckConstraint("refund >= 0", name=op.f("ck_appeal_refund")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_appeal_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_appeal")),
    )
    op.create_index(op.f("ix_appeal_decided_at"), "appeal", ["decided_at"], unique=False)
    op.create_table(
        "farewell",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("began_at", BIG, nullable=False),
        sa.Column("heard_at", BIG, nullable=False),
        sa.Column("done_at", BIG, nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_farewell_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_farewell")),
    )
    op.create_table(
        "wish",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("keep_until", BIG, nullable=True),
        sa.Column("shutdown_at", BIG, nullable=True),
        sa.Column("when_done", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_wish_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_wish")),
    )
    op.add_column(
        "lease",
        sa.Column(
            "service_class",
            sa.String(length=16),
            sa.CheckConstraint(
                "service_class IN ('reserved', 'on-demand', 'preemptible', 'off-peak')",
                name=op.f("ck_lease_service_class"),
            ),
            server_default="on-demand",
            nullable=False,
        ),
    )
    op.add_column("lease", sa.Column("groups", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    downgrade_refused()
