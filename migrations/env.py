"""What alembic runs; ``store.schema`` hands over an open connection."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
