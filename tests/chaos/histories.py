"""Sources of each kind whose content changes at random.

A history edits, adds, deletes and renames files, renames them in letter case only, swaps a file
with a directory of its name, and rewrites commits. ``listing`` is the expected content of the
index.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tests.support.github import GitHub
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.website import HTML, Reply, Website, html

__all__ = [
    "BucketHistory",
    "Checkout",
    "DirectoryHistory",
    "GitHistory",
    "History",
    "ImportHistory",
    "MirrorHistory",
    "OverlayHistory",
    "SiteHistory",
    "ThreadHistory",
    "WorkTreeHistory",
]

_FOLDERS = ("", "docs/", "src/", "src/mill/", "Notes ü/")
_NAMES = ("wheel", "Race", "sluice gate", "weir", "naïve", "README")
_SUFFIXES = (".md", ".py", ".txt")
_WORDS = ("water", "stone", "bearing", "head", "flow", "gate", "turbine", "wheel", "pond", "sill")
_FIRST_FILES = 6
_MOST_OPERATIONS = 5


class History(Protocol):
    """Source that a sync reads."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of ``headrace`` for a sync."""
        ...

    def listing(self) -> dict[str, str]:
        """Current text by uri, as a sync sees the source."""
        ...

    def advance(self) -> None:
        """Change a few files at random."""
        ...


class DirectoryHistory:
    """Plain directory. ``marker`` is a word that each of its files contains."""

    def __init__(
        self, path: Path, marker: str, rng: random.Random, files: int = _FIRST_FILES
    ) -> None:
        self.path = path
        self._marker = marker
        self._rng = rng
        path.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            self._add()
        self._before = DirectoryHistory.listing(self)

    @property
    def arguments(self) -> list[str]:
        """Sync of the directory."""
        return ["sync", str(self.path)]

    def listing(self) -> dict[str, str]:
        """Text of every file below the directory."""
        return {
            file.relative_to(self.path).as_posix(): file.read_text()
            for file in self.path.rglob("*")
            if file.is_file() and ".git" not in file.relative_to(self.path).parts
        }

    def advance(self) -> None:
        """Do one to five operations."""
        self._before = DirectoryHistory.listing(self)
        for _ in range(self._rng.randint(1, _MOST_OPERATIONS)):
            self._rng.choice(self._operations())()

    def undo(self) -> None:
        """Restore the files as they were before the last operations."""
        for path in self.path.iterdir():
            if path.name == ".git":
                continue
            if path.is_file():
                path.unlink()
            else:
                shutil.rmtree(path)
        write_files(self.path, dict(self._before))

    def _operations(self) -> list[Callable[[], None]]:
        return [
            *(self._add, self._edit, self._edit, self._delete, self._rename),
            *(self._rename_case, self._swap),
        ]

    def _advance_but_keep_one(self) -> None:
        """Do one to five operations, after which at least one file remains."""
        DirectoryHistory.advance(self)
        while self._any_file() is None:
            self._add()

    def _add(self) -> None:
        rng = self._rng
        name = rng.choice(_FOLDERS) + rng.choice(_NAMES) + str(rng.randint(0, 9))
        path = self.path / (name + rng.choice(_SUFFIXES))
        if not path.exists() and _can_hold(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._text())

    def _edit(self) -> None:
        path = self._any_file()
        if path is not None:
            lines = path.read_text().splitlines()
            lines[self._rng.randrange(len(lines))] = self._line()
            path.write_text("\n".join(lines) + "\n")

    def _delete(self) -> None:
        path = self._any_file()
        if path is not None:
            path.unlink()

    def _rename(self) -> None:
        path = self._any_file()
        if path is not None:
            self._move(path, path.with_name(f"{path.stem}{self._rng.randint(0, 99)}{path.suffix}"))

    def _rename_case(self) -> None:
        path = self._any_file()
        if path is not None:
            self._move(path, path.with_name(path.name.swapcase()))

    def _swap(self) -> None:
        """Replace a file by a directory of its name, with a file inside."""
        path = self._any_file()
        if path is not None:
            text = path.read_text()
            path.unlink()
            path.mkdir()
            (path / "inner.md").write_text(text)

    def _move(self, path: Path, target: Path) -> None:
        if not target.exists():
            path.rename(target)

    def _any_file(self) -> Path | None:
        names = sorted(DirectoryHistory.listing(self))
        return self.path / self._rng.choice(names) if names else None

    def _text(self) -> str:
        return "".join(f"{self._line()}\n" for _ in range(self._rng.randint(1, 12)))

    def _line(self) -> str:
        words = self._rng.choices(_WORDS, k=self._rng.randint(3, 9))
        return f"{self._marker} {' '.join(words)} {self._rng.randint(0, 9999)}."


