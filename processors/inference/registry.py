"""Models by name: each is made and started when it is first needed, and kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeGuard

from processors.inference.circuit import CircuitOptions, CircuitStatus
from processors.inference.encoder import Precision
from processors.inference.hashing import HASHING_MODEL, HashingEmbedder
from processors.inference.local import LocalEmbedder
from processors.inference.remote import LiteLLMEmbedder
from processors.inference.sharing import Shared
from processors.inference.turns import Turns
from processors.inference.types import Embedder
from processors.inference.weights import OFFICIAL_NAME, locate, model_name
from runtime.errors import ConfigurationError
from store.generations import Recipe

__all__ = ["Inference", "ModelOptions", "create_embedder", "full_name"]

StoredWidth = Callable[[str], Awaitable[int | None]]

_LOCAL_PREFIX = "local/"
_LONGEST_HOLD = timedelta(seconds=30)
_WITH_DIMENSIONS = re.compile(r"(?P<model>.+)@(?P<dimensions>[1-9]\d*)")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of models; local ones use the first three, all others the rest.

    ``precision`` None: the fastest on this processor. ``dimensions`` is the width to ask for.
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
    """The name that a model's vectors are stored under: what a recipe names it.

    A width that the options ask for is part of it (``name@256``), so that vectors of several
    widths live side by side; so is the hash of local weights other than the packaged ones.

    Raises:
        ConfigurationError: the model directory holds no model.
    """
    if model == OFFICIAL_NAME and options.directory is not None:
        return model_name(locate(options.directory))
    if model.startswith(_LOCAL_PREFIX) or options.dimensions is None:
        return model
    return model if _WITH_DIMENSIONS.fullmatch(model) else f"{model}@{options.dimensions}"


def create_embedder(model: str, options: ModelOptions, turns: Turns | None = None) -> Embedder:
    """The embedder of a full name: ``local/…`` runs here, anything else goes to LiteLLM.

    ``dimensions`` of the options count where the name tells no width.
    ``turns``: what providers allow all workers together.

    Raises:
        ConfigurationError: no such local model.
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
        turns=turns,
        circuit=options.circuit,
    )


def _local(model: str, options: ModelOptions) -> Embedder:
    if options.directory is not None and model_name(locate(options.directory)) == model:
        return LocalEmbedder(options.directory, options.threads, options.precision)
    if model in LOCAL_MODELS:
        return LOCAL_MODELS[model](options)
    raise ConfigurationError(
        f"no local model {model}; there are: {', '.join(LOCAL_MODELS)}"
        " (HEADRACE_MODEL_DIRECTORY names where weights of your own are)"
    )


async def _unknown_width(_: str) -> int | None:
    return None


class Inference:
    """The models of one process, by the names that recipes know them by.

    Args:
        options: for all of them.
        recipe: whose models ``start`` makes ready; others are started by their first use.
        stored_width: of the vectors that are stored under a name, if any.
        turns: what providers allow all workers together; None: no limits.
    """

    def __init__(
        self,
        options: ModelOptions | None = None,
        recipe: Recipe | None = None,
        stored_width: StoredWidth = _unknown_width,
        turns: Turns | None = None,
    ) -> None:
        self._options = options or ModelOptions()
        self._recipe = recipe or Recipe(OFFICIAL_NAME)
        self._stored_width = stored_width
        self._turns = turns
        self._met: dict[str, Embedder] = {}
        self._loaded = Shared(self._load)
        self._started = Shared(self._start)

    async def embedder(self, model: str) -> Embedder:
        """The embedder of a full name, ready for use.

        First uses at the same time share one start. One that failed is tried again next time.

        Raises:
            ConfigurationError, Unavailable, RateLimited: as the model's own ``start`` does.
        """
        return await self._started.get(model)

    async def loaded(self, model: str) -> Embedder:
        """The embedder of a full name with its limits known, but nothing asked of the model yet.

        For work that may need no new vector at all; the first ``embed`` starts the model.

        Raises:
            ConfigurationError: no such model, or it has no key.
        """
        return await self._loaded.get(model)

    async def usd_per_token(self, model: str) -> float | None:
        """Price of a model: 0 for local ones; None where LiteLLM's table doesn't have it.

        Raises:
            ConfigurationError: no such model, or it has no key.
        """
        embedder = await self.loaded(model)
        return embedder.usd_per_token if isinstance(embedder, LiteLLMEmbedder) else 0.0

    async def for_kind(self, recipe: Recipe, kind: str) -> Embedder:
        """The embedder that a recipe chooses for a kind of content; raises as ``embedder``."""
        return await self.embedder(recipe.model_of(kind))

    async def start(self) -> None:
        """Make the recipe's models ready; raises as ``embedder``."""
        for model in self._recipe.model_names:
            await self.embedder(model)

    @property
    def circuits(self) -> list[CircuitStatus]:
        """Of every remote model that was met, whether it is asked."""
        return [one.circuit.status for one in self._met.values() if _is_remote(one)]

    async def available(self) -> None:
        """Wait while every model that was met is down.

        Not for longer than half a minute: there may be work for a model that was never met.
        """
        remote = [one for one in self._met.values() if _is_remote(one)]
        if not remote or len(remote) < len(self._met):
            return
        if all(one.circuit.is_open for one in remote):
            await _first([one.circuit.closed() for one in remote], _LONGEST_HOLD.total_seconds())

    async def close(self) -> None:
        """Release every model, also when one of them fails to close."""
        await self._started.close()
        async with AsyncExitStack() as stack:
            for embedder in await self._loaded.close():
                stack.push_async_callback(embedder.close)

    async def _start(self, model: str) -> Embedder:
        embedder = await self._loaded.get(model)
        await embedder.start()
        return embedder

    async def _load(self, model: str) -> Embedder:
        options = await self._options_of(model)
        # reads and hashes files
        embedder = await asyncio.to_thread(create_embedder, model, options, self._turns)
        if isinstance(embedder, LiteLLMEmbedder):
            await embedder.load()
        self._met[model] = embedder
        return embedder

    async def _options_of(self, model: str) -> ModelOptions:
        """With the width in the settings only if the model's vectors are so wide.

        Before widths were part of names, vectors were stored under the bare one; a setting that
        came later is no reason to ask such a model for another width than it had.
        """
        asked_for = self._options.dimensions
        if asked_for is None or await self._stored_width(model) == asked_for:
            return self._options
        return replace(self._options, dimensions=None)


def _is_remote(embedder: Embedder) -> TypeGuard[LiteLLMEmbedder]:
    return isinstance(embedder, LiteLLMEmbedder)


async def _first(waits: Sequence[Coroutine[Any, Any, None]], timeout_seconds: float) -> None:
    """Wait for one of them, or for the time to pass."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
