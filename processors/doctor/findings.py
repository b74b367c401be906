"""Conditions of the environment, and findings about an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from events.names import DocumentKey

__all__ = ["Condition", "Finding", "Severity", "State", "Subject", "subjects_of"]


class State(StrEnum):
    """State of one part of the environment."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Condition:
    """State of one part of the environment. ``remedy`` is empty if the state is OK."""

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
    """Severity of a finding: a problem needs a repair, a note does not."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Subject:
    """One object of a finding: ``label`` for people, the rest for the repair.

    Subjects of two examinations are equal if the same thing was found: ``key`` contains the values
    that a change alters. ``document`` is set if the subject is, or belongs to, a document.
    """

    label: str = field(compare=False)
    key: Any
    document: DocumentKey | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of finding in one project, with everything that it concerns.

    ``name`` is stable (``document.missing``), ``meaning`` describes the problem in one line,
    ``remedy`` is the command that repairs it.
    """

    name: str
    project: str
    subjects: tuple[Subject, ...]
    meaning: str
    remedy: str
    severity: Severity = Severity.PROBLEM

    @property
    def count(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    def examples(self, most: int) -> list[str]:
        """Labels of the first subjects, at most ``most``."""
        return [subject.label for subject in self.subjects[:most]]


def subjects_of(findings: Iterable[Finding]) -> Iterator[Subject]:
    """All subjects of some findings."""
    return (subject for finding in findings for subject in finding.subjects)
