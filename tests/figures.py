"""Figures of the source code: its language, its modules and its public face.

``python -m tests.figures REVISION …`` prints them for revisions of git beside the work tree.
``tests/unit/test_figures.py`` holds the limits.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import get_args

__all__ = ["FIGURES", "Code", "Figure"]

ROOT = Path(__file__).parents[1]
PACKAGES = frozenset(
    [
        "bench",
        "content",
        "events",
        "gateway",
        "headrace",
        "migrations",
        "processors",
        "runtime",
        "sources",
        "store",
    ]
)
CLAUSE_STARTS = re.compile(
    r"(?:what|where|who|whether|which|how|those|that|as|of|by|with|none|since|nor|or|not)\W*",
    re.IGNORECASE,
)
ARCHAIC = re.compile(
    r"\b(?:shall|anew|whoever|nobody|somebody|meanwhile|told|tells?|mend(?:s|ed)?|by now"
    r"|lets? go|of ours|(?:at|in) hand|go(?:es)? on)\b",
    re.IGNORECASE,
)
VAGUE = frozenset({"one", "found", "some", "known"})
SMALL_LINES = 60
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Code:
    """Source code of the packages, at a revision of git or in the work tree."""

    def __init__(self, texts: Mapping[PurePosixPath, str]) -> None:
        self.texts = texts
        self.trees = {path: ast.parse(text) for path, text in texts.items()}

    @classmethod
    def of_work_tree(cls) -> Code:
        """Read the files of the work tree."""
        paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
        return cls(
            {PurePosixPath(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}
        )

    @classmethod
    def of_revision(cls, revision: str) -> Code:
        """Read the files of a commit."""
        listed = _git("ls-tree", "-r", "--name-only", revision).splitlines()
        paths = [PurePosixPath(line) for line in listed if line.endswith(".py")]
        return cls(
            {
                path: _git("show", f"{revision}:{path}")
                for path in paths
                if path.parts[0] in PACKAGES
            }
        )

    @property
    def modules(self) -> Sequence[PurePosixPath]:
        """Paths of all modules but those named ``__init__``."""
        return sorted(path for path in self.texts if path.name != "__init__.py")

    @cached_property
    def docstrings(self) -> Sequence[str]:
        """Every docstring that is not empty."""
        texts = [ast.get_docstring(node) for node in self._nodes if isinstance(node, Definition)]
        return list(filter(None, texts))

    @cached_property
    def names(self) -> Sequence[str]:
        """Every use of a name."""
        return [node.id for node in self._nodes if isinstance(node, ast.Name)]

    @cached_property
    def _nodes(self) -> Sequence[Definition | ast.Name]:
        """Definitions and uses of names, from one walk through all trees, which takes seconds."""
        kinds = (*get_args(Definition), ast.Name)
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree))
        return [node for node in nodes if isinstance(node, kinds)]


def _git(*arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    )
    return run.stdout


def clauses(code: Code) -> float:
    """Percentage of docstrings that begin with a clause."""
    firsts = [text.split(maxsplit=1)[0] for text in code.docstrings]
    return 100 * sum(CLAUSE_STARTS.fullmatch(word) is not None for word in firsts) / len(firsts)


def archaic_words(code: Code) -> float:
    """Archaic words per 1,000 words of docstrings."""
    texts = code.docstrings
    words = sum(len(text.split()) for text in texts)
    return 1_000 * sum(len(ARCHAIC.findall(text)) for text in texts) / words


def vague_names(code: Code) -> float:
    """Names ``one``, ``found``, ``some`` and ``known`` per 1,000 uses of names."""
    return 1_000 * sum(name in VAGUE for name in code.names) / len(code.names)


def gerund_modules(code: Code) -> int:
    """Modules named by a gerund."""
    return sum(path.stem.split("_")[0].endswith("ing") for path in code.modules)


def small_modules(code: Code) -> int:
    """Modules with fewer than 60 lines, migrations aside: each is a small one."""
    return sum(
        len(code.texts[path].splitlines()) < SMALL_LINES
        for path in code.modules
        if path.parts[:2] != ("migrations", "versions")
    )


def store_entries(code: Code) -> int:
    """Modules and folders directly in ``store/``."""
    inside = {path.parts[1] for path in code.texts if path.parts[0] == "store"}
    return len(inside - {"__init__.py", "queries"})


def most_entries(code: Code) -> int:
    """Modules and folders in the fullest folder, migrations aside: their history only grows."""
    folders: dict[PurePosixPath, set[str]] = {}
    for path in code.texts:
        if path.parts[0] == "migrations":
            continue
        for depth in range(1, len(path.parts)):
            folder = PurePosixPath(*path.parts[:depth])
            folders.setdefault(folder, set()).add(path.parts[depth])
    return max(len(names - {"__init__.py"}) for names in folders.values())


def exported_names(code: Code) -> int:
    """Names that the public package exports."""
    public = [PurePosixPath(name, "__init__.py") for name in ("headrace", "events")]
    tree = next(code.trees[path] for path in public if path in code.trees)
    return len(_assigned(tree, "__all__"))


def _assigned(tree: ast.Module, name: str) -> Sequence[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def settings(code: Code) -> int:
    """Settings of a deployment."""
    tree = code.trees[PurePosixPath("runtime/settings.py")]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    fields = next(node.body for node in classes if node.name == "Settings")
    return sum(isinstance(node, ast.AnnAssign) for node in fields)


def lines(code: Code) -> int:
    """Lines of Python, tests aside."""
    return sum(len(text.splitlines()) for text in code.texts.values())


@dataclass(frozen=True)
class Figure:
    """One figure. ``goal`` is the highest value aimed at; None if there is no such value."""

    measure: Callable[[Code], float]
    goal: float | None

    @property
    def name(self) -> str:
        """Summary line of the measure."""
        return (self.measure.__doc__ or "").rstrip(".")


FIGURES = (
    Figure(clauses, 3),
    Figure(archaic_words, 0.5),
    Figure(vague_names, 3),
    Figure(gerund_modules, 10),
    Figure(small_modules, 50),
    Figure(store_entries, 14),
    Figure(most_entries, None),
    Figure(exported_names, 20),
    Figure(settings, 46),
    Figure(lines, None),
)


def main(revisions: Sequence[str]) -> None:
    """Print a table: one row for each figure, one column for each revision and the work tree."""
    codes = [*(Code.of_revision(revision) for revision in revisions), Code.of_work_tree()]
    rows = [("", (*revisions, "work tree", "goal"))]
    for figure in FIGURES:
        values = [f"{figure.measure(code):12,.1f}".removesuffix(".0") for code in codes]
        goal = "" if figure.goal is None else f"<= {figure.goal:g}"
        rows.append((figure.name, (*values, goal)))
    for name, cells in rows:
        sys.stdout.write(f"{name:73}" + "".join(f"{cell[:12]:>13}" for cell in cells) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
