"""Steps of the comparison. Each is taken by one peer after the other, on files of its own.

``cold``: first sync and the indexes after it. ``latency``: questions. ``noop``: a sync with nothing
changed. ``edit``: one line more in the largest file. ``rename``: another name for the largest
directory. ``delete``: the largest file is deleted. ``order``: an old version of a document is
finished after the new one. ``kill``: kill -9 in the middle of a sync, and a sync again. ``model``:
another model while questions are asked. ``quality``: ranking of evaluation sets.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import perf_counter

from bench.corpus import questions
from bench.evaluation import EvaluationSet, ndcg
from bench.figures import percentile
from bench.peers.instance import Cost, Instance
from bench.peers.judgement import judge
from bench.peers.protocol import HASH, OTHER_HASH, SERVED
from bench.peers.side import Side, each, write_files
from runtime.errors import HeadraceError

__all__ = ["STEPS", "with_one_line_more"]

_LIMIT = 10
_DEPTH = 100
_KILLED_SHARE = 0.5
_CALL_SECONDS = 0.02
"""Time of a call of the model in a sync that is killed, so that the kill is in its middle."""

_SLOW_CALL_SECONDS = 0.25
_CHECK_EVERY_SECONDS = 0.002
_PROBE_CHARACTERS = 300
_QUERY_CHARACTERS = 2_000
_FUNCTIONS = 8
_TICK_SECONDS = 0.01
_FUNCTION = re.compile(r"( *)def .*:\s*")


Step = Callable[[Sequence[Side]], Awaitable[None]]


async def _written(
    sides: Sequence[Side], step: str, act: Callable[[Side], Awaitable[None]], rounds: int = 1
) -> None:
    """Let each side act in turn, and report its rows per round and the faults of its index."""
    before = {side.peer: await side.running.written() for side in sides}

    async def look(side: Side) -> None:
        rows = (await side.running.written()).rows - before[side.peer].rows
        side.figures[f"{step}_rows"] = round(rows / rounds)
        await side.judge(step)

    sides = await each(sides, step, act)
    await asyncio.sleep(max((side.scale.reported_s for side in sides), default=0.0))
    await each(sides, step, look)


async def _synced(
    sides: Sequence[Side], step: str, rounds: int, change: Callable[[Side, int], None]
) -> None:
    """Change the files of each side and sync, and report the cost of a round."""

    async def act(side: Side) -> None:
        total = Cost()
        for number in range(rounds):
            change(side, number)
            async with side.running.cost() as cost:
                await side.running.call("sync", directory=str(side.directory))
            total = _sum(total, cost)
        side.figures |= _figures(step, total, rounds)

    await _written(sides, step, act, rounds)


def _sum(total: Cost, cost: Cost) -> Cost:
    return Cost(
        total.cpu_s + cost.cpu_s,
        total.wall_s + cost.wall_s,
        total.wal_bytes + cost.wal_bytes,
        total.embedded + cost.embedded,
        max(total.peak_mb, cost.peak_mb),
    )


def _figures(step: str, total: Cost, rounds: int) -> dict[str, float | str]:
    return {
        f"{step}_cpu_s": round(total.cpu_s / rounds, 2),
        f"{step}_wall_s": round(total.wall_s / rounds, 2),
        f"{step}_embedded": round(total.embedded / rounds),
        f"{step}_wal_mb": round(total.wal_bytes / rounds / 1e6, 2),
    }


async def _cold(sides: Sequence[Side]) -> None:
    async def act(side: Side) -> None:
        async with side.running.cost(memory=True) as cost:
            await side.running.call("sync", directory=str(side.directory))
            await side.running.call("build")
        side.chunks_by_uri = Counter(uri for uri, _ in await side.running.stored())
        source_bytes = sum(len(text.encode()) for text in side.files.values())
        side.figures |= _figures("cold", cost, 1) | {
            "cold_peak_mb": round(cost.peak_mb),
            "cold_chunks": sum(side.chunks_by_uri.values()),
            "cold_kb_per_cpu_s": round(source_bytes / 1e3 / max(cost.cpu_s, _TICK_SECONDS), 1),
        }

    await _written(sides, "cold", act)


async def _latency(sides: Sequence[Side]) -> None:
    """Ask in blocks, so that each peer meets the same disturbances; each question is new."""
    scale = sides[0].scale
    per_block = scale.questions // scale.blocks
    pool = iter(questions(scale.blocks * 4 * (per_block + scale.warm_up)))
    times: dict[tuple[str, str], list[float]] = {}
    cpu_s: dict[tuple[str, str], float] = {}
    for _ in range(scale.blocks):
        texts = {
            number: [next(pool) for _ in range(per_block + scale.warm_up)] for number in range(4)
        }

        async def act(side: Side, texts: Mapping[int, Sequence[str]] = texts) -> None:
            for number, mode in enumerate(side.running.modes):
                warm, asked = texts[number][: scale.warm_up], texts[number][scale.warm_up :]
                await side.running.call("ask", texts=warm, mode=mode, limit=_LIMIT)
                key = side.peer, mode
                async with side.running.cost() as cost:
                    answers = await side.running.call("ask", texts=asked, mode=mode, limit=_LIMIT)
                times.setdefault(key, []).extend(answers["ms"])
                cpu_s[key] = cpu_s.get(key, 0.0) + cost.cpu_s

        sides = await each(sides, "latency", act)
    for side in sides:
        for mode in side.running.modes:
            milliseconds = times[side.peer, mode]
            cpu_ms = 1000 * cpu_s[side.peer, mode] / len(milliseconds)
            side.figures |= {
                f"{mode}_cpu_ms": round(cpu_ms, 1),
                f"{mode}_p50_ms": round(statistics.median(milliseconds), 1),
                f"{mode}_p99_ms": round(percentile(milliseconds, 99), 1),
            }


async def _noop(sides: Sequence[Side]) -> None:
    await _synced(sides, "noop", sides[0].scale.rounds, lambda _side, _number: None)


async def _edit(sides: Sequence[Side]) -> None:
    def change(side: Side, number: int) -> None:
        uri = _largest_file(side.files)
        side.files[uri] = with_one_line_more(side.files[uri], number)
        write_files(side.directory, {uri: side.files[uri]})

    await _synced(sides, "edit", sides[0].scale.rounds, change)


async def _rename(sides: Sequence[Side]) -> None:
    def change(side: Side, _number: int) -> None:
        folder, renamed = _largest_folder(side.files), "renamed"
        (side.directory / folder).rename(side.directory / renamed)
        inside = {uri: text for uri, text in side.files.items() if uri.startswith(f"{folder}/")}
        side.figures["rename_files"] = len(inside)
        for uri, text in inside.items():
            del side.files[uri]
            side.files[renamed + uri.removeprefix(folder)] = text

    await _synced(sides, "rename", 1, change)


async def _delete(sides: Sequence[Side]) -> None:
    def change(side: Side, _number: int) -> None:
        uri = _largest_file(side.files)
        (side.directory / uri).unlink()
        del side.files[uri]

    await _synced(sides, "delete", 1, change)


async def _order(sides: Sequence[Side]) -> None:
    async def act(side: Side) -> None:
        uri, old, new = "race.py", _module("ocelot"), _module("newt")
        await side.running.call("race", directory=str(side.directory), uri=uri, old=old, new=new)
        write_files(side.directory, {uri: new})
        side.files[uri] = new
        await side.judge("order")

    await each(sides, "order", act)


async def _kill(sides: Sequence[Side]) -> None:
    async def act(side: Side) -> None:
        files = dict(side.first_files[: side.scale.killed])
        home = side.home / "kill"
        expected = sum(side.chunks_by_uri.get(uri, 0) for uri in files)
        write_files(home / "files", files)
        async with side.instance_in("kill", delay_s=_CALL_SECONDS) as instance:
            stored = await _sync_killed(instance, home / "files", expected * _KILLED_SHARE)
            embedded = instance.embedded
            await instance.call("sync", directory=str(home / "files"))
            side.figures |= {
                "kill_at_chunks": f"{stored} of {expected}",
                "kill_embedded_again": instance.embedded - embedded,
                "kill_faults": str(judge(files, await instance.stored())),
            }

    await each(sides, "kill", act)


async def _sync_killed(instance: Instance, directory: Path, chunks: float) -> int:
    """Sync, and kill the processes that index as soon as so many chunks are stored.

    Returns:
        The number of stored chunks at the kill.
    """
    victims = await instance.victims()
    sync = asyncio.create_task(instance.call("sync", directory=str(directory)))
    while (stored := await instance.count()) < chunks and not sync.done():  # noqa: ASYNC110
        await asyncio.sleep(_CHECK_EVERY_SECONDS)
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(HeadraceError):
        await sync
    await instance.restart_if_in(victims)
    return stored


async def _model(sides: Sequence[Side]) -> None:
    async def act(side: Side) -> None:
        home = side.home / "model"
        write_files(home / "files", dict(side.first_files[: side.scale.remodelled]))
        async with side.instance_in("model") as instance:
            await instance.call("sync", directory=str(home / "files"))
            await instance.call("build")
            probed = _probed(await instance.stored(), side.scale.probes)
            side.figures |= await _remodelled(instance, probed, home / "files")

    await each(sides, "model", act)


async def _remodelled(
    instance: Instance, probed: Sequence[tuple[str, str]], directory: Path
) -> dict[str, float | str]:
    """Change the model by a second process, while the first asks by the old and the new one.

    The shares are of questions whose first result is right, by the better of both models.
    """
    second = Instance(instance.environment, instance.home, postgres=instance.postgres)
    worst, failures, rounds = 1.0, 0, 0

    async def share(*models: str) -> float:
        nonlocal failures
        hits = []
        for model in models:
            answers = await instance.call("probe", chunks=probed, model=model)
            hits.append(answers["hits"])
            failures += answers["failures"]
        return float(max(hits) / len(probed))

    before = await share(HASH)
    try:
        await second.start(OTHER_HASH, _SLOW_CALL_SECONDS)
        began = perf_counter()
        change = asyncio.create_task(second.call("remodel", directory=str(directory)))
        while not change.done():
            worst, rounds = min(worst, await share(HASH, OTHER_HASH)), rounds + 1
        await change
    finally:
        await second.close()
    return {
        "model_before": round(before, 2),
        "model_worst": round(worst, 2),
        "model_after": round(await share(OTHER_HASH), 2),
        "model_failures": failures,
        "model_asked": rounds * len(probed),
        "model_wall_s": round(perf_counter() - began, 1),
    }


def _probed(stored: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Choose chunks of some length whose text is stored once."""
    texts = Counter(text for _, text in stored)
    long = sorted(
        (uri, text) for uri, text in stored if len(text) >= _PROBE_CHARACTERS and texts[text] == 1
    )
    return random.Random(3).sample(long, min(count, len(long)))


