"""Environment of alembic; ``store.postgres.schema`` provides an open connection."""

from alembic import context

from migrations.statements import record_oldest_code

context.configure(
    connection=context.config.attributes["connection"], on_version_apply=record_oldest_code
)
with context.begin_transaction():
    context.run_migrations()
