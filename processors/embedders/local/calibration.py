"""Measurement of the packaged model's ranges.

``python -m processors.embedders.local.calibration DIR`` measures them. Half of the texts are chunks
of the interpreter's standard library; the others are chunks of documents, and questions, of the
evaluation sets named as arguments. The result is stored in ``ranges.safetensors`` and is valid for
one file of weights.
"""

from __future__ import annotations

import json
import random
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from processors.chunking import cut
from processors.chunking.types import Source
from processors.embedders.local.encoder import import_openvino
from processors.embedders.local.graph import Graph
from processors.embedders.local.products import RANGES_FILE, FloatProducts, Range, save_ranges
from processors.embedders.local.tokenizer import SPECIAL_TOKENS, TokenCounter, load_tokenizer
from processors.embedders.local.weights import (
    TOKENIZER_FILE,
    Array,
    load_tensors,
    locate,
    read_shape,
    weights_digest,
)

__all__ = ["main", "measure_ranges", "spread"]

_TEXTS = 500
_SEED = 5
_CHUNKS_PER_DOCUMENT = 2
_MARGIN = np.float32(1.15)
"""Factor by which ranges are widened, because other texts exceed those that were measured."""
_MEDIANS = 1.5
_MEDIANS_AFTER_GELU = 3.0
"""Multiples of the median channel's reach above which a channel is scaled down.

Scaling makes the weights less exact, so GELU's outputs, most of which are near zero, may reach
further. Both were chosen by the cosines to f32 of other texts.
"""


class _ObservedProducts(FloatProducts):
    """Float products that remember their inputs."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}

    def __call__(self, ops: Any, hidden: Any, weight: Array, name: str) -> Any:
        self.inputs[name] = hidden
        return super().__call__(ops, hidden, weight, name)


def main(sets: Sequence[Path]) -> None:
    """Measure the ranges of the packaged model, and write them beside this module."""
    directory = locate(None)
    limit_tokens = read_shape(directory).limit_tokens
    tokenizer = load_tokenizer(directory / TOKENIZER_FILE, limit_tokens)
    texts = _texts(sets, limit_tokens - SPECIAL_TOKENS, TokenCounter(directory / TOKENIZER_FILE))
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    save_ranges(measure_ranges(directory, rows), weights_digest(directory), RANGES_FILE)
    sys.stdout.write(f"measured {len(rows)} texts, wrote {RANGES_FILE.name}\n")


def measure_ranges(directory: Path, rows: Sequence[Sequence[int]]) -> Mapping[str, Range]:
    """Measure the range of the inputs of each product over token ids, by the name of its layer."""
    openvino = import_openvino()
    products = _ObservedProducts()
    model = Graph(openvino, load_tensors(directory), read_shape(directory), products).build()
    ops, axes = openvino.opset13, openvino.opset13.constant(np.array([0, 1]))
    for node in products.inputs.values():
        # the least is the negative of the greatest of the negatives
        reaches = (ops.reduce_max(node, axes), ops.reduce_max(ops.negative(node), axes))
        model.add_results([ops.result(reach) for reach in reaches])
    greatest = _greatest(openvino, model, rows)
    extremes = zip(products.inputs, greatest[::2], greatest[1::2], strict=True)
    return {name: spread(-below, above, _medians(name)) for name, above, below in extremes}


def spread(lows: Array, highs: Array, medians: float) -> Range:
    """Range of channels whose values lie between ``lows`` and ``highs``, both (channels,).

    Channels that reach further than ``medians`` times the median channel are scaled down to it.
    """
    reach = np.maximum(highs, -lows)
    scales = np.maximum(1, reach / (medians * np.median(reach))).astype(np.float32)
    return Range((lows / scales).min() * _MARGIN, (highs / scales).max() * _MARGIN, scales)


def _medians(name: str) -> float:
    after_gelu = name.endswith(".output.dense") and ".attention." not in name
    return _MEDIANS_AFTER_GELU if after_gelu else _MEDIANS


def _greatest(openvino: Any, model: Any, rows: Sequence[Sequence[int]]) -> list[Array]:
    """Greatest values of each output except the first, over all rows."""
    properties = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", properties).create_infer_request()
    greatest = [np.full(1, -np.inf, np.float32) for _ in model.outputs[1:]]
    for row in rows:
        # one text at a time, because padding must not be measured
        outputs = request.infer([np.array([row], np.int32), np.ones((1, len(row)), np.float32)])
        greatest = [
            np.maximum(past, outputs[index]) for index, past in enumerate(greatest, start=1)
        ]
    return greatest


def _texts(sets: Sequence[Path], limit_tokens: int, count: TokenCounter) -> list[str]:
    """Chunks of code, chunks of prose, and questions, as many of each source."""
    code = _chunks(_python_files(), limit_tokens, count)
    prose = (_chunks(_documents(path), limit_tokens, count) for path in sets)
    sources = [code, *prose, *(_questions(path) for path in sets)]
    share = -(-_TEXTS // len(sources))
    return [text for source in sources for text in islice(source, share)]


def _chunks(sources: Iterator[Source], limit_tokens: int, count: TokenCounter) -> Iterator[str]:
    """Embedded texts of a few random chunks of each source."""
    rng = random.Random(_SEED)  # noqa: S311 - a sample
    for source in sources:
        chunks = cut(source, limit_tokens, count).chunks
        for part in rng.sample(chunks, min(len(chunks), _CHUNKS_PER_DOCUMENT)):
            yield f"{part.header}\n{part.content}"


def _python_files() -> Iterator[Source]:
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.parts]
    for path in _shuffled(paths):
        content = path.read_text(encoding="utf-8", errors="replace")
        yield Source(path.relative_to(root).as_posix(), content, "code", "python")


def _documents(directory: Path) -> Iterator[Source]:
    for row in _rows(directory / "corpus.jsonl"):
        yield Source(row["_id"], row["text"], "text", title=row.get("title"))


def _questions(directory: Path) -> Iterator[str]:
    return (row["text"] for row in _rows(directory / "queries.jsonl"))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return (json.loads(line) for line in _shuffled(lines))


def _shuffled(values: list[Any]) -> list[Any]:
    return random.Random(_SEED).sample(values, len(values))  # noqa: S311 - a sample


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
