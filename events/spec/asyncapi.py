"""The AsyncAPI 3.0 document of the streams, generated from the event models."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from events.models import (
    EVENT_TYPES,
    DocumentChanged,
    DocumentChunked,
    DocumentEmbedded,
    DocumentIndexed,
    DocumentRejected,
    Event,
    QueryAnswered,
    QueryFailed,
    QueryJudged,
    QueryRequested,
)
from events.names import Names, Topic

__all__ = ["asyncapi_document", "render"]

_CHANNELS: dict[str, tuple[str, str, tuple[type[Event], ...]]] = {
    "documentChangedLive": (
        Topic.CHANGED_LIVE,
        "Changes that must be searchable soon.",
        (DocumentChanged,),
    ),
    "documentChangedBulk": (
        Topic.CHANGED_BULK,
        "Changes of imports; they never delay the live ones.",
        (DocumentChanged,),
    ),
    "documentChunkedLive": (
        Topic.CHUNKED_LIVE,
        "Documents of live changes with chunks that wait for vectors, from indexer to embedder.",
        (DocumentChunked,),
    ),
    "documentChunkedBulk": (
        Topic.CHUNKED_BULK,
        "Documents of imports with chunks that wait for vectors; the live ones go first.",
        (DocumentChunked,),
    ),
    "documentOutcome": (
        Topic.OUTCOME,
        "The outcome of each change, at least once each; about the latest 100,000.",
        (DocumentIndexed, DocumentEmbedded, DocumentRejected),
    ),
    "queryRequested": (
        Topic.QUERY,
        "Questions; each gets exactly one reply on the stream that its reply_to names.",
        (QueryRequested,),
    ),
    "queryJudged": (
        Topic.JUDGED,
        "Judgements of results by their askers; about the latest 100,000.",
        (QueryJudged,),
    ),
}
_REPLIES = "replies"
_WE_RECEIVE = _CHANNELS.keys() - {"documentOutcome"}


def asyncapi_document() -> dict[str, Any]:
    """Build the document as plain data."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headrace",
            "version": "1.0.0",
            "description": (
                "Redis Streams; each entry holds one CloudEvents 1.0 event in structured mode "
                "(JSON) in its field `event`. Addresses are those of the default prefix."
            ),
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": _channels(),
        "operations": _operations(),
        "components": {"messages": _messages(), "schemas": _schemas()},
    }


def render() -> str:
    """Render the document as the text of its file."""
    return json.dumps(asyncapi_document(), indent=2, ensure_ascii=False) + "\n"


def _channels() -> dict[str, Any]:
    channels = {
        name: _channel(topic, description, events)
        for name, (topic, description, events) in _CHANNELS.items()
    }
    channels[_REPLIES] = {
        "address": None,
        "description": (
            f"Terminal replies to one client, on `{Names().replies('<client>')}`; "
            "they expire after 10 minutes."
        ),
        "messages": _references((QueryAnswered, QueryFailed)),
    }
    return channels


def _channel(topic: str, description: str, events: tuple[type[Event], ...]) -> dict[str, Any]:
    """Describe a channel; the hash tag is a parameter, because AsyncAPI reads its braces as one."""
    prefix, tag, rest = Names().stream(topic).split(":")
    return {
        "address": f"{prefix}:{{tag}}:{rest}",
        "description": description,
        "messages": _references(events),
        "parameters": {
            "tag": {
                "description": "Family and partition, in braces; partition 0 if there is one.",
                "default": tag,
            }
        },
    }


def _operations() -> dict[str, Any]:
    operations: dict[str, Any] = {
        name: {
            "action": "receive" if name in _WE_RECEIVE else "send",
            "channel": {"$ref": f"#/channels/{name}"},
        }
        for name in _CHANNELS
    }
    operations["queryRequested"]["reply"] = {
        "address": {
            "description": "The stream that the query names.",
            "location": "$message.payload#/data/reply_to",
        },
        "channel": {"$ref": f"#/channels/{_REPLIES}"},
    }
    return operations


def _messages() -> dict[str, Any]:
    return {
        event.__name__: {
            "name": name,
            "title": name,
            "summary": (event.__doc__ or "").strip(),
            "contentType": "application/cloudevents+json",
            "payload": {"$ref": f"#/components/schemas/{event.__name__}"},
        }
        for name, event in EVENT_TYPES.items()
    }


def _schemas() -> dict[str, Any]:
    _, schema = models_json_schema(
        [(event, "validation") for event in EVENT_TYPES.values()],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = schema["$defs"]
    for event in EVENT_TYPES.values():
        schemas[event.__name__]["required"] = ["type", "data"]
    return schemas


def _references(events: tuple[type[Event], ...]) -> dict[str, Any]:
    return {event.__name__: {"$ref": f"#/components/messages/{event.__name__}"} for event in events}
