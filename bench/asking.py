"""How long an answer takes at 50,000 chunks, beside the same search without any stream.

``stream_ratio`` is the median of asking over streams divided by the median of embedding the query
and running the same answering pipeline in this process, the two taken in turn. ``import_ratio`` is the
median while another worker imports documents, divided by the idle median.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import perf_counter
from uuid import uuid4

from bench.corpus import python_files, questions, topical_vector
from bench.figures import Report, percentile
from bench.stack import Stack, bench_stack
from events.client import Client
from events.models import DocumentChange, DocumentChanged, Query
from events.names import Lane
from processors.app import open_services
from processors.indexing.chunking import chunk
from processors.indexing.chunking.types import Source
from processors.inference.local import LocalEmbedder
from runtime.settings import LOCAL_MODEL
from store.types import ChunkWrite, DocumentWrite

__all__ = ["measure"]

PROJECT = "stdlib"
CHUNKS = 50_000
QUESTIONS = 300
WARM_UP = 30
