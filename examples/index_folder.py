"""Keep a project equal to the text files of a folder: ``index_folder.py PROJECT FOLDER [PREFIX]``.

The address and the API key are those of ``.env.example``, or of a running ``headrace up``. A file
that has disappeared is deleted from the project. Without a prefix, so is every other document.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from headrace_client import Headrace, HeadraceError, NotFound, Project


def index_folder(project: Project, folder: Path, prefix: str) -> int:
    """Publish the files of a folder below a prefix; return the number of rejected changes."""
    try:
        indexed = {document.uri for document in project.documents(prefix=prefix)}
    except NotFound:  # the first change creates the project
        indexed = set()
    uris = set[str]()
    with project.batch() as batch:
        for path, text in text_files(folder):
            uri = prefix + path.relative_to(folder).as_posix()
            batch.upsert(uri, text)
            uris.add(uri)
        for uri in sorted(indexed - uris):
            batch.delete(uri)
    rejected = 0
    for progress in batch.follow():
        print(
            f"{progress.handled} of {progress.published} handled, {progress.per_s:.0f} per second"
        )
        rejected = progress.rejected
    if rejected:
        for change in batch.report().rejected:
            print(f"rejected: {change.uri}: {change.reason}", file=sys.stderr)
    return rejected


def text_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files in UTF-8, apart from those whose path has a hidden part."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            print(f"skipped: {path} is not text", file=sys.stderr)
        else:
            yield path, text


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code."""
    if len(arguments) not in (2, 3):
        print("usage: index_folder.py PROJECT FOLDER [PREFIX]", file=sys.stderr)
        return 2
    name, folder, prefix = (*arguments, "")[:3]
    if not Path(folder).is_dir():  # the documents of a wrong path would be deleted
        print(f"{folder} is not a folder", file=sys.stderr)
        return 2
    try:
        with Headrace() as headrace:
            return min(1, index_folder(headrace.project(name), Path(folder), prefix))
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
