"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from quota.revisions import downgrade_refused
from quota.schema import UtcMicros

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    downgrade_refused()
