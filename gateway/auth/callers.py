"""The caller of a request: its project, its agent and its rights, taken from its API key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runtime.errors import Forbidden, UnknownProject

__all__ = ["Caller", "Right"]


class Right(StrEnum):
    """A kind of request that an API key allows."""

    ASK = "ask"
    READ = "read"
    PUBLISH = "publish"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key.

    ``project`` is None for the key of an operator, which is valid for all projects. ``agent`` is
    the agent whose private documents the caller sees and writes; None if it has none. A limit of
    None is the usual one of the gateway.
    """

    key_id: str
    project: str | None
    agent: str | None
    rights: frozenset[Right]
    requests_per_minute: int | None = None
    bytes_per_minute: int | None = None

    def require(self, right: Right) -> None:
        """Check that the API key has a right.

        Raises:
            Forbidden: it does not.
        """
        if right not in self.rights:
            kind = "--operator --may" if right is Right.OPERATE else "--may"
            raise Forbidden(
                f"the API key {self.key_id} does not have the right {right.value!r}",
                f"an operator can add a key with `headrace api-keys add {kind} {right.value}`",
            )

    def scope(self, project: str) -> str:
        """Return the project that a request names, if the API key is valid for it.

        Raises:
            UnknownProject: the API key is of another project. The message is that of a project
                that does not exist, so that the caller can't find out which projects exist.
        """
        if self.project is not None and self.project != project:
            raise UnknownProject(
                f"there is no project {project[:80]!r}",
                "check its name, or publish to it first (`headrace project list` lists the "
                "projects)",
            )
        return project
