"""Stream names, group names and key names, built here and nowhere else; positions in the log.

Keys that are used by one script share a hash tag, so that the same code runs on a Redis Cluster.
Those of partition 1 and above have a number in it that spreads them (``events.partitions``)::

    headrace:{document.0}:changed.live    topic document.changed.live, partition 0
    headrace:{document.0}:changed.bulk
    headrace:{document.0}:changed.live.dead
    headrace:{document.0}:seen:<project>:<event id>[:<end of its signature>]
    headrace:{document.0}:chunked.live    topic document.chunked.live, partition 0
    headrace:{document.0}:chunked.bulk
    headrace:{document.0}:outcome         document.indexed, document.embedded, document.rejected
    headrace:{document.0}:trimmed         number of changes trimmed from each lane's stream
    headrace:{document.0}:partitions      number of partitions by which publishers must choose
    headrace:{query.0}:requested
    headrace:{query.0}:judged
    headrace:{query.0}:replies:<client>
    headrace:{query.0}:replied:<query id> exists if a query has its reply; see ``AnswerRecord``
    headrace:{model.<provider>}:held      exists while no request may be sent to a provider
    headrace:{model.<provider>}:requests  time when its limit is worked off; also :tokens
    headrace:{workers}:state              hash: last state that each worker sent
    headrace:deployment                   identity of the deployment, and its partitions
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from events.models import Origin
from events.partitions import Raise, hash_tag
from runtime.errors import MalformedEvent

__all__ = [
    "ARCHIVER",
    "BRIDGE",
    "DEAD_SUFFIX",
    "GROUPS",
    "LARGEST_SEQUENCE",
    "POSITION_FIELD",
    "DocumentKey",
    "Lane",
    "LogPosition",
    "Names",
    "Rank",
    "StreamKey",
    "Topic",
    "change_streams",
    "kept_position",
    "overlay_agent",
    "overlay_suffix",
    "position_at",
    "rank_of",
    "readable_agents",
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
    JUDGED = "query.judged"

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

    @property
    def is_of_workers(self) -> bool:
        """True for the topics whose events only workers publish, about changes."""
        return self in {Topic.CHUNKED_LIVE, Topic.CHUNKED_BULK, Topic.OUTCOME}

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
    Topic.JUDGED: "indexer",
}

ARCHIVER = "archiver"
"""The second group of the change streams: it copies them to the archive."""

BRIDGE = "bridge"
"""The group of bridges, which read changes from Kafka and, if chosen, outcomes from Redis."""


@dataclass(eq=False)
class Names:
    """Builds every Redis key of one deployment.

    ``partitions`` is the number of partitions that workers read. It may be raised while a process
    runs: all objects of a process share one instance, and see the new number.
    """

    prefix: str = "headrace"
    partitions: int = 1
    raises: Sequence[Raise] = ()

    @property
    def chosen_from(self) -> int:
        """Number of partitions by which publishers choose: the former one while it is raised."""
        last = self.raises[-1] if self.raises else None
        return self.partitions if last is None or last.completed_ms is not None else last.former

    def _tag(self, family: str, partition: int) -> str:
        return f"{self.prefix}:{{{hash_tag(family, partition)}}}"

    def stream(self, topic: str, partition: int = 0) -> str:
        """Return the stream key of a topic's partition; dead-letter topics end in DEAD_SUFFIX."""
        family, _, rest = topic.partition(".")
        return f"{self._tag(family, partition)}:{rest}"

    def dead(self, topic: str, partition: int = 0) -> str:
        """Return the key of the dead-letter stream beside a topic's stream."""
        return self.stream(topic + DEAD_SUFFIX, partition)

    def seen(self, project: str, event_id: str, partition: int, signature: str = "") -> str:
        """Return the key of the token of a published event id, for idempotent publishing.

        Only the publisher of a signed event can name its key, so no other client can block it by
        publishing an unsigned event of the same id.
        """
        proof = f":{signature[-_PROOF_CHARACTERS:]}" if signature else ""
        return f"{self._tag('document', partition)}:seen:{project}:{event_id}{proof}"

    def trimmed(self, partition: int) -> str:
        """Return the key of a hash: number of changes trimmed from the stream, by lane."""
        return f"{self._tag('document', partition)}:trimmed"

    def number_key(self, partition: int) -> str:
        """Return the key of the number of partitions by which publishers must choose.

        It exists if the number was ever raised.
        """
        return f"{self._tag('document', partition)}:partitions"

    def replies(self, client: str, partition: int = 0) -> str:
        """Return the key of the reply stream of one client."""
        return f"{self._tag('query', partition)}:replies:{client}"

    def is_replies(self, key: str, partition: int) -> bool:
        """Return whether a key in a query can only be a reply stream of its partition."""
        prefix = self.replies("", partition)
        return key.startswith(prefix) and _CLIENT.fullmatch(key, len(prefix)) is not None

    def replied(self, query_id: str, partition: int = 0) -> str:
        """Return the key that exists if a query has its terminal reply; see ``AnswerRecord``."""
        return f"{self._tag('query', partition)}:replied:{query_id}"

    def rate_limit(self, provider: str, kind: str) -> str:
        """Return the key of a provider's limits: ``held``, ``requests`` or ``tokens``."""
        return f"{self.prefix}:{{model.{provider}}}:{kind}"

    def gateway(self, holder: str, kind: str) -> str:
        """Return a key of the gateways.

        ``kind`` is ``requests`` or ``bytes`` of an API key, ``failures`` of an address, ``ticket``
        or ``session`` of a hash, ``accepted`` of a project and a time; ``requests`` of a webhook,
        ``delivery`` of the hash of a delivery.
        """
        return f"{self.prefix}:{{gateway.{holder}}}:{kind}"

    @property
    def workers(self) -> str:
        """Key of a hash: last state that each worker sent."""
        return f"{self.prefix}:{{workers}}:state"

    @property
    def replays(self) -> str:
        """Key of a hash: last state of each replay, see ``events.replays``."""
        return f"{self.prefix}:{{replays}}:state"

    @property
    def deployment(self) -> str:
        """Key of the stamp of the deployment, see ``events.deployment``."""
        return f"{self.prefix}:deployment"

    def partition_of(self, project: str, uri: str, partitions: int | None = None) -> int:
        """Return the partition of a document: stable, by CRC-32 of project and uri.

        ``partitions`` is another number than the one by which publishers choose now.
        """
        return zlib.crc32(f"{project}\0{uri}".encode()) % (partitions or self.chosen_from)

    def query_partition(self, query_id: str) -> int:
        """Return the partition of a new query."""
        return zlib.crc32(query_id.encode()) % self.chosen_from

    def query_partitions(self, query_id: str) -> set[int]:
        """Return the partitions that a query may have, if it was asked before a raise."""
        numbers = {self.chosen_from, *(raised.former for raised in self.raises)}
        return {zlib.crc32(query_id.encode()) % number for number in numbers}


