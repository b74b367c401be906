"""Report of a replay, for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from processors.embedding.stage import EmbeddingCost

__all__ = ["GateScores", "ReplayReport", "Stages"]


@dataclass(frozen=True, slots=True)
class GateScores:
    """nDCG@10 of the live generation and of the new one, and the largest allowed drop."""

    live: float
    new: float
    max_drop: float

    @property
    def passed(self) -> bool:
        """Return whether the new generation is good enough."""
        return self.live - self.new <= self.max_drop


@dataclass
class Stages:
    """Seconds that each stage took, by its name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure a stage; repeated stages are added up."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin


@dataclass
class ReplayReport:
    """Result of the replay of one project. ``priced`` is true if the models' prices are known.

    ``documents`` and ``chunks`` are those of the whole generation; ``digest`` is of its rows.
    """

    project: str
    generation: int = 0
    former: int = 0
    resumed: bool = False
    documents: int = 0
    chunks: int = 0
    cost: EmbeddingCost = field(default_factory=EmbeddingCost)
    priced: bool = True
    stages: Stages = field(default_factory=Stages)
    digest: str = ""
    gate: GateScores | None = None
    damaged: tuple[str, ...] = ()
    switched: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values; costs are in US dollars, or None if a price is unknown."""
        priced = self.priced or not self.cost.texts
        gate = None if self.gate is None else asdict(self.gate)
        return {
            "project": self.project,
            "generation": self.generation,
            "former": self.former,
            "resumed": self.resumed,
            "documents": self.documents,
            "chunks": self.chunks,
            "reused": max(0, self.chunks - self.cost.texts),
            "embedded": self.cost.texts,
            "tokens": round(self.cost.tokens),
            "refused": self.cost.refused,
            "cost_usd": round(self.cost.cost_usd, 6) if priced else None,
            "seconds": {name: round(seconds, 3) for name, seconds in self.stages.seconds.items()},
            "digest": self.digest,
            "gate": gate,
            "damaged": list(self.damaged),
            "switched": self.switched,
        }
