"""Process of one measurement of content: ``python -m bench.content.process NAME DIR``.

Each measurement has a process of its own, so that its memory is measured, and so that a document
that ends its process, or keeps it busy, costs the figures of its own kind only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import process_time

from bench.processes import peak_mb
from runtime.errors import Unavailable

__all__ = ["figures_of", "main"]

_TIMEOUT_SECONDS = 900.0


async def figures_of(name: str, corpus: Path) -> Mapping[str, float | str]:
    """Measure a corpus in a process of its own, and add ``process_mb`` and ``process_cpu_s``.

    Raises:
        Unavailable: the process ended without figures, or took more than 15 minutes.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, name, str(corpus)),
        stdin=DEVNULL,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Unavailable(f"the measurement of {name} did not end in 15 minutes") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        raise Unavailable(f"the measurement of {name} ended with {process.returncode}")
    figures: dict[str, float | str] = json.loads(output)
    return figures


def main(arguments: Sequence[str]) -> None:
    """Print the figures of a measurement as JSON. ``arguments`` are its name and the folder."""
    name, corpus = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print there too
    figures = import_module(f"bench.content.{name}").figures(Path(corpus))
    cost = {"process_mb": peak_mb(), "process_cpu_s": round(process_time(), 1)}
    with answers:
        json.dump({**figures, **cost}, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
