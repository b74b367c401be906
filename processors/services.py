"""The parts of a worker, built once by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from events.heartbeats import Heartbeats
from events.names import Names
from processors.answering.pipeline import Answering
from processors.archiving.running import Archiving
from processors.burying import Burial
from processors.deployment import DeploymentWatch
from processors.embedding.pipeline import Embedding
from processors.embedding.requesting import VectorRequests
from processors.indexing.chunking.types import CountTokens
from processors.indexing.pipeline import Indexing
from processors.inference import Inference
from store.maintenance import Maintenance
from store.schema_watch import SchemaWatch
from store.store import Store

__all__ = ["Services"]


@dataclass(frozen=True)
class Services:
    """The pipelines of a worker, the archiving, and its maintenance tasks."""

    names: Names
    indexing: Indexing
    embedding: Embedding
    vector_requests: VectorRequests
    answering: Answering
    burial: Burial
    archiving: Archiving
    inference: Inference
    heartbeats: Heartbeats
    maintenance: Maintenance
    schema_watch: SchemaWatch
    deployment_watch: DeploymentWatch
    store: Store
    count_tokens: CountTokens
    trim: Callable[[], Awaitable[int]]
