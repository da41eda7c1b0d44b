"""The tables of the book. `quota/migrations` builds exactly these; a test compares the two.

What SQL can hold, SQL holds: one live lease per holder, one key per transaction leg, words from closed lists,
no negative share. Times are integer microseconds since the epoch; money is integer micro-credits.
"""

from __future__ import annotations

import sqlalchemy as sa

from quota.leases import LIVE, DeviceState, HolderKind, ServiceClass, State, StopReason, Target
from quota.ledger import Kind
from quota.schema_base import BigInt, UtcMicros, from_micros, metadata, one_of, word_list
from quota.schema_stops import appeal, delivery, farewell, notice, preference, scheduled_start, wish

__all__ = [
    "UtcMicros",
    "account",
    "alert",
    "answered",
    "appeal",
    "balance",
    "delivery",
    "device",
    "event",
    "farewell",
    "from_micros",
    "grant_bucket",
    "heartbeat",
    "host",
    "lease",
    "limits",
    "meta",
    "metadata",
    "month_charge",
    "notice",
    "posting",
    "preference",
    "price_plan",
    "rule_price",
    "sample",
    "scheduled_start",
    "segment",
    "signal",
    "slot",
    "verdict",
    "wish",
]

#: The newest revision of `quota/migrations`, which builds what is declared here; a test compares the two.
REVISION = "0006"

#: Written out as literals, never as parameters: SQLite uses a partial index only where it can prove the condition.
LIVE_SQL = f"state IN ({word_list(state.value for state in State if state in LIVE)})"
REFUNDED_SQL, ENDED_SQL = "refunded > 0", "ended_at IS NOT NULL"
_LEGAL_SQL = "target = 'STOP' OR state IN ('RESERVED', 'STARTING', 'RUNNING')"

