"""Every stream, group and key name, built here and nowhere else.

Keys that one script touches share a hash tag, so that the same code runs on a Redis Cluster::

    headrace:{document.0}:changed.live    topic document.changed.live, partition 0
    headrace:{document.0}:changed.bulk
    headrace:{document.0}:changed.live.dead
    headrace:{document.0}:seen:<project>:<event id>[:<end of its signature>]
    headrace:{document.0}:chunked.live    topic document.chunked.live, partition 0
    headrace:{document.0}:chunked.bulk
    headrace:{document.0}:outcome         document.indexed, document.embedded, document.rejected
    headrace:{document.0}:trimmed         how many changes have left each lane's stream
    headrace:{query.0}:requested
    headrace:{query.0}:replies:<client>
    headrace:{query.0}:replied:<query id>
    headrace:{model.<provider>}:held      there while a provider is to be left alone
    headrace:{model.<provider>}:requests  when its limit will have been worked off; also :tokens
    headrace:{workers}:state              hash: what each worker last told of itself
    headrace:deployment                   which deployment this is, and its partitions
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import StrEnum

from runtime.errors import MalformedEvent

__all__ = [
    "ARCHIVER",
    "DEAD_SUFFIX",
    "GROUPS",
    "LARGEST_SEQUENCE",
    "Lane",
    "Names",
    "Position",
    "Topic",
]

DEAD_SUFFIX = ".dead"
_SEQUENCE_BITS = 20
LARGEST_SEQUENCE = 2**_SEQUENCE_BITS - 1
_PROOF_CHARACTERS = 16
_CLIENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOKEN = re.compile(r"(live|bulk):([0-9]{1,3}):([0-9]{1,15}-[0-9]{1,10})")


class Lane(StrEnum):
    """The two streams of changes: few and urgent, or many and not urgent."""

    LIVE = "live"
    BULK = "bulk"


class Topic(StrEnum):
    """Topics as Faust sees them; the part before the first dot is the hash tag of their keys."""

    CHANGED_LIVE = "document.changed.live"
    CHANGED_BULK = "document.changed.bulk"
    CHUNKED_LIVE = "document.chunked.live"
    CHUNKED_BULK = "document.chunked.bulk"
    OUTCOME = "document.outcome"
    QUERY = "query.requested"

    @property
    def lane(self) -> Lane:
        """Lane of a topic that has two.

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
        """The topic that carries a lane's changes."""
        return cls(f"document.changed.{lane}")

    @classmethod
    def of_chunked(cls, lane: Lane) -> Topic:
        """The topic that carries a lane's documents whose chunks wait for vectors."""
        return cls(f"document.chunked.{lane}")


GROUPS: dict[Topic, str] = {
    Topic.CHANGED_LIVE: "indexer",
    Topic.CHANGED_BULK: "indexer",
    Topic.CHUNKED_LIVE: "embedder",
    Topic.CHUNKED_BULK: "embedder",
    Topic.QUERY: "answerer",
}

ARCHIVER = "archiver"
"""The second group of the streams of changes: it keeps them outside of Redis."""


@dataclass(frozen=True)
class Position:
    """Place of a change in the log: totally ordered by time, also across lanes.

    Lanes are separate streams, so two entries of one millisecond can have the same id; the live
    one then counts as the newer. ``number`` fits Postgres' bigint.
    """

    lane: Lane
    partition: int
    entry_id: str

    @property
    def number(self) -> int:
        """Sortable 63-bit form: milliseconds, sequence (20 bits), lane (1 bit).

        Raises:
            MalformedEvent: an id that Redis' clock can't have made.
        """
        milliseconds, _, sequence = self.entry_id.partition("-")
        value = int(milliseconds) << _SEQUENCE_BITS | int(sequence)
        if int(sequence) >> _SEQUENCE_BITS or value >> 62:
            raise MalformedEvent(f"stream entry id {self.entry_id} is out of range")
        return value << 1 | (self.lane is Lane.LIVE)

    @property
    def token(self) -> str:
        """What a publisher gets, and a query may name as ``min_event``."""
        return f"{self.lane}:{self.partition}:{self.entry_id}"

    @classmethod
    def from_token(cls, token: str) -> Position:
        """Inverse of ``token``.

        Raises:
            MalformedEvent: not a token.
        """
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise MalformedEvent(f"not a token: {token[:80]!r}")
        lane, partition, entry_id = match.groups()
        position = cls(Lane(lane), int(partition), entry_id)
        _ = position.number
        return position

    @classmethod
    def from_number(cls, number: int, partition: int) -> Position:
        """Inverse of ``number``."""
        lane = Lane.LIVE if number & 1 else Lane.BULK
        number >>= 1
        sequence = number & ((1 << _SEQUENCE_BITS) - 1)
        return cls(lane, partition, f"{number >> _SEQUENCE_BITS}-{sequence}")


@dataclass(frozen=True)
class Names:
    """Builds every Redis key of one deployment."""

    prefix: str = "headrace"
    partitions: int = 1

    def stream(self, topic: str, partition: int = 0) -> str:
        """Stream key of a topic's partition; a dead-letter topic ends in ``DEAD_SUFFIX``."""
        family, _, rest = topic.partition(".")
        return f"{self.prefix}:{{{family}.{partition}}}:{rest}"

    def dead(self, topic: str, partition: int = 0) -> str:
        """Dead-letter stream beside a topic's stream."""
        return self.stream(topic + DEAD_SUFFIX, partition)

    def seen(self, project: str, event_id: str, partition: int, signature: str = "") -> str:
        """Remembers the token of a published event id, for idempotent publishing.

        A signed event has a key that only its publisher can name: by an unsigned one of the same id
        nobody can keep it from being published.
        """
        proof = f":{signature[-_PROOF_CHARACTERS:]}" if signature else ""
        return f"{self.prefix}:{{document.{partition}}}:seen:{project}:{event_id}{proof}"

    def trimmed(self, partition: int) -> str:
        """Hash: by lane, how many changes have left the stream."""
        return f"{self.prefix}:{{document.{partition}}}:trimmed"

    def replies(self, client: str, partition: int = 0) -> str:
        """Reply stream of one client."""
        return f"{self.prefix}:{{query.{partition}}}:replies:{client}"

    def is_replies(self, key: str, partition: int) -> bool:
        """Whether a key that a query names can only be a reply stream of its partition."""
        prefix = self.replies("", partition)
        return key.startswith(prefix) and _CLIENT.fullmatch(key, len(prefix)) is not None

    def replied(self, query_id: str, partition: int = 0) -> str:
        """Remembers that a query has its terminal reply."""
        return f"{self.prefix}:{{query.{partition}}}:replied:{query_id}"

    def turns(self, provider: str, kind: str) -> str:
        """State of a provider's limits: ``held``, ``requests`` or ``tokens``."""
        return f"{self.prefix}:{{model.{provider}}}:{kind}"

    @property
    def workers(self) -> str:
        """Hash: by worker, what it last told of itself."""
        return f"{self.prefix}:{{workers}}:state"

    @property
    def deployment(self) -> str:
        """Which deployment these keys belong to, see ``events.deployment``."""
        return f"{self.prefix}:deployment"

    def partition_of(self, project: str, uri: str) -> int:
        """Partition of a document: stable, by CRC-32 of project and uri."""
        return zlib.crc32(f"{project}\0{uri}".encode()) % self.partitions

    def query_partition(self, query_id: str) -> int:
        """Partition of a query."""
        return zlib.crc32(query_id.encode()) % self.partitions
