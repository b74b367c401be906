"""Access to LiteLLM, which no other module imports: requests, errors, vectors, retry delays.

Language models are called here too, because their requests and errors are the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.errors import ConfigurationError, HeadraceError, RateLimited, Unavailable
from runtime.intervals import Backoff
from runtime.secrets import masked

__all__ = [
    "Completion",
    "Endpoint",
    "Provider",
    "RequestRefused",
    "Response",
    "retry_after",
    "unit_vectors",
]

_NO_KEY_NEEDED = "none"
_WRONG_KEY = frozenset({401, 403})
_REFUSALS = frozenset({400, 404, 413, 422})
"""Status codes that a repeated request would get again."""

_OBJECT = re.compile(r" ?\w*:?<[\w.]+ object at 0x[0-9a-f]+>")
"""Object addresses in the messages of libraries, such as aiohttp's TLS context."""

_MASK = "***"
_LONGEST_REASON = 300

_TINY = 1e-12
BACKOFF = Backoff(timedelta(milliseconds=250), timedelta(seconds=20))
"""Delays between the attempts of one request."""


class RequestRefused(ConfigurationError):
    """The provider refused the model or the texts; its response (400, 404) does not say which."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and request options of a model; ``dimensions`` is the width to ask for, if any.

    ``key_setting`` names the setting of ``api_key``; '': only the provider's variable is used.
    """

    model: str
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    dimensions: int | None = None
    timeout: timedelta = timedelta(seconds=30)
    key_setting: str = "HEADRACE_MODEL_API_KEY"