class GitHistory(DirectoryHistory):
    """Repository; each advance is a commit, and some rewrite the last commits."""

    def __init__(self, path: Path, marker: str, rng: random.Random) -> None:
        super().__init__(path, marker, rng)
        self._repository = create_repository(path)
        self._repository.commit()

    def advance(self) -> None:
        """Change a few files and commit them; sometimes replace the last commits."""
        commits = int(self._repository.git("rev-list", "--count", "HEAD"))
        if commits > 2 and self._rng.random() < 0.2:
            self._repository.git("reset", "--quiet", "--hard", f"HEAD~{self._rng.randint(1, 2)}")
        super().advance()
        self._repository.commit()

    def undo(self) -> None:
        """Restore the files, and commit them."""
        super().undo()
        self._repository.commit()

    def checkout(self, path: Path) -> Checkout:
        """Clone the repository in its current state."""
        return Checkout(self, path)

    def linked(self, path: Path) -> OverlayHistory:
        """Make a linked work tree on a branch of its own."""
        self._repository.git("worktree", "add", "--quiet", "-b", path.name, str(path))
        return OverlayHistory(path, self._marker, self._rng, files=0)


class OverlayHistory(DirectoryHistory):
    """Linked work tree; each advance is a commit, or takes over that of the repository."""

    def advance(self) -> None:
        """Change a few files and commit them, or return to the commit of the repository."""
        tree = Repository(self.path)
        if self._rng.random() < 0.3:
            tree.git("reset", "--quiet", "--hard", "main")
        else:
            super().advance()
            tree.commit()

    def undo(self) -> None:
        """Restore the files, and commit them."""
        super().undo()
        Repository(self.path).commit()


class WorkTreeHistory(GitHistory):
    """Work tree of a repository, with edits that are not always committed."""

    @property
    def arguments(self) -> list[str]:
        """Sync of the files as they are now."""
        return [*super().arguments, "--worktree"]

    def advance(self) -> None:
        """Change a few files; commit them in half of the cases."""
        if self._rng.random() < 0.5:
            super().advance()
        else:
            DirectoryHistory.advance(self)


class MirrorHistory(GitHistory):
    """Repository that a gateway fetches into a mirror and syncs when it starts."""

    @property
    def arguments(self) -> list[str]:
        """Start of the gateway."""
        return ["serve", "--port", "0"]

    def setting(self, project: str, prefix: str) -> str:
        """Value of ``HEADRACE_GATEWAY``."""
        hook = {"secret": "secret of the host", "repository": str(self.path)}
        return json.dumps({"hooks": {"mirror": hook | {"project": project, "prefix": prefix}}})


class ImportHistory(DirectoryHistory):
    """Directory whose files are the lines of a file to import."""

    def __init__(self, path: Path, marker: str, rng: random.Random) -> None:
        super().__init__(path, marker, rng)
        self._file = path.with_suffix(".jsonl")
        self._write()

    @property
    def arguments(self) -> list[str]:
        """Import of the file."""
        return ["import", str(self._file), "--prune"]

    def advance(self) -> None:
        """Change a few lines; at least one remains."""
        self._advance_but_keep_one()
        self._write()

    def undo(self) -> None:
        """Restore the lines."""
        super().undo()
        self._write()

    def _write(self) -> None:
        lines = [json.dumps({"uri": uri, "content": text}) for uri, text in self.listing().items()]
        draft = self._file.with_suffix(".draft")
        draft.write_text("\n".join(lines))
        draft.replace(self._file)


