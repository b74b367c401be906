"""Construction of the archiver role from the settings."""

from __future__ import annotations

from events.client.republisher import Republishing
from processors.archiving.archiver import Archiver, Intake
from processors.archiving.consumer import LogGroup
from processors.archiving.housekeeping import Archiving, Housekeeping
from processors.archiving.outbox_relay import OutboxRelay
from processors.wiring.servers import Servers
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
        Housekeeping(
            servers.redis,
            servers.names,
            servers.database,
            servers.archive,
            stream_retention=settings.stream_retention,
            archive_retention=settings.archive_retention,
            compaction_interval=settings.archive_compaction_interval,
        ),
        OutboxRelay(
            Republishing(servers.redis, servers.names),
            outbox,
        ),
    )
