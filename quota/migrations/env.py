"""Run by alembic. The connection comes from `Store.migrate`, inside its own write transaction, so that a revision is
applied whole or not at all and two processes never migrate at once. There is no ini file and no offline mode."""

from __future__ import annotations

from alembic import context

from quota.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