@dataclass(frozen=True, slots=True)
class Response:
    """An unchecked embedding response; ``tokens`` is None if the provider did not count them."""

    data: Sequence[Mapping[str, Any]]
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of a language model, unchecked.

    ``tokens_cached`` is the part of ``tokens_in`` that the provider had cached. The counts are None
    if the provider did not report them. ``cost_usd`` is None if a price is not known.
    """

    text: str
    tokens_in: int | None
    tokens_cached: int
    tokens_out: int | None
    cost_usd: float | None


class Provider:
    """A model behind LiteLLM. Building it imports LiteLLM, which takes seconds: use a thread.

    ``name`` is the provider's name, e.g. ``voyage``.

    Raises:
        ConfigurationError: the provider is unknown, or its key is not set.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._litellm = _load_litellm()
        self._key_variables = self._missing_keys()
        self._require_key()
        self.name = self._provider_name()
        self._info = self._model_info()

    @property
    def limit_tokens(self) -> int | None:
        """Longest text in tokens by LiteLLM's table. It is None if the table does not have it."""
        return self._info.get("max_input_tokens") or None

    @property
    def usd_per_token(self) -> float:
        """Price by LiteLLM's table. It is 0 if the table does not have it."""
        return self.listed_usd_per_token or 0.0

    @property
    def listed_usd_per_token(self) -> float | None:
        """Price by LiteLLM's table. It is None if the table does not have it."""
        price = self._info.get("input_cost_per_token")
        return None if price is None else float(price)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens with cl100k, the tokenizer of OpenAI's embedding models."""
        encoding = self._litellm.encoding
        return [len(row) for row in encoding.encode_ordinary_batch(list(texts), num_threads=1)]

    async def embed(self, texts: Sequence[str], options: Mapping[str, str] = {}) -> Response:
        """Send one request with further ``options``, without retries.

        Raises:
            Unavailable: no successful response within the timeout.
            RateLimited: the provider asks to wait.
            ConfigurationError: the provider refuses the key.
            RequestRefused: the provider refuses the model or the texts.
        """
        response = await self._response(
            self._litellm.aembedding(input=list(texts), **options, **self._options())
        )
        usage = getattr(response, "usage", None)
        return Response(response.data, _count(getattr(usage, "prompt_tokens", None)))

    async def complete(self, messages: Sequence[Mapping[str, Any]], most_tokens: int) -> Completion:
        """Send one request to a language model, without retries; raises as ``embed``.

        The answer has at most ``most_tokens`` tokens.
        """
        response = await self._response(
            self._litellm.acompletion(
                messages=list(messages),
                max_tokens=most_tokens,
                drop_params=True,
                **self._options(),
            )
        )
        usage = getattr(response, "usage", None)
        details = getattr(usage, "prompt_tokens_details", None)
        return Completion(
            _answer_text(response),
            _count(getattr(usage, "prompt_tokens", None)),
            _count(getattr(details, "cached_tokens", None)) or 0,
            _count(getattr(usage, "completion_tokens", None)),
            self._cost_usd(response),
        )

    @property
    def usd_per_search(self) -> float | None:
        """Price of one reranking by LiteLLM's table. It is None if the table does not have it."""
        return self._info.get("input_cost_per_query") or None

    async def rerank(self, question: str, texts: Sequence[str]) -> Any:
        """Compare texts with a question, in one request without retries; raises as ``embed``.

        Returns an unchecked response of Cohere's form, with ``results`` and ``meta``.
        """
        return await self._response(
            self._litellm.arerank(
                query=question,
                documents=list(texts),
                top_n=len(texts),
                return_documents=False,
                drop_params=True,
                **self._options(),
            )
        )

    def listed_cost_usd(self, tokens_in: int, tokens_out: int) -> float | None:
        """Cost of a request by LiteLLM's table. It is None if the table lacks a price."""
        price_in = self._info.get("input_cost_per_token")
        price_out = self._info.get("output_cost_per_token")
        if price_in is None or price_out is None:
            return None
        return float(price_in) * tokens_in + float(price_out) * tokens_out

    def _cost_usd(self, response: Any) -> float | None:
        if self.listed_cost_usd(1, 1) is None:
            return None
        try:
            cost = self._litellm.completion_cost(
                completion_response=response, model=self._endpoint.model
            )
        except Exception:  # noqa: BLE001 - a response without counts raises bare Exception
            return None
        return float(cost)

    async def _response(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Await the response to a request; raises as ``embed``."""
        model, seconds = self._endpoint.model, self._endpoint.timeout.total_seconds()
        try:
            # LiteLLM's own timeout is per read, so a trickle of bytes would never time out.
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError as error:
            raise Unavailable(f"{model} didn't answer within {seconds:g} s") from error
        except Exception as error:
            raise self._translate(error) from error

    def _options(self) -> dict[str, Any]:
        endpoint = self._endpoint
        key = endpoint.api_key or (_NO_KEY_NEEDED if self._key_variables else "")
        options = {
            "model": endpoint.model,
            "timeout": endpoint.timeout.total_seconds(),
            "api_key": key,
            "api_base": endpoint.base_url,
            "dimensions": endpoint.dimensions,
        }
        given = {name: value for name, value in options.items() if value}
        return {"max_retries": 0, **given}

    def _translate(self, error: Exception) -> HeadraceError:
        litellm, model = self._litellm, self._endpoint.model
        reason = self._reason(error)
        code = getattr(error, "status_code", None)
        if code in _WRONG_KEY:
            return ConfigurationError(f"{model} refused the key", f"set {self._key_names()}")
        if isinstance(error, litellm.RateLimitError):
            wait = retry_after(_headers(error), datetime.now(UTC))
            return RateLimited(f"{model} is rate-limited: {reason}", retry_after=wait)
        if code in _REFUSALS:
            return RequestRefused(f"{model} refused the request: {reason}", "check its name")
        return Unavailable(f"{model} can't be reached: {reason}")

    def _reason(self, error: Exception) -> str:
        """First line of an error. It is masked before it is cut, or half a key might remain."""
        key, text = self._endpoint.api_key, _first_line(error)
        return masked(text.replace(key, _MASK) if key else text)[:_LONGEST_REASON]

    def _missing_keys(self) -> list[str]:
        """Variables of the provider's key, if neither they nor HEADRACE_MODEL_API_KEY are set."""
        if self._endpoint.api_key:
            return []
        _drop_empty_keys()
        missing = self._litellm.validate_environment(self._endpoint.model)["missing_keys"]
        return [variable for variable in missing if variable.endswith("_KEY")]

    def _require_key(self) -> None:
        if self._key_variables and not self._endpoint.base_url:
            raise ConfigurationError(
                f"{self._endpoint.model} needs a key", f"set {self._key_names()}"
            )

    def _key_names(self) -> str:
        return " or ".join(filter(None, [self._endpoint.key_setting, *self._key_variables]))

    def _provider_name(self) -> str:
        model = self._endpoint.model
        try:
            return str(self._litellm.get_llm_provider(model)[1])
        except Exception as error:
            raise ConfigurationError(
                f"no provider is known for the model {model}", "name it as <provider>/<model>"
            ) from error

    def _model_info(self) -> Mapping[str, Any]:
        try:
            return dict(self._litellm.get_model_info(self._endpoint.model))
        except Exception:  # noqa: BLE001 - a model missing in the table raises bare Exception
            return {}


def unit_vectors(
    model: str, data: Sequence[Mapping[str, Any]], texts: int
) -> npt.NDArray[np.float32]:
    """Unit vectors of shape (texts, width) in the order of the texts.

    Args:
        model: the model's name, for errors.
        data: the ``data`` list of an OpenAI embedding response.
        texts: number of texts that were sent.

    Raises:
        Unavailable: vectors are missing, duplicate, of differing widths, not finite or zero. The
            next response may be valid.
    """
    if not isinstance(data, list) or not all(hasattr(item, "get") for item in data):
        raise Unavailable(f"{model} sent a response without a list of vectors")
    if len(data) != texts:
        raise Unavailable(f"{model} sent {len(data)} vectors for {texts} texts")
    try:
        vectors = np.array([item["embedding"] for item in _in_order(model, data)], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"{model} sent vectors that are not lists of equal length") from error
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise Unavailable(f"{model} sent vectors that are not lists of equal length")
    if not np.isfinite(vectors).all():
        raise Unavailable(f"{model} sent vectors that are not finite")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if (lengths < _TINY).any() or not np.isfinite(lengths).all():
        raise Unavailable(f"{model} sent a vector whose length is zero or overflows")
    return np.asarray(vectors / lengths, np.float32)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3), which is in seconds or a date.

    Returns None if the header is missing or invalid.
    """
    value = next((v for name, v in headers.items() if name.lower() == "retry-after"), "").strip()
    try:
        seconds = float(value) if value else None
    except ValueError:
        return _until(value, now)
    if seconds is None or not 0 <= seconds < float("inf"):
        return None
    return timedelta(seconds=min(seconds, 86_400.0))


_importing = Lock()


def _load_litellm() -> Any:
    """Import LiteLLM in one thread at a time.

    Python gives a thread that waits for the import of another one the incomplete module if that
    import fails.
    """
    with _importing:
        return _import_litellm()


@cache
def _import_litellm() -> Any:
    """Import LiteLLM: offline, without retries of its own, silent and without callbacks."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it downloads a price list
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else it reads a .env file
    try:
        import litellm  # noqa: PLC0415 - takes seconds, and many deployments never need it
    except BaseException:
        # those of its modules that were complete keep the incomplete one
        for name in [name for name in sys.modules if name.partition(".")[0] == "litellm"]:
            del sys.modules[name]
        raise

    litellm.DEFAULT_MAX_RETRIES = 0  # it takes max_retries=0 as "not given"
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    for callbacks in ("callbacks", "input_callback", "success_callback", "failure_callback"):
        setattr(litellm, callbacks, [])
    for logger in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return litellm


