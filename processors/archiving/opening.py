"""Construction of the archiver role from the settings."""

from __future__ import annotations

from events.republishing import Republishing
from processors.archiving.archiver import Archiver
from processors.archiving.intake import Intake
from processors.archiving.log_group import LogGroup
from processors.archiving.republishing import Republisher
from processors.archiving.running import Archiving
from processors.archiving.upkeep import Upkeep
from processors.servers import Servers
from runtime.settings import Settings
from store.outbox import PostgresOutbox

__all__ = ["archiving_of"]


def archiving_of(servers: Servers, settings: Settings) -> Archiving:
    """Build the archiver with its upkeep; it needs neither models nor parsers."""
    outbox = PostgresOutbox(servers.database, servers.projects)
    return Archiving(
        Archiver(
            servers.database,
            settings.stream_prefix,
            LogGroup(servers.redis, servers.names),
            servers.archive,
            Intake(servers.admission, outbox),
        ),
        Upkeep(
            servers.redis,
            servers.names,
            servers.database,
            servers.archive,
            stream_retention=settings.stream_retention,
            archive_retention=settings.archive_retention,
            compaction_interval=settings.archive_compaction_interval,
        ),
        Republisher(
            Republishing(servers.redis, servers.names),
            outbox,
        ),
    )
