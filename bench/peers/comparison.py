"""Headrace beside the indexes that a user could pick instead: CocoIndex, LangChain, LlamaIndex.

All have the same files, the same vectors of 384 dimensions, and the same build of Postgres with
pgvector, an instance each. Each works as its documentation recommends, in a process and an
environment of its own, and Headrace as a whole deployment. They take each step in turn, so that
what disturbs the machine disturbs all of them. ``bench/peers/steps.py`` has the steps.

Processor seconds are those of all processes of a peer: its Postgres, Headrace's Redis, worker,
gateway and commands.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.corpus import python_files
from bench.evaluation import load
from bench.figures import Report
from bench.peers.environments import PEERS
from bench.peers.instance import Embed
from bench.peers.side import Scale, Side, write_files
from bench.peers.steps import STEPS
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from runtime.errors import UsageError
from sources import SizeLimits, open_source
from sources.inspection import to_document

__all__ = ["FILES", "measure"]

FILES = 1_000
_KILLED_PART = 8
_REMODELLED_PART = 30
_FEWEST = 3
_SMALL_BYTES = 20_000
_LARGE_BYTES = 200_000
_FIRST = "cold"
_QUALITY = "quality"


async def measure(
    sets: Sequence[Path] = (),
    show: Callable[[str], None] = lambda _line: None,
    *,
    peers: Collection[str] = (),
    files: int = FILES,
    steps: Collection[str] = (),
    scale: Scale | None = None,
) -> Report:
    """Take the steps with each peer, and report a column of figures for each.

    Args:
        sets: evaluation sets for the step ``quality``.
        show: called with a line before each step.
        peers: names of peers; all by default.
        files: number of files of the standard library.
        steps: names of steps; all by default. ``cold`` is always taken, ``quality`` with sets only.
        scale: size of the steps; by default that of a full measurement.

    Raises:
        UsageError: a name is unknown, or a set is ill-formed.
    """
    peers = _chosen(peers, PEERS, "peer")
    steps = {_FIRST, *_chosen(steps, STEPS, "step")} - (set() if sets else {_QUALITY})
    datasets = [load(directory) for directory in sets]
    scale = scale or Scale(
        killed=max(_FEWEST, files // _KILLED_PART),
        remodelled=max(_FEWEST, files // _REMODELLED_PART),
    )
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        corpus = _corpus(Path(directory) / "corpus", files)
        async with AsyncExitStack() as exits:
            embed = await exits.enter_async_context(_local_model()) if datasets else None
            sides = [
                Side(peer, Path(directory) / peer, dict(corpus), scale, datasets, embed)
                for peer in peers
            ]
            for side in sides:
                show(f"{side.peer}: start")
                await side.start(exits)
            await _take(sides, steps, show)
    source_bytes = sum(len(text.encode()) for text in corpus.values())
    return Report(
        "peers",
        {"files": len(corpus), "source_bytes": source_bytes, **_notes(sides)},
        columns={side.peer: side.figures for side in sides},
    )


def _notes(sides: Sequence[Side]) -> dict[str, str]:
    """Versions of each peer, and the reason if it failed."""
    notes = {f"{side.peer}_versions": side.versions for side in sides if side.versions}
    return notes | {f"{side.peer}_failure": side.failure for side in sides if side.failure}


async def _take(sides: Sequence[Side], steps: Collection[str], show: Callable[[str], None]) -> None:
    """Take the steps in their order with the sides that have not failed."""
    for name, step in STEPS.items():
        present = [side for side in sides if not side.failure]
        if present and name in steps:
            show(f"{name}: {', '.join(side.peer for side in present)}")
            await step(present)


def _chosen(names: Collection[str], known_names: Collection[str], what: str) -> Collection[str]:
    """Return the names in their order; all if none is given."""
    unknown = [name for name in names if name not in known_names]
    if unknown:
        raise UsageError(
            f"there is no {what} {unknown[0]!r}", f"choose from {', '.join(known_names)}"
        )
    return [name for name in known_names if name in names or not names]


def _corpus(directory: Path, count: int) -> dict[str, str]:
    """Choose files of the standard library that a sync of Headrace does not leave out.

    One of them is large: the largest, with up to 200,000 bytes.
    """
    everything = python_files()
    large = max(everything, key=lambda file: len(file[1]))
    write_files(directory, dict(everything))
    listed = open_source(str(directory)).list(SizeLimits(_LARGE_BYTES, _LARGE_BYTES)).files
    small = (
        (uri, text)
        for uri, text in everything
        if uri in listed
        and len(text.encode()) <= _SMALL_BYTES
        and isinstance(to_document(uri, text.encode()), str)
    )
    return dict([*islice(small, count - 1), large])


@asynccontextmanager
async def _local_model() -> AsyncIterator[Embed]:
    """Provide the vectors of the built-in model; each text is embedded once for all peers."""
    embedder = LocalEmbedder()
    known_vectors: dict[tuple[str, bool], npt.NDArray[np.float32]] = {}

    async def embed(texts: Sequence[str], question: bool) -> npt.NDArray[np.float32]:
        missing = [text for text in dict.fromkeys(texts) if (text, question) not in known_vectors]
        if missing:
            urgency = Urgency.QUERY if question else Urgency.BULK
            vectors = (await embedder.embed(missing, urgency)).vectors
            known_vectors.update(
                ((text, question), vector) for text, vector in zip(missing, vectors, strict=True)
            )
        return np.stack([known_vectors[text, question] for text in texts])

    await embedder.start()
    try:
        yield embed
    finally:
        await embedder.close()
