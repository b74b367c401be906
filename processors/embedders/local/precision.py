"""Choice of the precision that the local model runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import thread_time

from processors.embedders.local.encoder import Encoder, Precision, Weights, supported_precisions
from processors.embedders.local.sentence_config import Pooling
from runtime.errors import ConfigurationError

__all__ = ["choose_precision", "fastest", "resolve_precision"]

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_SAMPLE_ROWS = [list(range(128))] * 2
_ROUNDS = 3
_WORTHWHILE = 1.1
"""Speed-up that a less exact precision must have over a more exact one."""


def resolve_precision(requested: Precision | None, weights: Weights) -> Precision:
    """Return the precision that was asked for, or the fastest on this processor if it is None.

    Raises:
        ConfigurationError: the processor does not support it.
    """
    if requested is None:
        return choose_precision(weights)
    supported = supported_precisions(with_ranges=weights.ranges is not None)
    if requested not in supported:
        raise ConfigurationError(
            f"this processor does not support {requested}, only {', '.join(supported)}",
            "set HEADRACE_MODEL_PRECISION to one of them, or to auto",
        )
    return requested


def choose_precision(weights: Weights) -> Precision:
    """Find the fastest precision for one layer of the encoder by measuring for about 20 ms.

    A processor's list of capabilities is not enough: int8 and bf16 are much faster on some
    processors that list them, and slower than f32 on others. If bf16 is faster, it is chosen, since
    its vectors equal those of f32; int8 changes a ranking a little.
    """
    sample = _one_layer(weights)
    supported = supported_precisions(with_ranges=weights.ranges is not None)
    exact = [precision for precision in supported if not precision.is_int8]
    seconds = _seconds(sample, exact)
    if fastest(seconds) is Precision.BF16:
        return Precision.BF16
    rounded = [precision for precision in supported if precision.is_int8]
    return fastest(seconds | _seconds(sample, rounded))


def _seconds(sample: Weights, precisions: Sequence[Precision]) -> dict[Precision, float]:
    """Measure the seconds of one call by precision.

    It measures thread time, which other processes disturb least: a request of one stream runs on
    the thread that sends it.
    """
    encoders = {precision: Encoder(sample, precision) for precision in precisions}
    rows = [row[: sample.shape.limit_tokens] for row in _SAMPLE_ROWS]
    seconds: dict[Precision, list[float]] = {precision: [] for precision in encoders}
    for _ in range(_ROUNDS):
        for precision, encoder in encoders.items():
            began = thread_time()
            encoder.encode(rows)
            seconds[precision].append(thread_time() - began)
    # the first round compiles kernels; the minimum of the others is the least disturbed
    return {precision: min(times[1:]) for precision, times in seconds.items()}


def fastest(seconds: Mapping[Precision, float]) -> Precision:
    """Return the fastest precision, unless a more exact one is nearly as fast.

    Args:
        seconds: duration of the same work by precision; at least one entry.
    """
    in_order: Sequence[Precision] = sorted(seconds, key=list(Precision).index)
    best = in_order[0]
    for precision in in_order[1:]:
        if seconds[precision] * _WORTHWHILE < seconds[best]:
            best = precision
    return best


def _one_layer(weights: Weights) -> Weights:
    """Reduce weights to the embeddings of a few words and the first layer."""
    words = weights.tensors[_WORD_EMBEDDINGS][: len(_SAMPLE_ROWS[0])]
    return replace(
        weights,
        tensors={**weights.tensors, _WORD_EMBEDDINGS: words},
        shape=replace(weights.shape, layers=1, pooling=Pooling.MEAN),
    )
