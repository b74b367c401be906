"""Findings of the doctor: conditions of the environment, and drifts of an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from events.positions import DocumentKey

__all__ = ["Condition", "Drift", "Severity", "State", "Subject"]


class State(StrEnum):
    """State of one part of the environment."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Condition:
    """Finding about one part of the environment. ``remedy`` is empty if the state is OK."""

    name: str
    state: State
    detail: str
    remedy: str = ""

    @classmethod
    def ok(cls, name: str, detail: str) -> Condition:
        """Build a condition without a problem."""
        return cls(name, State.OK, detail)

    @classmethod
    def warning(cls, name: str, detail: str, remedy: str) -> Condition:
        """Build a condition that works for the moment."""
        return cls(name, State.WARNING, detail, remedy)

    @classmethod
    def problem(cls, name: str, detail: str, remedy: str) -> Condition:
        """Build a condition that does not work or is not safe."""
        return cls(name, State.PROBLEM, detail, remedy)


class Severity(StrEnum):
    """Severity of a finding: a drift needs a repair; a note does not, and isn't counted."""

    DRIFT = "drift"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that a drift concerns: ``label`` for people, the rest for the repair.

    Equal subjects of two looks are the same drift: ``key`` contains the values that a change
    alters. ``document``: agent ('' for shared documents) and uri if it concerns a document.
    """

    label: str = field(compare=False)
    key: Any
    document: DocumentKey | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """One kind of drift in one project, with everything that it concerns.

    ``name`` is stable (``document.missing``), ``meaning`` describes the problem in one line,
    ``remedy`` is the command that repairs it.
    """

    name: str
    project: str
    subjects: tuple[Subject, ...]
    meaning: str
    remedy: str
    severity: Severity = Severity.DRIFT

    @property
    def count(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    def examples(self, most: int) -> list[str]:
        """Labels of the first subjects, at most ``most``."""
        return [subject.label for subject in self.subjects[:most]]
