"""One peer in the comparison, with its files, its figures and its running instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.evaluation import EvaluationSet
from bench.peers.environments import Environment, environment_of
from bench.peers.instance import FAILURES, Embed, Instance, instance_of
from bench.peers.judgement import judge
from bench.peers.protocol import HASH

__all__ = ["Scale", "Side", "each", "write_files"]


@dataclass(frozen=True)
class Scale:
    """Size of the steps.

    ``killed`` and ``remodelled`` are numbers of files for the steps with an index of their own.
    ``reported_s`` is the time after which an idle process of Postgres has reported the rows that it
    has written.
    """

    rounds: int = 3
    questions: int = 200
    blocks: int = 4
    warm_up: int = 5
    probes: int = 30
    killed: int = 100
    remodelled: int = 30
    reported_s: float = 11.0


@dataclass
class Side:
    """One peer in the comparison.

    ``home`` is the directory of everything of this side, and ``files`` what its directory of files
    holds now. ``first_files`` are what it held before the first step.
    ``chunks_by_uri`` are counted after the step ``cold``. A side with a ``failure`` takes no
    further steps.
    """

    peer: str
    home: Path
    files: dict[str, str]
    scale: Scale
    sets: Sequence[EvaluationSet] = ()
    embed: Embed | None = None
    figures: dict[str, float | str] = field(default_factory=dict)
    failure: str = ""
    chunks_by_uri: Mapping[str, int] = field(default_factory=dict)
    first_files: Sequence[tuple[str, str]] = field(init=False)
    versions: str = ""
    _environment: Environment | None = None
    _instance: Instance | None = None

    def __post_init__(self) -> None:
        self.first_files = list(self.files.items())

    async def start(self, exits: AsyncExitStack) -> None:
        """Write the files, make the environment, and run the instance with all files."""
        write_files(self.directory, self.files)
        try:
            self._environment = await environment_of(self.peer)
            instance = self.instance_in("main")
            self._instance = await exits.enter_async_context(instance)
        except FAILURES as error:
            self.fail("start", error)
        else:
            versions = self._instance.versions.items()
            self.versions = ", ".join(f"{package} {version}" for package, version in versions)

    def instance_in(
        self, name: str, model: str = HASH, delay_s: float = 0.0
    ) -> AbstractAsyncContextManager[Instance]:
        """Return the context of an empty instance in a directory of this name."""
        assert self._environment is not None
        return instance_of(
            self._environment, self.home / name, embed=self.embed, model=model, delay_s=delay_s
        )

    def fail(self, step: str, error: Exception) -> None:
        """Take no further steps."""
        self.figures["failed"] = step
        self.failure = str(error) or type(error).__name__

    @property
    def running(self) -> Instance:
        """The instance with all files."""
        assert self._instance is not None
        return self._instance

    @property
    def directory(self) -> Path:
        """Directory with the files."""
        return self.home / "main" / "files"

    async def judge(self, step: str) -> None:
        """Add the faults of the index after a step to the figures."""
        self.figures[f"{step}_faults"] = str(judge(self.files, await self.running.stored()))


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write texts to files by their path below a directory."""
    for uri, text in files.items():
        path = directory / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


async def each(
    sides: Sequence[Side], step: str, act: Callable[[Side], Awaitable[None]]
) -> list[Side]:
    """Let each side act in turn; returns those that did not fail."""
    for side in sides:
        try:
            await act(side)
        except FAILURES as error:
            side.fail(step, error)
    return [side for side in sides if not side.failure]
