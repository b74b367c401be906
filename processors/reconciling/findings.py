"""What the doctor finds: conditions of the environment, and drifts of an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Condition", "Drift", "Severity", "State", "Subject"]


class State(StrEnum):
    """How one part of the environment is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Condition:
    """One part of the environment. ``cure`` is empty where all is well."""

    name: str
    state: State
    detail: str
    cure: str = ""

    @classmethod
    def ok(cls, name: str, detail: str) -> Condition:
        """All is well."""
        return cls(name, State.OK, detail)

    @classmethod
    def warning(cls, name: str, detail: str, cure: str) -> Condition:
        """It works for now."""
        return cls(name, State.WARNING, detail, cure)

    @classmethod
    def problem(cls, name: str, detail: str, cure: str) -> Condition:
        """Something doesn't work, or isn't safe."""
        return cls(name, State.PROBLEM, detail, cure)


class Severity(StrEnum):
    """Whether a finding needs mending; a note doesn't, and isn't counted as a drift."""

    DRIFT = "drift"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a drift is about: ``label`` for people, the rest for whoever mends it.

    Subjects of two looks are the same drift if they are equal: ``key`` holds what changes alter.
    ``document``: its agent ('' for what is shared) and uri, where it is about one.
    """

    label: str = field(compare=False)
    key: Any
    document: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """One kind of drift in one project, with everything that it concerns.

    ``name`` is stable (``document.missing``), ``meaning`` says in one line what is wrong, ``cure``
    is the command that mends it.
    """

    name: str
    project: str
    subjects: tuple[Subject, ...]
    meaning: str
    cure: str
    severity: Severity = Severity.DRIFT

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.subjects)

    def examples(self, most: int) -> list[str]:
        """The first few, for people."""
        return [subject.label for subject in self.subjects[:most]]
