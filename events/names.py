"""Names of every stream, group and key; they are built here and nowhere else.

Keys that are used by one script share a hash tag, so that the same code runs on a Redis Cluster::

    headrace:{document.0}:changed.live    topic document.changed.live, partition 0
    headrace:{document.0}:changed.bulk
    headrace:{document.0}:changed.live.dead
    headrace:{document.0}:seen:<project>:<event id>[:<end of its signature>]
    headrace:{document.0}:chunked.live    topic document.chunked.live, partition 0
    headrace:{document.0}:chunked.bulk
    headrace:{document.0}:outcome         document.indexed, document.embedded, document.rejected
    headrace:{document.0}:trimmed         number of changes trimmed from each lane's stream
    headrace:{query.0}:requested
    headrace:{query.0}:replies:<client>
    headrace:{query.0}:replied:<query id>
    headrace:{model.<provider>}:held      exists while no request may be sent to a provider
    headrace:{model.<provider>}:requests  time when its limit is worked off; also :tokens
    headrace:{workers}:state              hash: last state that each worker sent
    headrace:deployment                   identity of the deployment, and its partitions
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "ARCHIVER",
    "DEAD_SUFFIX",
    "GROUPS",
    "Lane",
    "Names",
    "Topic",
]

DEAD_SUFFIX = ".dead"
_PROOF_CHARACTERS = 16
_CLIENT = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Lane(StrEnum):
    """The two streams of changes: few and urgent, or many and not urgent."""

    LIVE = "live"
    BULK = "bulk"


class Topic(StrEnum):
    """Topics as Faust uses them; the part before the first dot is the hash tag of their keys."""

    CHANGED_LIVE = "document.changed.live"
    CHANGED_BULK = "document.changed.bulk"
    CHUNKED_LIVE = "document.chunked.live"
    CHUNKED_BULK = "document.chunked.bulk"
    OUTCOME = "document.outcome"
    QUERY = "query.requested"

    @property
    def lane(self) -> Lane:
        """The lane of a topic that has two.

        Raises:
            ValueError: the topic has no lanes.
        """
        return Lane(self.rpartition(".")[2])

    @property
    def is_live(self) -> bool:
        """True for the live lane of a topic that has two."""
        return self in {Topic.CHANGED_LIVE, Topic.CHUNKED_LIVE}

    @property
    def carries_changes(self) -> bool:
        """True for the topics whose entries have positions in the log."""
        return self in {Topic.CHANGED_LIVE, Topic.CHANGED_BULK}

    @classmethod
    def of_lane(cls, lane: Lane) -> Topic:
        """Return the topic that carries a lane's changes."""
        return cls(f"document.changed.{lane}")

    @classmethod
    def of_chunked(cls, lane: Lane) -> Topic:
        """Return the topic of a lane's documents whose chunks still need vectors."""
        return cls(f"document.chunked.{lane}")


GROUPS: dict[Topic, str] = {
    Topic.CHANGED_LIVE: "indexer",
    Topic.CHANGED_BULK: "indexer",
    Topic.CHUNKED_LIVE: "embedder",
    Topic.CHUNKED_BULK: "embedder",
    Topic.QUERY: "answerer",
}

ARCHIVER = "archiver"
"""The second group of the change streams: it copies them to the archive."""


@dataclass(frozen=True)
class Names:
    """Builds every Redis key of one deployment."""

    prefix: str = "headrace"
    partitions: int = 1

    def stream(self, topic: str, partition: int = 0) -> str:
        """Return the stream key of a topic's partition; dead-letter topics end in DEAD_SUFFIX."""
        family, _, rest = topic.partition(".")
        return f"{self.prefix}:{{{family}.{partition}}}:{rest}"

    def dead(self, topic: str, partition: int = 0) -> str:
        """Return the key of the dead-letter stream beside a topic's stream."""
        return self.stream(topic + DEAD_SUFFIX, partition)

    def seen(self, project: str, event_id: str, partition: int, signature: str = "") -> str:
        """Return the key of the token of a published event id, for idempotent publishing.

        Only the publisher of a signed event can name its key, so no other client can block it by
        publishing an unsigned event of the same id.
        """
        proof = f":{signature[-_PROOF_CHARACTERS:]}" if signature else ""
        return f"{self.prefix}:{{document.{partition}}}:seen:{project}:{event_id}{proof}"

    def trimmed(self, partition: int) -> str:
        """Return the key of a hash: number of changes trimmed from the stream, by lane."""
        return f"{self.prefix}:{{document.{partition}}}:trimmed"

    def replies(self, client: str, partition: int = 0) -> str:
        """Return the key of the reply stream of one client."""
        return f"{self.prefix}:{{query.{partition}}}:replies:{client}"

    def is_replies(self, key: str, partition: int) -> bool:
        """Return whether a key in a query can only be a reply stream of its partition."""
        prefix = self.replies("", partition)
        return key.startswith(prefix) and _CLIENT.fullmatch(key, len(prefix)) is not None

    def replied(self, query_id: str, partition: int = 0) -> str:
        """Return the key that exists if a query has its terminal reply."""
        return f"{self.prefix}:{{query.{partition}}}:replied:{query_id}"

    def rate_limit(self, provider: str, kind: str) -> str:
        """Return the key of a provider's limits: ``held``, ``requests`` or ``tokens``."""
        return f"{self.prefix}:{{model.{provider}}}:{kind}"

    @property
    def workers(self) -> str:
        """Key of a hash: last state that each worker sent."""
        return f"{self.prefix}:{{workers}}:state"

    @property
    def deployment(self) -> str:
        """Key of the stamp of the deployment, see ``events.deployment``."""
        return f"{self.prefix}:deployment"

    def partition_of(self, project: str, uri: str) -> int:
        """Return the partition of a document: stable, by CRC-32 of project and uri."""
        return zlib.crc32(f"{project}\0{uri}".encode()) % self.partitions

    def query_partition(self, query_id: str) -> int:
        """Return the partition of a query."""
        return zlib.crc32(query_id.encode()) % self.partitions