_SEQUENCE_BITS = 20
LARGEST_SEQUENCE = 2**_SEQUENCE_BITS - 1
_TOKEN = re.compile(r"(live|bulk):([0-9]{1,3}):([0-9]{1,15}-[0-9]{1,10})")

POSITION_FIELD = b"position"


class DocumentKey(NamedTuple):
    """Key of a document in its project; ``agent`` is empty for a shared document.

    A document of an overlay has an agent in the form of ``overlay_agent``.
    """

    agent: str
    uri: str


def overlay_agent(agent: str | None, overlay_id: str) -> str:
    """Agent of an overlay's documents, and of a question of ``agent`` in that overlay.

    No agent's name has a slash. ``overlay_id`` is the id of the overlay's source.
    """
    return f"{agent or ''}/{overlay_id}"


def readable_agents(agent: str | None) -> tuple[str, ...]:
    """Agents whose documents a question of ``agent`` sees beside the shared ones.

    In an overlay, these are the asker and the overlay, shared or private to the asker.
    """
    asker, slash, overlay_id = (agent or "").partition("/")
    overlays = {overlay_agent("", overlay_id), overlay_agent(asker, overlay_id)} if slash else set()
    return tuple(sorted({asker} - {""} | overlays))


def overlay_suffix(agent: str | None) -> str:
    """Slash and id of the overlay in which an agent asks; empty outside overlays.

    A document of the overlay has them behind the agent of the document whose place it takes.
    """
    _, slash, overlay_id = (agent or "").partition("/")
    return slash + overlay_id


