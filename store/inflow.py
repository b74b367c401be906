"""Rate at which the live generations receive vectors, between two checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Inflow"]


@dataclass(frozen=True, slots=True)
class _Look:
    generation_id: int
    at: float
    vectors: Mapping[int, int]


class Inflow:
    """Rates of new vectors since the last check of each project."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def per_second(
        self, project_id: int, generation_id: int, vectors: Mapping[int, int], at: float
    ) -> dict[int, float]:
        """New vectors per second since the last check, by model; 0 at a generation's first check.

        ``vectors``: current number of vectors by model. ``at``: seconds of a monotonic clock.
        """
        now = _Look(generation_id, at, vectors)
        last = self._looks.get(project_id, now)
        self._looks[project_id] = now
        if last.generation_id != generation_id or last.at >= at:
            return dict.fromkeys(vectors, 0.0)
        return {
            model_id: (count - last.vectors.get(model_id, 0)) / (at - last.at)
            for model_id, count in vectors.items()
        }