class BucketHistory(DirectoryHistory):
    """Folder of a bucket, whose server has the folder above as a bucket."""

    @property
    def arguments(self) -> list[str]:
        """Sync of the folder."""
        return ["sync", f"s3://{self.path.parent.name}/{self.path.name}"]

    def advance(self) -> None:
        """Change a few files; at least one remains."""
        self._advance_but_keep_one()


class SiteHistory(DirectoryHistory):
    """Directory whose files are the pages of a web site."""

    def __init__(self, path: Path, marker: str, rng: random.Random, site: Website) -> None:
        super().__init__(path, marker, rng)
        self._site = site
        self._serve()

    @property
    def arguments(self) -> list[str]:
        """Crawl of the site."""
        return ["crawl", self._site.url(), "--allow-private", "--delay", "0"]

    def listing(self) -> dict[str, str]:
        """Text of every page by its address."""
        return {self._site.url(f"/{quote(path)}"): text for path, text in super().listing().items()}

    def advance(self) -> None:
        """Change a few files; at least one remains."""
        self._advance_but_keep_one()
        self._serve()

    def undo(self) -> None:
        """Restore the pages."""
        super().undo()
        self._serve()

    def _serve(self) -> None:
        pages = {url.removeprefix(self._site.origin): text for url, text in self.listing().items()}
        first = html("Contents", list(pages), head="<meta name=robots content=noindex>")
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self._site.replies = {
            "/": Reply(first, headers=HTML),
            **{path: Reply(text, headers=headers) for path, text in pages.items()},
        }


class ThreadHistory:
    """Issues and pull requests of a repository of GitHub."""

    def __init__(self, marker: str, rng: random.Random, server: GitHub) -> None:
        self._marker = marker
        self._rng = rng
        self._server = server
        for _ in range(_FIRST_FILES):
            self._open()

    @property
    def arguments(self) -> list[str]:
        """Sync of all threads."""
        return ["github", self._server.repository, "--allow-private", "--complete"]

    def listing(self) -> dict[str, str]:
        """Text of each thread with its comments by uri."""
        return self._server.documents()

    def advance(self) -> None:
        """Change a few threads; at least one remains."""
        for _ in range(self._rng.randint(1, _MOST_OPERATIONS)):
            self._rng.choice(self._operations())()
        if not self._server.threads:
            self._open()

    def _operations(self) -> list[Callable[[], object]]:
        server, threads = self._server, list(self._server.threads)
        if not threads:
            return [self._open]
        number, text = self._rng.choice(threads), self._text()
        # only a full sync finds that a comment of a review was deleted: see docs/how-to/sync.md
        comments = [key for key, comment in server.comments.items() if "issue_url" in comment]
        operations: list[Callable[[], object]] = [
            *(self._open, lambda: server.edit(number, body=text)),
            *(lambda: server.comment(number, text), lambda: server.edit(number, title=text)),
            *(lambda: server.delete(number), lambda: server.transfer(number)),
        ]
        if "pull_request" in server.threads[number]:
            operations.append(lambda: server.comment(number, text, path="mill.py"))
        if comments:
            operations.append(lambda: server.erase_comment(comments[0]))
        return operations

    def _open(self) -> None:
        self._server.open(self._text(), self._text(), pull=self._rng.random() < 0.5)

    def _text(self) -> str:
        return f"{self._marker} {' '.join(self._rng.choices(_WORDS, k=5))}"


class Checkout:
    """Clone that stays at the origin's commit of its last ``advance``."""

    def __init__(self, origin: GitHistory, path: Path) -> None:
        self.path = path
        self._origin = origin
        self._clone()

    @property
    def arguments(self) -> list[str]:
        """Sync of the clone."""
        return ["sync", str(self.path)]

    def listing(self) -> dict[str, str]:
        """Listing of the origin: the newest commit wins, whichever checkout is synced last."""
        return self._origin.listing()

    def advance(self) -> None:
        """Clone the origin again."""
        shutil.rmtree(self.path)
        self._clone()

    def _clone(self) -> None:
        Repository(self._origin.path).git("clone", "--quiet", ".", str(self.path))


def _can_hold(folder: Path) -> bool:
    """True if neither the folder nor a folder above it is a file."""
    return not any(parent.is_file() for parent in (folder, *folder.parents))
