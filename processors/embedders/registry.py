"""Registry of models by full name, and the embedders that a process has loaded and started."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar

from processors.embedders.embedder import Embedder
from processors.embedders.hash_embedder import HASHING_MODEL, HashingEmbedder
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.encoder import Precision
from processors.embedders.local.weights import OFFICIAL_NAME, locate, model_name
from processors.embedders.remote.circuit_breaker import CircuitOptions, CircuitStatus
from processors.embedders.remote.embedder import LiteLLMEmbedder
from processors.embedders.remote.rate_limiter import RateLimiter
from runtime.errors import ConfigurationError
from store.generations.catalog import Recipe

__all__ = ["Embedders", "ModelOptions", "SharedTasks", "create_embedder", "full_name"]

StoredWidth = Callable[[str], Awaitable[int | None]]

_LOCAL_PREFIX = "local/"
_LONGEST_WAIT = timedelta(seconds=30)
_WITH_DIMENSIONS = re.compile(r"(?P<model>.+)@(?P<dimensions>[1-9]\d*)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of models; local ones use the first three, all others the rest.

    If ``precision`` is None, the fastest on this processor is used. ``dimensions`` is the width to
    ask for.
    """

    directory: Path | None = None
    threads: int = 1
    precision: Precision | None = None
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    dimensions: int | None = None
    timeout: timedelta = timedelta(seconds=30)
    retries: int = 4
    circuit: CircuitOptions = field(default_factory=CircuitOptions)


LOCAL_MODELS: Mapping[str, Callable[[ModelOptions], Embedder]] = {
    OFFICIAL_NAME: lambda options: LocalEmbedder(None, options.threads, options.precision),
    HASHING_MODEL: lambda _: HashingEmbedder(),
}


def full_name(model: str, options: ModelOptions) -> str:
    """Name of a model in recipes, and of its vectors in the store.

    It includes a width that the options ask for (``name@256``), so that vectors of several widths
    can coexist, and the hash of local weights other than the packaged ones.

    Raises:
        ConfigurationError: the model directory does not contain a model.
    """
    if model == OFFICIAL_NAME and options.directory is not None:
        return model_name(locate(options.directory))
    if model.startswith(_LOCAL_PREFIX) or options.dimensions is None:
        return model
    return model if _WITH_DIMENSIONS.fullmatch(model) else f"{model}@{options.dimensions}"


def create_embedder(
    model: str, options: ModelOptions, rate_limiter: RateLimiter | None = None
) -> Embedder:
    """Create the embedder of a full name: ``local/…`` runs here, all others use LiteLLM.

    ``dimensions`` of the options apply if the name does not contain a width. ``rate_limiter`` is
    shared by all workers.

    Raises:
        ConfigurationError: the local model does not exist.
    """
    if model.startswith(_LOCAL_PREFIX):
        return _local(model, options)
    parts = _WITH_DIMENSIONS.fullmatch(model)
    return LiteLLMEmbedder(
        parts["model"] if parts else model,
        options.api_key,
        options.base_url,
        int(parts["dimensions"]) if parts else options.dimensions,
        options.timeout,
        options.retries,
        name=model,
        rate_limiter=rate_limiter,
        circuit=options.circuit,
    )


def _local(model: str, options: ModelOptions) -> Embedder:
    if options.directory is not None and model_name(locate(options.directory)) == model:
        return LocalEmbedder(options.directory, options.threads, options.precision)
    if model in LOCAL_MODELS:
        return LOCAL_MODELS[model](options)
    raise ConfigurationError(
        f"there is no local model {model}",
        f"use one of {', '.join(LOCAL_MODELS)} "
        "(to use other weights, set HEADRACE_MODEL_DIRECTORY to their directory)",
    )


async def _unknown_width(_: str) -> int | None:
    return None


