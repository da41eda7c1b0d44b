"""The first schema of the book."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: Money, times (microseconds since the epoch) and numbers. SQLite counts ids by itself only in an INTEGER.
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("id", BIG, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("version", BIG, server_default="0", nullable=False),
        sa.CheckConstraint("kind IN ('user', 'group')", name=op.f("ck_account_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("name", name=op.f("uq_account_name")),
    )
    op.create_table(
        "balance",
        sa.Column("sub", sa.String(length=100), nullable=False),
        sa.Column("amount", BIG, nullable=False),
        sa.CheckConstraint("amount <= 0 OR sub NOT LIKE 'debt:%'", name=op.f("ck_balance_debt")),
        sa.CheckConstraint(
            "amount >= 0 OR (sub NOT LIKE 'grant:%' AND sub NOT LIKE 'held:%')", name=op.f("ck_balance_not_overdrawn")
        ),
        sa.PrimaryKeyConstraint("sub", name=op.f("pk_balance")),
    )
    op.create_table(
        "event",
        sa.Column("id", BIG, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("lease_id", sa.String(length=64), nullable=True),
        sa.Column("account_id", BIG, nullable=True),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index(op.f("ix_event_account_id"), "event", ["account_id"], unique=False)
    op.create_index(op.f("ix_event_lease_id"), "event", ["lease_id"], unique=False)
    op.create_table(
        "heartbeat",
        sa.Column("boot", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("started_at", BIG, nullable=False),
        sa.Column("beat_at", BIG, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("boot", name=op.f("pk_heartbeat")),
    )
    op.create_table(
        "host",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", BIG, server_default="0", nullable=False),
        sa.Column("seen_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_host")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "price_plan",
        sa.Column("id", BIG, nullable=False),
        sa.Column("gpu_hour", BIG, nullable=False),
        sa.Column("cpu_hour", BIG, nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.CheckConstraint("gpu_hour >= 0 AND cpu_hour >= 0", name=op.f("ck_price_plan_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_price_plan")),
    )
    op.create_table(
        "device",
        sa.Column("uuid", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("memory_mib", BIG, nullable=True),
        sa.Column("mode", sa.String(length=32), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("ordered_state", sa.String(length=16), nullable=True),
        sa.Column("ordered_why", sa.Text(), server_default="", nullable=False),
        sa.Column("seen_at", BIG, nullable=True),
        sa.Column("withdrawn", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint(
            "ordered_state IS NULL OR ordered_state IN ('ok', 'suspect', 'quarantined', 'draining', 'lost')",
            name=op.f("ck_device_ordered_state"),
        ),
        sa.CheckConstraint(
            "state IN ('ok', 'suspect', 'quarantined', 'draining', 'lost')", name=op.f("ck_device_state")
        ),
        sa.CheckConstraint("memory_mib IS NULL OR memory_mib >= 0", name=op.f("ck_device_memory_mib")),
        sa.ForeignKeyConstraint(["host"], ["host.name"], name=op.f("fk_device_host")),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_device")),
    )
    op.create_table(
        "grant_bucket",
        sa.Column("id", BIG, nullable=False),
        sa.Column("account_id", BIG, nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("amount", BIG, nullable=False),
        sa.Column("granted_at", BIG, nullable=False),
        sa.Column("expires_at", BIG, nullable=True),
        sa.Column("expired_at", BIG, nullable=True),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.CheckConstraint("amount > 0", name=op.f("ck_grant_bucket_amount")),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_grant_bucket_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grant_bucket")),
        sa.UniqueConstraint("key", name=op.f("uq_grant_bucket_key")),
    )
    op.create_index(op.f("ix_grant_bucket_account_id"), "grant_bucket", ["account_id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("version", BIG, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("target", sa.String(length=8), nullable=False),
        sa.Column("holder_kind", sa.String(length=16), nullable=False),
        sa.Column("holder_user", sa.String(length=255), nullable=False),
        sa.Column("holder_server", sa.String(length=255), nullable=False),
        sa.Column("account_id", BIG, nullable=False),
        sa.Column("profile", sa.String(length=255), nullable=False),
        sa.Column("image", sa.String(length=500), nullable=False),
        sa.Column("share", BIG, nullable=False),
        sa.Column("count", BIG, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("plan_id", BIG, nullable=False),
        sa.Column("hold_seconds", BIG, nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("requested_at", BIG, nullable=False),
        sa.Column("requested_by", sa.String(length=255), nullable=False),
        sa.Column("deadline", BIG, nullable=True),
        sa.Column("started_at", BIG, nullable=True),
        sa.Column("last_seen", BIG, nullable=True),
        sa.Column("ended_at", BIG, nullable=True),
        sa.Column("metered_until", BIG, nullable=True),
        sa.Column("stop_reason", sa.String(length=16), nullable=True),
        sa.Column("stop_detail", sa.Text(), server_default="", nullable=False),
        sa.Column("stop_by", sa.String(length=255), server_default="", nullable=False),
        sa.Column("stop_after", BIG, nullable=True),
        sa.Column("void", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("usage", BIG, server_default="0", nullable=False),
        sa.Column("charged", BIG, server_default="0", nullable=False),
        sa.Column("refunded", BIG, server_default="0", nullable=False),
        sa.Column("held", BIG, server_default="0", nullable=False),
        sa.Column("holds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("charges", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("holder_kind IN ('server', 'ticket', 'booking')", name=op.f("ck_lease_holder_kind")),
        sa.CheckConstraint("state <> 'SETTLED' OR held = 0", name=op.f("ck_lease_settled")),
        sa.CheckConstraint(
            "state IN ('RESERVED', 'STARTING', 'RUNNING', 'STOPPING', 'RELEASED', 'SETTLED')",
            name=op.f("ck_lease_state"),
        ),
        sa.CheckConstraint(
            "stop_reason IS NULL OR stop_reason IN ('user', 'admin', 'platform', 'shutdown', 'idle', 'max-age', "
            "'quota', 'preempted', 'window-end', 'resize', 'park', 'no-show', 'over-share', 'leak', 'gpu-lost', "
            "'drain', 'failed')",
            name=op.f("ck_lease_stop_reason"),
        ),
        sa.CheckConstraint(
            "target = 'STOP' OR state IN ('RESERVED', 'STARTING', 'RUNNING')", name=op.f("ck_lease_legal")
        ),
        sa.CheckConstraint("target IN ('RUN', 'STOP')", name=op.f("ck_lease_target")),
        sa.CheckConstraint(
            "ended_at IS NULL OR started_at IS NULL OR ended_at >= started_at", name=op.f("ck_lease_ended_at")
        ),
        sa.CheckConstraint("held >= 0", name=op.f("ck_lease_held")),
        sa.CheckConstraint("refunded >= 0 AND refunded <= charged", name=op.f("ck_lease_refunded")),
        sa.CheckConstraint(
            "share >= 0 AND share <= 1000 AND count >= 0 AND (share = 0) = (count = 0)", name=op.f("ck_lease_share")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_lease_account_id")),
        sa.ForeignKeyConstraint(["plan_id"], ["price_plan.id"], name=op.f("fk_lease_plan_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
    )
    op.create_index("ix_lease_account", "lease", ["account_id", "requested_at"], unique=False)
    op.create_index(
        "ix_lease_live_account",
        "lease",
        ["account_id", "share", "count"],
        unique=False,
        sqlite_where=sa.text("state IN ('RESERVED', 'STARTING', 'RUNNING', 'STOPPING')"),
        postgresql_where=sa.text("state IN ('RESERVED', 'STARTING', 'RUNNING', 'STOPPING')"),
    )
    op.create_index("ix_lease_newest", "lease", ["requested_at", "id"], unique=False)
    op.create_index(
        "ix_lease_unsettled",
        "lease",
        ["account_id", "held"],
        unique=False,
        sqlite_where=sa.text("state <> 'SETTLED'"),
        postgresql_where=sa.text("state <> 'SETTLED'"),
    )
    op.create_index("ix_lease_user_newest", "lease", ["holder_user", "requested_at", "id"], unique=False)
    op.create_index(
        "uq_lease_live_holder",
        "lease",
        ["holder_kind", "holder_user", "holder_server"],
        unique=True,
        sqlite_where=sa.text("state IN ('RESERVED', 'STARTING', 'RUNNING', 'STOPPING')"),
        postgresql_where=sa.text("state IN ('RESERVED', 'STARTING', 'RUNNING', 'STOPPING')"),
    )
    op.create_table(
        "limits",
        sa.Column("scope", sa.String(length=32), nullable=False),
        sa.Column("account_id", BIG, nullable=True),
        sa.Column("max_servers", BIG, nullable=True),
        sa.Column("max_gpu_milli", BIG, nullable=True),
        sa.Column("monthly_micro", BIG, nullable=True),
        sa.Column("profiles", sa.Text(), nullable=True),
        sa.Column("monthly_grant", BIG, nullable=True),
        sa.CheckConstraint("(scope = '*') = (account_id IS NULL)", name=op.f("ck_limits_scope")),
        sa.CheckConstraint("max_gpu_milli IS NULL OR max_gpu_milli >= -1", name=op.f("ck_limits_max_gpu_milli")),
        sa.CheckConstraint("max_servers IS NULL OR max_servers >= -1", name=op.f("ck_limits_max_servers")),
        sa.CheckConstraint("monthly_grant IS NULL OR monthly_grant >= 0", name=op.f("ck_limits_monthly_grant")),
        sa.CheckConstraint("monthly_micro IS NULL OR monthly_micro >= -1", name=op.f("ck_limits_monthly_micro")),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_limits_account_id")),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_limits")),
        sa.UniqueConstraint("account_id", name=op.f("uq_limits_account_id")),
    )
    op.create_table(
        "month_charge",
        sa.Column("account_id", BIG, nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("charged", BIG, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_month_charge_account_id")),
        sa.PrimaryKeyConstraint("account_id", "month", name=op.f("pk_month_charge")),
    )
    op.create_table(
        "posting",
        sa.Column("id", BIG, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("leg", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("sub", sa.String(length=100), nullable=False),
        sa.Column("amount", BIG, nullable=False),
        sa.Column("account_id", BIG, nullable=False),
        sa.Column("lease_id", sa.String(length=64), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.CheckConstraint(
            "kind IN ('grant', 'repay', 'hold', 'charge', 'release', 'settle', 'refund', 'expire')",
            name=op.f("ck_posting_kind"),
        ),
        sa.CheckConstraint("amount <> 0", name=op.f("ck_posting_amount")),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_posting_account_id")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_posting_lease_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_posting")),
    )
    op.create_index("ix_posting_lease", "posting", ["lease_id"], unique=False)
    op.create_index("uq_posting_key", "posting", ["key", "leg"], unique=True)
    op.create_table(
        "sample",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("cpu_seconds", sa.Float(), nullable=True),
        sa.Column("memory_mib", BIG, nullable=True),
        sa.Column("gpu_util", BIG, nullable=True),
        sa.Column("gpu_memory_mib", BIG, nullable=True),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_sample_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_sample")),
    )
    op.create_table(
        "segment",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("weight", BIG, nullable=False),
        sa.Column("plan_id", BIG, nullable=False),
        sa.Column("started_at", BIG, nullable=False),
        sa.Column("ended_at", BIG, nullable=True),
        sa.CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name=op.f("ck_segment_ended_at")),
        sa.CheckConstraint("weight >= 0", name=op.f("ck_segment_weight")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_segment_lease_id")),
        sa.ForeignKeyConstraint(["plan_id"], ["price_plan.id"], name=op.f("fk_segment_plan_id")),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_segment")),
    )
    op.create_table(
        "signal",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_signal_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", "source", name=op.f("pk_signal")),
    )
    op.create_table(
        "slot",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("device", sa.String(length=255), nullable=True),
        sa.Column("share", BIG, nullable=False),
        sa.Column("released_at", BIG, nullable=True),
        sa.CheckConstraint("share >= 0 AND share <= 1000", name=op.f("ck_slot_share")),
        sa.ForeignKeyConstraint(["device"], ["device.uuid"], name=op.f("fk_slot_device")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_slot_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_slot")),
    )
    op.create_index(
        "ix_slot_live_device",
        "slot",
        ["device", "share"],
        unique=False,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "verdict",
        sa.Column("lease_id", sa.String(length=64), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("rule", sa.String(length=100), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("deadline", BIG, nullable=True),
        sa.CheckConstraint("kind IN ('keep', 'warn', 'reclaim')", name=op.f("ck_verdict_kind")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_verdict_lease_id")),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_verdict")),
    )


def downgrade() -> None:
    downgrade_refused()