async def _quality(sides: Sequence[Side]) -> None:
    for number, dataset in enumerate(sides[0].sets):

        async def act(side: Side, number: int = number, dataset: EvaluationSet = dataset) -> None:
            home = side.home / f"quality-{number}"
            ids = _written_set(home / "files", dataset)
            async with side.instance_in(home.name, SERVED) as instance:
                await instance.call("sync", directory=str(home / "files"))
                await instance.call("build")
                for mode in instance.modes:
                    score = await _score(instance, dataset, mode, ids)
                    side.figures[f"{dataset.name}_{mode}_ndcg"] = round(score, 4)

        sides = await each(sides, "quality", act)


def _written_set(directory: Path, dataset: EvaluationSet) -> dict[str, str]:
    """Write the documents of a set as files; returns their ids by uri."""
    ids: dict[str, str] = {}
    for number, (key, title, text) in enumerate(dataset.documents):
        is_code = PurePosixPath(key).suffix == ".py"
        uri = f"{number}-{PurePosixPath(key).name}" if is_code else f"{number}.md"
        ids[uri] = key
        content = text if is_code or not title else f"# {title}\n\n{text}"
        write_files(directory, {uri: content})
    return ids


async def _score(
    instance: Instance, dataset: EvaluationSet, mode: str, ids: Mapping[str, str]
) -> float:
    """Mean of nDCG@10 over the queries; the rank of a document is that of its best chunk."""
    texts = [text[:_QUERY_CHARACTERS] for text in dataset.queries.values()]
    answers = await instance.call("ask", texts=texts, mode=mode, limit=_DEPTH)
    return statistics.fmean(
        ndcg(list(dict.fromkeys(ids[uri] for uri in uris)), dataset.grades[query])
        for query, uris in zip(dataset.queries, answers["uris"], strict=True)
    )