def _drop_empty_keys() -> None:
    """Remove empty key variables: LiteLLM uses them as keys and fails at the first request."""
    for name, value in list(os.environ.items()):
        if not value.strip() and name.endswith("_KEY"):
            del os.environ[name]


def _count(reported: object) -> int | None:
    """Number of tokens that a provider reports. Returns None if it is not a valid count."""
    return reported if isinstance(reported, int) and reported > 0 else None


def _answer_text(response: Any) -> str:
    """Text of the first choice. It is empty if the response has none."""
    choices = getattr(response, "choices", None) or [None]
    text = getattr(getattr(choices[0], "message", None), "content", None)
    return text if isinstance(text, str) else ""


def _headers(error: Exception) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return getattr(error, "litellm_response_headers", None) or getattr(response, "headers", {})


def _first_line(error: Exception) -> str:
    text = _OBJECT.sub("", str(error)).strip() or type(error).__name__
    return text.splitlines()[0]


def _in_order(model: str, data: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort by ``index``. If a provider leaves it out, the vectors are in the order of the texts."""
    indexes = [item.get("index") for item in data]
    if all(index is None for index in indexes):
        return list(data)
    by_index = dict(zip(indexes, data, strict=True))
    if set(by_index) != set(range(len(data))):
        raise Unavailable(f"{model} sent vectors whose indexes do not match the texts")
    return [by_index[index] for index in range(len(data))]


def _until(date: str, now: datetime) -> timedelta | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment - now, timedelta(0))