meta = sa.Table(
    "meta", metadata, sa.Column("key", sa.String(100), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

account = sa.Table(
    "account",
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("version", BigInt, nullable=False, server_default="0"),
    one_of("kind", ("user", "group")),
)

limits = sa.Table(
    "limits",
    metadata,
    # "*" for everybody, or the account's id. NULL: as everybody has it (in the row "*": no limit); -1: no limit.
    sa.Column("scope", sa.String(32), primary_key=True),
    sa.Column("account_id", BigInt, sa.ForeignKey("account.id"), nullable=True, unique=True),
    sa.Column("max_servers", BigInt, nullable=True),
    sa.Column("max_gpu_milli", BigInt, nullable=True),
    sa.Column("monthly_micro", BigInt, nullable=True),
    sa.Column("profiles", sa.Text, nullable=True),  # a JSON list of names; "null" is no limit
    sa.Column("monthly_grant", BigInt, nullable=True),  # micro-credits given each month
    sa.CheckConstraint("(scope = '*') = (account_id IS NULL)", name="scope"),
    sa.CheckConstraint("max_servers IS NULL OR max_servers >= -1", name="max_servers"),
    sa.CheckConstraint("max_gpu_milli IS NULL OR max_gpu_milli >= -1", name="max_gpu_milli"),
    sa.CheckConstraint("monthly_micro IS NULL OR monthly_micro >= -1", name="monthly_micro"),
    sa.CheckConstraint("monthly_grant IS NULL OR monthly_grant >= 0", name="monthly_grant"),
)

price_plan = sa.Table(
    "price_plan",
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("gpu_hour", BigInt, nullable=False),
    sa.Column("cpu_hour", BigInt, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
    sa.CheckConstraint("gpu_hour >= 0 AND cpu_hour >= 0", name="not_negative"),
)

#: A price plan that a rule of the site made for one server: micro-credits an hour of all of it, and the rule's name.
rule_price = sa.Table(
    "rule_price",
    metadata,
    sa.Column("plan_id", BigInt, sa.ForeignKey("price_plan.id"), primary_key=True),
    sa.Column("per_hour", BigInt, nullable=False),
    sa.Column("rule", sa.String(100), nullable=False),
    sa.CheckConstraint("per_hour >= 0", name="not_negative"),
    sa.UniqueConstraint("per_hour", "rule"),
)

host = sa.Table(
    "host",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("version", BigInt, nullable=False, server_default="0"),
    sa.Column("seen_at", UtcMicros, nullable=False),
)

device = sa.Table(
    "device",
    metadata,
    sa.Column("uuid", sa.String(255), primary_key=True),
    sa.Column("host", sa.String(255), sa.ForeignKey("host.name"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("memory_mib", BigInt, nullable=True),
    sa.Column("mode", sa.String(32), nullable=False),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # as the agent sees it
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("ordered_state", sa.String(16), nullable=True),  # as a person or a rule ordered; goes before `state`
    sa.Column("ordered_why", sa.Text, nullable=False, server_default=""),
    sa.Column("seen_at", UtcMicros, nullable=True),
    # No longer among the devices of its host; the row stays for the leases that had it.
    sa.Column("withdrawn", sa.Boolean, nullable=False, server_default=sa.false()),
    # Of a part that MIG made: milli-GPU, and how CUDA names it at present.
    sa.Column(
        "capacity",
        BigInt,
        sa.CheckConstraint("capacity >= 0 AND capacity <= 1000", name="capacity"),
        nullable=False,
        server_default="0",
    ),
    sa.Column("handle", sa.String(100), nullable=False, server_default=""),
    one_of("state", DeviceState),
    one_of("ordered_state", DeviceState, null=True),
    sa.CheckConstraint("memory_mib IS NULL OR memory_mib >= 0", name="memory_mib"),
)

lease = sa.Table(
    "lease",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("version", BigInt, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("target", sa.String(8), nullable=False),
    sa.Column("holder_kind", sa.String(16), nullable=False),
    sa.Column("holder_user", sa.String(255), nullable=False),
    sa.Column("holder_server", sa.String(255), nullable=False),
    sa.Column("account_id", BigInt, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("profile", sa.String(255), nullable=False),
    sa.Column("image", sa.String(500), nullable=False),
    sa.Column("share", BigInt, nullable=False),
    sa.Column("count", BigInt, nullable=False),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("plan_id", BigInt, sa.ForeignKey("price_plan.id"), nullable=False),
    sa.Column("hold_seconds", BigInt, nullable=False),
    sa.Column("owner", sa.String(255), nullable=True),
    sa.Column("requested_at", UtcMicros, nullable=False),
    sa.Column("requested_by", sa.String(255), nullable=False),
    sa.Column("deadline", UtcMicros, nullable=True),
    sa.Column("started_at", UtcMicros, nullable=True),
    sa.Column("last_seen", UtcMicros, nullable=True),
    sa.Column("ended_at", UtcMicros, nullable=True),
    sa.Column("metered_until", UtcMicros, nullable=True),  # charges are posted up to here
    sa.Column("stop_reason", sa.String(16), nullable=True),
    sa.Column("stop_detail", sa.Text, nullable=False, server_default=""),
    sa.Column("stop_by", sa.String(255), nullable=False, server_default=""),
    sa.Column("stop_after", UtcMicros, nullable=True),
    sa.Column("void", sa.Boolean, nullable=False, server_default=sa.false()),  # failed after ready: free of charge
    sa.Column("usage", BigInt, nullable=False, server_default="0"),
    sa.Column("charged", BigInt, nullable=False, server_default="0"),  # posted; refunds not taken off
    sa.Column("refunded", BigInt, nullable=False, server_default="0"),
    sa.Column("held", BigInt, nullable=False, server_default="0"),
    # As of the start: what the rules for stopping go by.
    sa.Column(
        "service_class",
        sa.String(16),
        one_of("service_class", ServiceClass),  # with its column, as SQLite can add it
        nullable=False,
        server_default="on-demand",
    ),
    sa.Column(
        "groups", sa.JSON(none_as_null=True), nullable=True
    ),  # of the Hub that its user was in; NULL: not on record
    sa.Column("holds", sa.Integer, nullable=False, server_default="0"),  # numbers of the keys hold:L:n
    sa.Column("charges", sa.Integer, nullable=False, server_default="0"),  # and charge:L:n
    one_of("state", State),
    one_of("target", Target),
    one_of("holder_kind", HolderKind),
    one_of("stop_reason", StopReason, null=True),
    sa.CheckConstraint(_LEGAL_SQL, name="legal"),
    sa.CheckConstraint("share >= 0 AND share <= 1000 AND count >= 0 AND (share = 0) = (count = 0)", name="share"),
    sa.CheckConstraint("held >= 0", name="held"),
    sa.CheckConstraint("refunded >= 0 AND refunded <= charged", name="refunded"),
    sa.CheckConstraint("ended_at IS NULL OR started_at IS NULL OR ended_at >= started_at", name="ended_at"),
    sa.CheckConstraint("state <> 'SETTLED' OR held = 0", name="settled"),
    sa.Index(
        "uq_lease_live_holder",
        "holder_kind",
        "holder_user",
        "holder_server",
        unique=True,
        sqlite_where=sa.text(LIVE_SQL),
        postgresql_where=sa.text(LIVE_SQL),
    ),
    sa.Index(
        "ix_lease_live_account",
        "account_id",
        "share",
        "count",
        sqlite_where=sa.text(LIVE_SQL),
        postgresql_where=sa.text(LIVE_SQL),
    ),
    sa.Index(
        "ix_lease_unsettled",
        "account_id",
        "held",
        sqlite_where=sa.text("state <> 'SETTLED'"),
        postgresql_where=sa.text("state <> 'SETTLED'"),
    ),
    sa.Index("ix_lease_newest", "requested_at", "id"),
    sa.Index("ix_lease_user_newest", "holder_user", "requested_at", "id"),
    sa.Index("ix_lease_account", "account_id", "requested_at"),
    # Partial, or SQLite would take it for questions that `ix_lease_live_account` and `ix_lease_unsettled` answer.
    sa.Index(
        "ix_lease_ended", "account_id", "ended_at", sqlite_where=sa.text(ENDED_SQL), postgresql_where=sa.text(ENDED_SQL)
    ),
    sa.Index(
        "ix_lease_refunded",
        "account_id",
        sqlite_where=sa.text(REFUNDED_SQL),
        postgresql_where=sa.text(REFUNDED_SQL),
    ),
)

slot = sa.Table(
    "slot",
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255), nullable=True),
    sa.Column("device", sa.String(255), sa.ForeignKey("device.uuid"), nullable=True),
    sa.Column("share", BigInt, nullable=False),
    sa.Column("released_at", UtcMicros, nullable=True),
    sa.CheckConstraint("share >= 0 AND share <= 1000", name="share"),
    sa.Index(
        "ix_slot_live_device",
        "device",
        "share",
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    ),
)

segment = sa.Table(
    "segment",
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("weight", BigInt, nullable=False),
    sa.Column("plan_id", BigInt, sa.ForeignKey("price_plan.id"), nullable=False),
    sa.Column("started_at", UtcMicros, nullable=False),
    sa.Column("ended_at", UtcMicros, nullable=True),
    sa.CheckConstraint("weight >= 0", name="weight"),
    sa.CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name="ended_at"),
)

posting = sa.Table(
    "posting",
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("key", sa.String(200), nullable=False),
    sa.Column("leg", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("sub", sa.String(100), nullable=False),
    sa.Column("amount", BigInt, nullable=False),
    sa.Column("account_id", BigInt, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), nullable=True),
    sa.Column("at", UtcMicros, nullable=False),
    one_of("kind", Kind),
    sa.CheckConstraint("amount <> 0", name="amount"),
    sa.Index("uq_posting_key", "key", "leg", unique=True),
    sa.Index("ix_posting_lease", "lease_id"),
)

balance = sa.Table(
    "balance",
    metadata,
    sa.Column("sub", sa.String(100), primary_key=True),
    sa.Column("amount", BigInt, nullable=False),
    # What a sub-account can never be, whoever writes.
    sa.CheckConstraint("amount >= 0 OR (sub NOT LIKE 'grant:%' AND sub NOT LIKE 'held:%')", name="not_overdrawn"),
    sa.CheckConstraint("amount <= 0 OR sub NOT LIKE 'debt:%'", name="debt"),
)

month_charge = sa.Table(
    "month_charge",  # the sum of one account's charges in one calendar month of the site; a cache, as `balance` is
    metadata,
    sa.Column("account_id", BigInt, sa.ForeignKey("account.id"), primary_key=True),
    sa.Column("month", sa.String(7), primary_key=True),
    sa.Column("charged", BigInt, nullable=False),
)

grant_bucket = sa.Table(
    "grant_bucket",
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("account_id", BigInt, sa.ForeignKey("account.id"), nullable=False, index=True),
    sa.Column("key", sa.String(255), nullable=False, unique=True),
    sa.Column("amount", BigInt, nullable=False),
    sa.Column("granted_at", UtcMicros, nullable=False),
    sa.Column("expires_at", UtcMicros, nullable=True),
    sa.Column("expired_at", UtcMicros, nullable=True),  # when the rest was taken off; open until then
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.CheckConstraint("amount > 0", name="amount"),
    sa.Index(
        "ix_grant_bucket_open",
        "account_id",
        "id",
        sqlite_where=sa.text("expired_at IS NULL"),
        postgresql_where=sa.text("expired_at IS NULL"),
    ),
)

sample = sa.Table(
    "sample",
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("cpu_seconds", sa.Float, nullable=True),
    sa.Column("memory_mib", BigInt, nullable=True),
    sa.Column("gpu_util", BigInt, nullable=True),
    sa.Column("gpu_memory_mib", BigInt, nullable=True),
)

signal = sa.Table(
    "signal",
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("source", sa.String(32), primary_key=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
)

verdict = sa.Table(
    "verdict",
    metadata,
    sa.Column("lease_id", sa.String(64), sa.ForeignKey("lease.id"), primary_key=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("rule", sa.String(100), nullable=False),
    sa.Column("words", sa.Text, nullable=False),
    sa.Column("evidence", sa.JSON, nullable=False),
    sa.Column("deadline", UtcMicros, nullable=True),
    one_of("kind", ("keep", "warn", "reclaim")),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("id", BigInt, primary_key=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("lease_id", sa.String(64), nullable=True, index=True),
    sa.Column("account_id", BigInt, nullable=True, index=True),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
)

heartbeat = sa.Table(
    "heartbeat",
    metadata,
    sa.Column("boot", sa.String(255), primary_key=True),
    sa.Column("role", sa.String(32), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("started_at", UtcMicros, nullable=False),
    sa.Column("beat_at", UtcMicros, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
)

alert = sa.Table(
    "alert",  # what an administrator should look at; one row a trouble, open until `cleared_at`
    metadata,
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("words", sa.Text, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Column("since", UtcMicros, nullable=False),
    sa.Column("seen_at", UtcMicros, nullable=False),
    sa.Column("cleared_at", UtcMicros, nullable=True),
)

answered = sa.Table(
    "answered",  # answers to requests with an Idempotency-Key, to be given again to the same request
    metadata,
    sa.Column("owner", sa.String(255), primary_key=True),  # who asked: the Hub's name of the user
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),  # of method, address and body
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("at", UtcMicros, nullable=False, index=True),
)
