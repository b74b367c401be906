"""Hostile files of every kind: bombs by name, and mutations of whole documents by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import chain

from bench.content.hostile.archives import archives
from bench.content.hostile.containers import zipped
from bench.content.hostile.originals import ARCHIVES, originals
from bench.content.hostile.pdfs import pdfs
from bench.content.hostile.texts import texts

__all__ = ["bombs", "hostile_files", "mutants"]

_FLIPS = (1, 8, 64)
_TAGS = (
    b"<w:p>",
    b"</w:p>",
    b"<",
    b">",
    b"&",
    b"\0",
    b"\xff",
    b"9" * 30,
    b"-1",
    b"]]>",
    b"<![CDATA[",
)


def hostile_files(seed: int = 0) -> dict[str, bytes]:
    """Every bomb, and the mutants of a seed, by name; 25 MB together."""
    return {**bombs(), **mutants(seed)}


def bombs() -> dict[str, bytes]:
    """Files that are made to exhaust or deceive a parser, by name."""
    return {
        **{f"bomb-{name}.pdf": raw for name, raw in pdfs()},
        **{f"bomb-{name}": raw for name, raw in chain(archives(), texts())},
    }


def mutants(seed: int) -> dict[str, bytes]:
    """Damaged copies of a whole document of each format, by name."""
    generator = random.Random(seed)
    copies: dict[str, bytes] = {}
    for suffix, raw in originals().items():
        name = f"openapi-{seed}" if suffix == "json" else f"mutant-{seed}"
        for number, mutant in enumerate(_mutants(generator, suffix, raw)):
            copies[f"{name}-{number}.{suffix}"] = mutant
    return copies


def _mutants(generator: random.Random, suffix: str, raw: bytes) -> Iterator[bytes]:
    yield raw[: generator.randrange(len(raw))]
    yield raw[generator.randrange(len(raw)) :]
    for flips in _FLIPS:
        yield _flipped(generator, raw, flips)
    start, end = sorted(generator.sample(range(len(raw)), 2))
    yield raw[:end] + raw[start:]
    if suffix in ARCHIVES:
        yield from (_with_mutant(generator, ARCHIVES[suffix]) for _ in range(4))


def _flipped(generator: random.Random, raw: bytes, flips: int) -> bytes:
    mutant = bytearray(raw)
    for _ in range(flips):
        mutant[generator.randrange(len(mutant))] ^= 1 << generator.randrange(8)
    return bytes(mutant)


def _with_mutant(generator: random.Random, parts: Mapping[str, str | bytes]) -> bytes:
    """Pack an archive with a damaged member, whose checksum is right all the same."""
    name = generator.choice(sorted(parts))
    text = parts[name]
    raw = text if isinstance(text, bytes) else text.encode()
    for _ in range(generator.choice((1, 3))):
        place = generator.randrange(len(raw))
        end = place + generator.choice((0, 1, 40))
        raw = raw[:place] + generator.choice(_TAGS) + raw[end:]
    return zipped({**parts, name: raw})
