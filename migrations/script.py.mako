"""${message}"""

from migrations.statements import run_script

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run_script(__file__)
