"""Composition root of a worker: reads the settings, builds everything, runs until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from events.connection import check_server, connect
from events.models import Event
from events.names import Lane, Names, Topic
from events.outcomes import Outcomes
from events.replying import Replies
from events.transport import App, Options
from events.trimming import trim_queries
from events.watermark import read_watermark
from processors.agents import batch_agent
from processors.agents import run_worker as run_agents
from processors.answering.assembling import Assembler
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.burying import Burial
from processors.handlers import HANDLERS, Handler
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.indexing.cutting import Cutter
from processors.indexing.embedding import EmbeddingStep
from processors.indexing.pipeline import Indexing
from processors.indexing.resolving import Resolver
from processors.inference import Inference
from processors.services import Services
from runtime.settings import Settings
from store.database import Database
from store.maintenance import Maintenance
from store.search import Search
from store.store import Store

__all__ = ["ROLES", "run_worker", "services"]

log = structlog.get_logger(__name__)

ROLES: dict[str, tuple[Topic, ...]] = {
    "indexer": (Topic.CHANGED_LIVE, Topic.CHANGED_BULK),
    "answerer": (Topic.QUERY,),
}
"""What a worker may be limited to, and the topics that each role reads."""
