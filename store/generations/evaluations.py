"""Saved evaluations: how well a generation answers questions with known answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from runtime.errors import NotFound
from store.generations.catalog import Generation
from store.generations.inventory import Inventory
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["Evaluation", "EvaluationRow", "Evaluations", "QuestionScore"]

_QUERIES = named("evaluations")
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """Scores (0 to 1) of one question at depth 10, and the best documents of its answer."""

    id: str
    text: str
    ndcg: float
    recall: float
    mrr: float
    uris: Sequence[str]


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Scores of one set in one mode on one generation, by the names that ``headrace eval`` prints.

    ``questions`` is the number of questions; ``name`` is empty if it was saved without one.
    """

    id: str
    project: str
    set_name: str
    mode: str
    generation: int
    model: str
    chunking: str
    scores: Mapping[str, float]
    questions: int
    created_at: datetime
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A saved evaluation with the scores of each question; see ``EvaluationRow``."""

    id: str
    project: str
    set_name: str
    mode: str
    generation: int
    model: str
    chunking: str
    scores: Mapping[str, float]
    questions: Sequence[QuestionScore]
    created_at: datetime
    name: str = ""


class Evaluations:
    """The evaluations of a deployment, for operators.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._inventory = Inventory(database)

    async def save(
        self,
        generation: Generation,
        set_name: str,
        mode: str,
        scores: Mapping[str, float],
        questions: Sequence[QuestionScore],
        name: str = "",
    ) -> str:
        """Save an evaluation of a generation; return its id."""
        async with self._database.scope(generation.project_id) as connection:
            evaluation_id = await connection.fetchval(
                _QUERIES["save_evaluation"],
                generation.project_id,
                set_name,
                mode,
                generation.id,
                generation.recipe.model,
                generation.recipe.chunking,
                json.dumps(dict(scores)),
                json.dumps([asdict(question) for question in questions]),
                name,
            )
        return str(evaluation_id)

    async def of(self, project: str) -> list[EvaluationRow]:
        """List the evaluations of a project, newest first.

        Raises:
            UnknownProject: no such project.
        """
        [project_id] = (await self._inventory.projects(project)).values()
        return await self._of(project, project_id)

    async def all(self) -> list[EvaluationRow]:
        """List the evaluations of all projects, newest first."""
        projects = await self._inventory.projects()
        rows = [row for name, number in projects.items() for row in await self._of(name, number)]
        return sorted(rows, key=lambda row: int(row.id), reverse=True)

    async def _of(self, project: str, project_id: int) -> list[EvaluationRow]:
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["list_evaluations"], project_id)
        return [EvaluationRow(**_common(row, project), questions=row["questions"]) for row in rows]

    async def find(self, evaluation_id: str) -> Evaluation:
        """Return an evaluation of any project, with its questions.

        Raises:
            NotFound: no evaluation has this id.
        """
        if evaluation_id.isdecimal() and int(evaluation_id) <= _LARGEST_ID:
            for project, project_id in sorted((await self._inventory.projects()).items()):
                async with self._database.scope(project_id) as connection:
                    row = await connection.fetchrow(
                        _QUERIES["find_evaluation"], project_id, int(evaluation_id)
                    )
                if row is not None:
                    return _evaluation(row, project)
        raise _missing(evaluation_id)

    async def named(self, name: str) -> list[Evaluation]:
        """Return the newest evaluation of each set and mode that was saved under a name.

        A number is the id of a single evaluation.

        Raises:
            NotFound: no evaluation has this name or id.
        """
        if name.isdecimal():
            return [await self.find(name)]
        newest: dict[tuple[str, str], Evaluation] = {}
        for project, project_id in (await self._inventory.projects()).items():
            async with self._database.scope(project_id) as connection:
                rows = await connection.fetch(_QUERIES["find_named_evaluations"], project_id, name)
            for evaluation in (_evaluation(row, project) for row in rows):
                key = evaluation.set_name, evaluation.mode
                if key not in newest or int(newest[key].id) < int(evaluation.id):
                    newest[key] = evaluation
        if not newest:
            raise _missing(name)
        return list(newest.values())


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no evaluation {name[:40]!r}",
        "`headrace eval list` lists them, and `headrace eval DIR --save` saves one",
    )


def _evaluation(row: Mapping[str, Any], project: str) -> Evaluation:
    questions = [QuestionScore(**score) for score in json.loads(row["questions"])]
    return Evaluation(**_common(row, project), questions=questions)


def _common(row: Mapping[str, Any], project: str) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "project": project,
        "set_name": row["set_name"],
        "mode": row["mode"],
        "generation": row["generation"],
        "model": row["model"],
        "chunking": row["chunking"],
        "scores": json.loads(row["scores"]),
        "created_at": row["created_at"],
        "name": row["name"],
    }
