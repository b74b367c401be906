"""${message}"""

from __future__ import annotations

from migrations.statements import run_script

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
oldest_code = ${repr(up_revision)}


def upgrade() -> None:
    run_script(__file__)
