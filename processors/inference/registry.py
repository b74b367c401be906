"""Which model embeds which kind of content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from processors.inference.hashing import HASHING_MODEL, HashingEmbedder
from processors.inference.local import LocalEmbedder
from processors.inference.remote import LiteLLMEmbedder
from processors.inference.tokenizer import tokenizer_path
from processors.inference.types import Embedder
from processors.inference.weights import OFFICIAL_NAME
from runtime.errors import ConfigurationError

__all__ = ["Inference", "ModelOptions", "create_embedder"]

_LOCAL_PREFIX = "local/"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How models are loaded and asked; local ones use the first two, all others the rest."""

    directory: Path | None = None
    threads: int = 1
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    dimensions: int | None = None
    timeout: timedelta = timedelta(seconds=30)
    retries: int = 4


LOCAL_MODELS: Mapping[str, Callable[[ModelOptions], Embedder]] = {
    OFFICIAL_NAME: lambda options: LocalEmbedder(options.directory, options.threads),
    HASHING_MODEL: lambda _: HashingEmbedder(),
}


def create_embedder(model: str, options: ModelOptions) -> Embedder:
    """The embedder of a model's name: ``local/…`` runs here, anything else goes to LiteLLM.

    Raises:
        ConfigurationError: no such local model.
    """
    if model in LOCAL_MODELS:
        return LOCAL_MODELS[model](options)
    if model.startswith(_LOCAL_PREFIX):
        known = ", ".join(LOCAL_MODELS)
        raise ConfigurationError(f"no local model {model}; there are: {known}")
    return LiteLLMEmbedder(
        model,
        options.api_key,
        options.base_url,
        options.dimensions,
        options.timeout,
        options.retries,
    )


class Inference:
    """The models of one process: one embedder per model, chosen by kind of content.

    Args:
        model: of kinds that name none.
        models: by kind of content.
        options: for all of them.

    Raises:
        ConfigurationError: a model is unknown or its files are wrong.
    """

    def __init__(
        self,
        model: str = OFFICIAL_NAME,
        models: Mapping[str, str] | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        self._options = options or ModelOptions()
        names = dict.fromkeys([model, *(models or {}).values()])
        embedders = {name: create_embedder(name, self._options) for name in names}
        self._default = embedders[model]
        self._by_kind = {kind: embedders[name] for kind, name in (models or {}).items()}
        self._embedders = tuple(embedders.values())

    @property
    def models(self) -> tuple[Embedder, ...]:
        """The distinct embedders in use."""
        return self._embedders

    @property
    def tokenizer_path(self) -> Path:
        """The local model's tokenizer, which chunkers count with whatever model embeds."""
        return tokenizer_path(self._options.directory)

    def for_kind(self, kind: str) -> Embedder:
        """The embedder of a kind of content."""
        return self._by_kind.get(kind, self._default)

    async def start(self) -> None:
        """Load or probe every model.

        Raises:
            ConfigurationError, Unavailable, RateLimited: as the models' own ``start`` does.
        """
        for embedder in self._embedders:
            await embedder.start()

    async def close(self) -> None:
        """Release every model, also when one of them fails to close."""
        async with AsyncExitStack() as stack:
            for embedder in self._embedders:
                stack.push_async_callback(embedder.close)