class Embedders:
    """The models of one process, by their full names.

    Args:
        options: options of all models.
        recipe: ``start`` starts the models of this recipe; others are started on first use.
        stored_width: reads the width of the vectors stored under a name, if there are any.
        rate_limiter: rate limiter shared by all workers. None means no limits.
    """

    def __init__(
        self,
        options: ModelOptions | None = None,
        recipe: Recipe | None = None,
        stored_width: StoredWidth = _unknown_width,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._options = options or ModelOptions()
        self._recipe = recipe or Recipe(OFFICIAL_NAME)
        self._stored_width = stored_width
        self._rate_limiter = rate_limiter
        self._loaded: dict[str, Embedder] = {}
        self._load_tasks = SharedTasks(self._load)
        self._start_tasks = SharedTasks(self._start)

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a full name, ready for use.

        Concurrent first uses share one start. The next use retries a start that failed.

        Raises:
            ConfigurationError, Unavailable, RateLimited: as the model's own ``start`` does.
        """
        return await self._start_tasks.get(model)

    async def loaded(self, model: str) -> Embedder:
        """Return the embedder of a full name with its limits loaded, but not started.

        Use it for work that may not need a new vector; the first ``embed`` starts the model.

        Raises:
            ConfigurationError: the model does not exist, or its key is not set.
        """
        return await self._load_tasks.get(model)

    async def usd_per_token(self, model: str) -> float | None:
        """Price of a model: 0 if it is local, None if LiteLLM's table does not have it.

        Raises:
            ConfigurationError: the model does not exist, or its key is not set.
        """
        embedder = await self.loaded(model)
        return embedder.usd_per_token if isinstance(embedder, LiteLLMEmbedder) else 0.0

    async def for_kind(self, recipe: Recipe, kind: str) -> Embedder:
        """Return the embedder of a recipe for a kind of content; raises as ``embedder``."""
        return await self.embedder(recipe.model_of(kind))

    async def start(self) -> None:
        """Start the recipe's models; raises as ``embedder``."""
        for model in self._recipe.model_names:
            await self.embedder(model)

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the circuit of each remote model that was loaded."""
        return [
            embedder.circuit.status for embedder in self._loaded.values() if _is_remote(embedder)
        ]

    async def available(self) -> None:
        """Wait while every loaded model is down.

        It waits for half a minute at most: there may be work for a model that was not loaded yet.
        """
        remote = [embedder for embedder in self._loaded.values() if _is_remote(embedder)]
        if not remote or len(remote) < len(self._loaded):
            return
        if all(embedder.circuit.is_open for embedder in remote):
            closings = [embedder.circuit.wait_until_closed() for embedder in remote]
            await _wait_for(closings, _LONGEST_WAIT.total_seconds())

    async def close(self) -> None:
        """Release every model, even if one of them fails to close."""
        await self._start_tasks.close()
        async with AsyncExitStack() as stack:
            for embedder in await self._load_tasks.close():
                stack.push_async_callback(embedder.close)

    async def _start(self, model: str) -> Embedder:
        embedder = await self._load_tasks.get(model)
        await embedder.start()
        return embedder

    async def _load(self, model: str) -> Embedder:
        options = await self._options_of(model)
        # reads and hashes files
        embedder = await asyncio.to_thread(create_embedder, model, options, self._rate_limiter)
        if isinstance(embedder, LiteLLMEmbedder):
            await embedder.load()
        self._loaded[model] = embedder
        return embedder

    async def _options_of(self, model: str) -> ModelOptions:
        """Return the options, with the width only if the model's stored vectors have that width.

        Vectors may be stored under a name without a width. A width that was set later must not
        change the width that such a model is asked for.
        """
        requested = self._options.dimensions
        if requested is None or await self._stored_width(model) == requested:
            return self._options
        return replace(self._options, dimensions=None)


def _is_remote(embedder: Embedder) -> TypeGuard[LiteLLMEmbedder]:
    return isinstance(embedder, LiteLLMEmbedder)


async def _wait_for(waits: Sequence[Coroutine[Any, Any, None]], timeout_seconds: float) -> None:
    """Wait until one of ``waits`` is done, or the timeout has passed."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class SharedTasks(Generic[T]):
    """Results by name. Concurrent callers share one task; a failed one is replaced."""

    def __init__(self, make: Callable[[str], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str) -> T:
        """Return the result. Cancelling one caller does not affect the others."""
        task = self._tasks.get(name)
        if task is None or _failed(task):
            task = self._tasks[name] = asyncio.create_task(self._make(name))
        return await asyncio.shield(task)

    async def close(self) -> list[T]:
        """Cancel unfinished tasks, and return the results that exist."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in tasks if not _failed(task)]


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