def with_one_line_more(text: str, number: int) -> str:
    """Add a line to the function in the middle of a file, or at its end if it has none."""
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if _FUNCTION.fullmatch(line)]
    at = starts[len(starts) // 2] if starts else len(lines) - 1
    indent = re.match(" *", lines[at])
    assert indent is not None
    inner = f"{indent[0]}    " if starts else ""
    lines.insert(at + 1, f"{inner}quagga_{number} = {number}")
    return "\n".join(lines)


def _largest_file(files: Mapping[str, str]) -> str:
    return max(files, key=lambda uri: (len(files[uri]), uri))


def _largest_folder(files: Mapping[str, str]) -> str:
    """Return the folder that holds the most files directly."""
    folders = Counter(uri.rpartition("/")[0] for uri in files if "/" in uri)
    return max(folders, key=lambda folder: (folders[folder], folder))


def _module(word: str) -> str:
    """Source of functions, each line of which has a word."""
    return "\n\n".join(
        f"def {word}_{function}(x):\n"
        + "\n".join(f"    y{line} = x + {line}  # {word} {function}" for line in range(20))
        for function in range(_FUNCTIONS)
    )


STEPS: Mapping[str, Step] = {
    "cold": _cold,
    "latency": _latency,
    "noop": _noop,
    "edit": _edit,
    "rename": _rename,
    "delete": _delete,
    "order": _order,
    "kill": _kill,
    "model": _model,
    "quality": _quality,
}
"""Steps by name, in their order. ``cold`` comes before all others."""
