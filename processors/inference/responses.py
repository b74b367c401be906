"""Validation of providers' responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.errors import Unavailable

__all__ = ["unit_vectors"]

_TINY = 1e-12


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


def _in_order(model: str, data: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort by ``index``. If a provider leaves it out, the vectors are in the order of the texts."""
    places = [item.get("index") for item in data]
    if all(place is None for place in places):
        return list(data)
    by_place = dict(zip(places, data, strict=True))
    if set(by_place) != set(range(len(data))):
        raise Unavailable(f"{model} sent vectors whose indexes do not match the texts")
    return [by_place[place] for place in range(len(data))]
