"""Faust's view of a consumer: methods and offsets that have a meaning only with Kafka's log.

Faust remembers acknowledged offsets in ``Consumer._acked`` and commits the highest one without a
gap below it, which loses work that is still in flight. Its compiled stream iterator appends to the
lists in that mapping and calls no method of the consumer, so the mapping is replaced: all of its
code paths use it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from faust.transport import base
from faust.types import TP
from mode.services import ServiceTask

from events.transport.consumer_group import InFlightEntry, InFlightMessage

__all__ = ["AckLog", "FaustConsumer", "NoOffsets"]

OnAck = Callable[[TP, int], None]


class _AckList(list[int]):
    def __init__(self, tp: TP, on_ack: OnAck) -> None:
        super().__init__()
        self._tp = tp
        self._on_ack = on_ack

    def append(self, offset: int, /) -> None:
        self._on_ack(self._tp, offset)


class AckLog(dict[TP, _AckList]):
    """Passes each acknowledged offset on, and stores none."""

    def __init__(self, on_ack: OnAck) -> None:
        super().__init__()
        self._on_ack = on_ack

    def __missing__(self, tp: TP) -> _AckList:
        return self.setdefault(tp, _AckList(tp, self._on_ack))


class NoOffsets(dict[TP, None]):
    """A mapping without any offset: reclaimed entries are older than the last read one."""

    def __missing__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: object) -> None:
        pass

    def update(self, *offsets: object, **more: object) -> None:
        """Ignore the offsets."""


class FaustConsumer(base.Consumer):
    """A consumer without offsets: streams are read by groups, and settled entry by entry."""

    consumer_stopped_errors = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options = self.transport.options
        self._read_offset = NoOffsets()
        self._committed_offset = NoOffsets()
        self._acked = AckLog(self._on_faust_ack)

    def _get_tasks(self) -> Iterable[ServiceTask]:
        """Return no tasks: those of Faust commit offsets, and look whether that makes progress."""
        return ()

    @abstractmethod
    def acknowledge_offset(self, tp: TP, offset: int) -> None:
        """Acknowledge the entry with this offset, if it is in flight."""

    def _on_faust_ack(self, tp: TP, offset: int) -> None:
        """Handle an acknowledgement by Faust itself, for agents that were declared with Faust.

        While the flow is suspended, Faust also acknowledges entries that it skipped, so these
        acknowledgements are ignored.
        """
        self._acked_index[tp].discard(offset)
        if self.app.flow_control.is_active():
            self.acknowledge_offset(tp, offset)

    async def _drain_messages(self, fetcher: Any) -> None:
        """Wait for the end: readers deliver by themselves."""
        await asyncio.Event().wait()

    def on_buffer_full(self, tp: TP) -> None:
        """Do nothing: the window bounds each topic."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Do nothing: the window bounds each topic."""

    async def perform_seek(self) -> None:
        """Do nothing: a group keeps its own log position."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Return no offsets: a group keeps its own log position."""
        return {}

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Do nothing: streams can't seek, a replay publishes again."""

    async def _seek(self, partition: TP, offset: int) -> None:
        """Do nothing: streams can't seek, a replay publishes again."""

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        return True

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        return {}

    def _to_message(self, tp: TP, record: InFlightEntry) -> InFlightMessage:
        return InFlightMessage(record, self.app.consumer_generation_id)

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def position(self, tp: TP) -> int | None:
        """Return None: a group has no single offset."""
        return None

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return 0: only tables, which are not supported, need it."""
        return dict.fromkeys(partitions, 0)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return 0: only tables, which are not supported, need it."""
        return dict.fromkeys(partitions, 0)

    def highwater(self, tp: TP) -> int:
        """Return 0: only tables, which are not supported, need it."""
        return 0

    def topic_partitions(self, topic: str) -> int | None:
        """Return the number of partitions, which is the same for every topic."""
        partitions: int = self.options.names.partitions
        return partitions

    def key_partition(
        self, topic: str, key: bytes | None, partition: int | None = None
    ) -> int | None:
        """Return the partition that the producer would choose."""
        chosen: int = self.app.producer.key_partition(topic, key or b"").partition
        return chosen if partition is None else partition

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a stream is created with its first entry or group."""
