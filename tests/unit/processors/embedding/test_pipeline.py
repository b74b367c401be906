"""Reports of the second stage: the changes that a page completes are reported together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from faust.types import TP

from events.client.outcomes import Outcomes
from events.models import DocumentChunked, DocumentChunkedData, DocumentEmbedded
from events.names import Lane, LogPosition, Topic
from events.transport import InFlightEntry
from processors.deliveries import Settlement
from processors.embedding.pipeline import Chunked, Embedding
from processors.embedding.stage import EmbeddingCost, VectorStage

TOPIC = Topic.CHUNKED_BULK


class Recorder:
    """Outcomes and settlement that write down what they receive, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[str]]] = []

    async def publish(self, outcomes: Sequence[DocumentEmbedded]) -> None:
        self.steps.append(("publish", [outcome.data.event_id for outcome in outcomes]))

    def acknowledge(self, entry: InFlightEntry, *, sent: bool = False) -> None:
        entry.settled = True
        self.steps.append(("acknowledge", [entry.id]))


class Pages:
    """Stage that completes the changes of each page at once."""

    def __init__(self, *pages: Sequence[LogPosition]) -> None:
        self._pages = pages

    async def run(self, *_: Any) -> AsyncIterator[Mapping[LogPosition, EmbeddingCost]]:
        for page in self._pages:
            yield {log_position: EmbeddingCost(chunks=1) for log_position in page}


def position(number: int) -> LogPosition:
    return LogPosition.of_entry(Lane.BULK, 0, f"{number}-0")


def delivery(number: int, recorder: Recorder) -> Chunked:
    data = DocumentChunkedData(
        event_id=f"change-{number}",
        token=position(number).token,
        project="docs",
        uri=f"{number}.md",
        agent=None,
        generation=1,
        chunks=1,
        published_at=datetime.now(UTC),
    )
    entry = InFlightEntry(TP(TOPIC.value, 0), f"{number}-0", {b"event": b"{}"})
    settlement = cast("Settlement", recorder)
    return Chunked(DocumentChunked(data=data), TOPIC, entry, None, LogPosition(0, 0), settlement)


async def test_each_page_is_one_report() -> None:
    """Changes that no page names had no work left. Each is acknowledged after its outcome."""
    recorder = Recorder()
    pages = cast("VectorStage", Pages([position(1), position(2)], [], [position(3)]))
    embedding = Embedding(pages, cast("Outcomes", recorder))
    await embedding.run([delivery(number, recorder) for number in range(1, 6)])
    assert recorder.steps == [
        ("publish", ["change-1", "change-2"]),
        ("acknowledge", ["1-0"]),
        ("acknowledge", ["2-0"]),
        ("publish", ["change-3"]),
        ("acknowledge", ["3-0"]),
        ("publish", ["change-4", "change-5"]),
        ("acknowledge", ["4-0"]),
        ("acknowledge", ["5-0"]),
    ]
