"""Invalid envelopes: valid events with mutations, and raw bytes.

All come from one hypothesis strategy, so that the same envelopes are parsed, shrunk after a
failure, and sent to a worker in bulk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from events.names import Names, Topic
from tests.support.hostile_values import VALUES, hostile_text

__all__ = ["PROJECTS", "REPLY_TO", "Envelope", "corpus", "envelopes"]

PROJECTS = ("alpha", "beta")
REPLY_TO = Names().replies("fuzz")
_TOPICS = (Topic.CHANGED_LIVE, Topic.CHANGED_BULK, Topic.QUERY)
_FIELDS = (b"event", b"position", b"signature", b"", b"\x00", b"Event", b"data", b"\xff")
_OPTIONAL = ("agent", "media_type", "kind", "title", "content_ref", "deadline", "min_event")
_NOTHINGS = (b"", b"{}", b"[]", b"\xef\xbb\xbf{}", b"{" * 500, b'{"a":' * 500, b"[" * 20_000)


@dataclass(frozen=True)
class Envelope:
    """Fields of an entry, and the topic of its stream."""

    topic: Topic
    fields: dict[bytes, bytes]

    @property
    def raw(self) -> bytes:
        """Bytes of the event."""
        return self.fields.get(b"event", b"")


def _change(number: int) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"change-{number}",
        "source": "fuzz",
        "time": "2026-01-01T00:00:00Z",
        "type": "document.changed",
        "data": {
            "project": PROJECTS[number % 2],
            "uri": f"docs/{number % 50}.md",
            "content": f"# Mill {number}\n\nWeirs hold water.\n",
            "collections": ["common"],
            "metadata": {"number": number, "team": "mill"},
        },
    }


def _delete(number: int) -> dict[str, Any]:
    event = _change(number)
    data = {"project": PROJECTS[number % 2], "uri": f"docs/{number % 50}.md", "change": "delete"}
    return {**event, "data": data}


def _rename(number: int) -> dict[str, Any]:
    event = _change(number)
    moved = {"change": "rename", "old_uri": f"docs/{(number + 1) % 50}.md"}
    return {**event, "data": {**event["data"], **moved}}


def _query(number: int) -> dict[str, Any]:
    return {
        "id": f"query-{number}",
        "type": "query.requested",
        "data": {
            "project": PROJECTS[number % 2],
            "text": "who holds the water?",
            "reply_to": REPLY_TO,
            "max_wait_ms": 50,
            "mode": "keyword",
            "filters": {"metadata": {"team": "mill"}},
        },
    }


_MAKERS = {
    Topic.CHANGED_LIVE: (_change, _delete, _rename),
    Topic.CHANGED_BULK: (_change, _delete, _rename),
    Topic.QUERY: (_query,),
}


def _structured(random: Random, topic: Topic) -> bytes:
    """Event with up to three values replaced, dropped, wrapped or added."""
    event = random.choice(_MAKERS[topic])(random.randrange(10**6))
    for _ in range(random.randrange(4)):
        _mutate(random, event)
    text = json.dumps(event, ensure_ascii=random.random() < 0.5)
    return text.encode(errors="surrogatepass")


def _mutate(random: Random, event: dict[str, Any]) -> None:
    data = event.get("data")
    part = data if isinstance(data, dict) and random.random() < 0.7 else event
    name = random.choice([*part, *_OPTIONAL, hostile_text(random, 40)])
    match random.randrange(5):
        case 0:
            part.pop(name, None)
        case 1:
            part[name] = [part.get(name)] if random.random() < 0.5 else {name: part.get(name)}
        case _:
            part[name] = random.choice([random.choice(VALUES), hostile_text(random, 60)])


def _damaged(random: Random, topic: Topic) -> bytes:
    """Bytes of an event, some of them lost, doubled, changed or inserted."""
    raw = bytearray(_structured(random, topic))
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(raw) + 1)
        match random.randrange(4):
            case 0:
                del raw[max(1, at) :]
            case 1:
                raw[at : at + 1] = random.randbytes(1)
            case 2:
                raw[at:at] = random.randbytes(random.randrange(1, 9))
            case _:
                raw[at:at] = raw[at : at + random.randrange(1, 200)]
    return bytes(raw)


def _noise(random: Random, topic: Topic) -> bytes:
    wide = _structured(random, topic).decode(errors="replace").encode("utf-16")
    value = json.dumps(random.choice(VALUES)).encode()
    return random.choice([random.randbytes(random.randrange(200)), wide, value, *_NOTHINGS])


def _envelope(random: Random) -> Envelope:
    """Entry that any client may add to a stream of workers."""
    topic = random.choice(_TOPICS)
    make = random.choices([_structured, _damaged, _noise], [7, 2, 1])[0]
    kind = topic if random.random() < 0.95 else random.choice(_TOPICS)
    fields = {b"event": make(random, kind)}
    if random.random() < 0.1:
        numbers = [b"0", b"1", b"-1", b"1e9", b"9" * 30, b"\xd9\xa3", random.randbytes(20)]
        fields[random.choice(_FIELDS)] = random.choice(numbers)
    if random.random() < 0.02:
        fields = {random.choice(_FIELDS[1:]): fields[b"event"]}
    return Envelope(topic, fields)


def envelopes() -> st.SearchStrategy[Envelope]:
    """Strategy of all envelopes. Each is made from one seed, so thousands take a second or two."""
    return st.randoms(use_true_random=True).map(_envelope)


def corpus(count: int, of_seed: int = 0) -> Sequence[Envelope]:
    """Sequence of ``count`` envelopes, the same for the same seed."""
    found: list[Envelope] = []

    @seed(of_seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(envelopes())
    def collect(envelope: Envelope) -> None:
        found.append(envelope)

    collect()
    return found[:count]