class StreamKey(NamedTuple):
    """Topic and partition of one stream."""

    topic: Topic
    partition: int


def change_streams(names: Names) -> list[StreamKey]:
    """Return every stream of changes, the live ones first."""
    return [
        StreamKey(Topic.of_lane(lane), partition)
        for lane in Lane
        for partition in range(names.partitions)
    ]


class LogPosition(NamedTuple):
    """Log position of a change: totally ordered by time, also across lanes.

    ``position`` is a sortable 63-bit number: milliseconds, sequence (20 bits), lane (1 bit). Lanes
    are separate streams, so two entries of one millisecond can have the same id; the live entry
    then counts as the newer.
    """

    position: int
    partition: int

    @classmethod
    def of_entry(cls, lane: Lane, partition: int, entry_id: str) -> LogPosition:
        """Return the position of a stream entry.

        Raises:
            MalformedEvent: the clock of Redis can't have produced the id.
        """
        milliseconds, _, sequence = entry_id.partition("-")
        number = int(milliseconds) << _SEQUENCE_BITS | int(sequence)
        if int(sequence) >> _SEQUENCE_BITS or number >> 62:
            raise MalformedEvent(f"stream entry id {entry_id} is out of range")
        return cls(number << 1 | (lane is Lane.LIVE), partition)

    @classmethod
    def from_token(cls, token: str) -> LogPosition:
        """Inverse of ``token``.

        Raises:
            MalformedEvent: the text is not a token.
        """
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise MalformedEvent(f"not a token: {token[:80]!r}")
        lane, partition, entry_id = match.groups()
        return cls.of_entry(Lane(lane), int(partition), entry_id)

    @property
    def stream(self) -> StreamKey:
        """Stream of the entry."""
        return StreamKey(Topic.of_lane(self.lane), self.partition)

    @property
    def lane(self) -> Lane:
        """Lane of the entry."""
        return Lane.LIVE if self.position & 1 else Lane.BULK

    @property
    def entry_id(self) -> str:
        """Id of the entry in its stream."""
        milliseconds, sequence = divmod(self.position >> 1, 1 << _SEQUENCE_BITS)
        return f"{milliseconds}-{sequence}"

    @property
    def token(self) -> str:
        """Text form that a publisher receives and a query may name as ``min_event``."""
        return f"{self.lane}:{self.partition}:{self.entry_id}"


def position_at(moment: datetime) -> int:
    """The lowest position that a change of this moment can have."""
    return int(moment.timestamp() * 1000) << _SEQUENCE_BITS + 1


Rank = tuple[int, int, int]
"""Rank of a change: of two changes of one document, the one with the greater rank wins."""


def rank_of(log_position: LogPosition, origin: Origin | None) -> Rank:
    """Return the rank of a change at a log position.

    A revision is a position too: a source's change counts as of the moment at which its sync began,
    however late it was published. So a publisher that was suspended can't restore an old revision,
    and any two changes can be compared, in any order.
    """
    return log_position.position if origin is None else origin.revision, *log_position


def kept_position(fields: Mapping[bytes, bytes], own: LogPosition) -> int:
    """Return the number of an entry's effective position: its own, or the one that a redrive kept.

    Raises:
        MalformedEvent: the field is not a number, or is newer than the entry itself: with it a
            publisher could overtake every later change of the document.
    """
    text = fields.get(POSITION_FIELD)
    if text is None:
        return own.position
    if not text.isdigit() or len(text) > 19:
        raise MalformedEvent(f"{text[:40]!r} is not a log position")
    if int(text) > own.position:
        raise MalformedEvent(f"position {int(text)} is newer than the entry that names it")
    return int(text)
