"""Every kind of source against a real log and a real index."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from unittest.mock import patch

import pytest

from events.client.operator_client import OperatorClient
from events.models import content_hash
from gateway.sync.ownership import Lease
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport
from gateway.sync.sync import Until, sync_source
from processors.embedders.hash_embedder import HASHING_MODEL
from sources import SizeLimits, Source, open_source
from sources.git_mirror import update_mirror
from sources.github.repository import ThreadChoice, open_github
from sources.import_file import open_import
from sources.types import Content, Read
from sources.web.fetcher import Manners
from sources.web.site import open_site
from store.generations.catalog import Recipe
from store.postgres.pool import Database
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.github import TOKEN, github
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.running import headrace
from tests.support.s3 import s3_server
from tests.support.website import Reply, website

LIMIT_BYTES = 2**23
FIRST = {"a.md": "The weir is low.", "b/c.md": "The sluice is shut.", "d.md": "The pond is full."}
SECOND = {"a.md": "The weir is high.", "b/c.md": "The sluice is shut.", "e.md": "The mill runs."}


class Kind(ABC):
    """A kind of source whose documents a test writes.

    ``equal`` counts documents that it has beside those, and that it does not publish.
    """

    equal = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[str] = []
        """Documents whose contents were read since ``forget``."""

    @abstractmethod
    def write(self, texts: Mapping[str, str]) -> None:
        """Replace all documents."""

    @abstractmethod
    def opened(self) -> Source:
        """Open the source, as a command does."""

    def open(self) -> Source:
        """Open the source, and note what is read of it."""
        source = self.opened()
        reader = source.reader

        @contextmanager
        def noting(sizes: SizeLimits) -> Iterator[Read]:
            with reader(sizes) as read:

                def note(uri: str, fingerprint: str) -> Content:
                    self.read.append(uri)
                    return read(uri, fingerprint)

                yield note

        source.reader = noting  # type: ignore[method-assign]
        return source

    def forget(self) -> None:
        """Forget what was read."""
        self.read.clear()

    def served(self) -> Sequence[str]:
        """Contents that a server has sent since ``forget``, if the listing asks for them."""
        return ()

    def base(self) -> Source | None:
        """Source that is synced before, if this kind needs one."""
        return None

    def uri(self, path: str) -> str:
        """Uri of the document at a path."""
        return path

    def text(self, path: str, text: str) -> str:
        """Content of the document at a path."""
        del path
        return text

    def close(self) -> None:
        """End whatever serves the documents."""
        return


class DirectoryKind(Kind):
    """Plain directory."""

    def write(self, texts: Mapping[str, str]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        write_files(self.folder, dict(texts))

    def opened(self) -> Source:
        return open_source(self.folder)


class GitKind(Kind):
    """Repository."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.repository = create_repository(folder / "repository", {})

    def write(self, texts: Mapping[str, str]) -> None:
        self.repository.git("rm", "-r", "--quiet", "--ignore-unmatch", ".")
        self.repository.commit(dict(texts))

    def opened(self) -> Source:
        return open_source(self.repository.path)


class WorkTreeKind(GitKind):
    """Work tree whose changes are not committed."""

    def write(self, texts: Mapping[str, str]) -> None:
        for path in self.repository.path.glob("[!.]*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.repository.write(dict(texts))

    def opened(self) -> Source:
        return open_source(self.repository.path, worktree=True)


class MirrorKind(GitKind):
    """Mirror of a repository, which a webhook updates before each sync."""

    def opened(self) -> Source:
        mirror = self.folder / "mirror.git"
        update_mirror(mirror, str(self.repository.path), Event())
        return open_source(mirror)


class ImportKind(Kind):
    """File of JSON lines."""

    def write(self, texts: Mapping[str, str]) -> None:
        lines = [json.dumps({"uri": uri, "content": text}) for uri, text in texts.items()]
        self.folder.mkdir(exist_ok=True)
        (self.folder / "export.jsonl").write_text("\n".join(lines))

    def opened(self) -> Source:
        return open_import(str(self.folder / "export.jsonl"), prune=True)


class BucketKind(Kind):
    """Bucket of an S3 server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir()
        self._server = ExitStack()
        variables = self._server.enter_context(s3_server(folder))
        self._server.enter_context(patch.dict(os.environ, variables))

    def write(self, texts: Mapping[str, str]) -> None:
        shutil.rmtree(self.folder / "bucket", ignore_errors=True)
        write_files(self.folder / "bucket" / "docs", dict(texts))

    def opened(self) -> Source:
        return open_source("s3://bucket/docs/")

    def close(self) -> None:
        self._server.close()


class SiteKind(Kind):
    """Pages of a web site, to which a page without a document leads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = ExitStack()
        self._site = self._server.enter_context(website())

    def write(self, texts: Mapping[str, str]) -> None:
        self._site.replies = {
            f"/docs/{path}": Reply(text, headers=MARKDOWN) for path, text in texts.items()
        }
        self._site.page(
            "/docs/", "Contents", list(texts), head="<meta name=robots content=noindex>"
        )

    def opened(self) -> Source:
        return open_site(
            self._site.url("/docs/"), manners=Manners(delay_seconds=0), allow_private=True
        )

    def uri(self, path: str) -> str:
        return self._site.url(f"/docs/{path}")

    def forget(self) -> None:
        super().forget()
        self._site.requests()

    def served(self) -> Sequence[str]:
        paths = (path for path, status in self._site.requests() if status == 200)
        return [path for path in paths if path.startswith("/docs/")]

    def close(self) -> None:
        self._server.close()


class GitHubKind(Kind):
    """Threads of a server of GitHub, each with a comment; the path of a document is its title."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._context = ExitStack()
        self._server = self._context.enter_context(github())
        self._has_deleted = False

    def write(self, texts: Mapping[str, str]) -> None:
        numbers = self._numbers()
        for path in numbers.keys() - texts.keys():
            self._server.delete(numbers[path])
            self._has_deleted = True
        for path, text in texts.items():
            if path not in numbers:
                self._server.comment(self._server.open(path, text), f"Is it so at {path}?")
            elif self._server.threads[numbers[path]]["body"] != text:
                self._server.edit(numbers[path], body=text)

    def opened(self) -> Source:
        return open_github(
            self._server.repository,
            api=self._server.url,
            token=TOKEN,
            choice=ThreadChoice(complete=self._has_deleted),
            allow_private=True,
        )

    def uri(self, path: str) -> str:
        return f"{self._server.repository.lower()}/issues/{self._numbers()[path]}"

    def text(self, path: str, text: str) -> str:
        del text
        return self._server.documents()[self.uri(path)]

    def forget(self) -> None:
        super().forget()
        self._server.site.requests()

    def served(self) -> Sequence[str]:
        paths = (path for path, status in self._server.site.requests() if status == 200)
        return [path for path in paths if "/issues" in path or "/pulls" in path]

    def close(self) -> None:
        self._context.close()

    def _numbers(self) -> dict[str, int]:
        return {thread["title"]: number for number, thread in self._server.threads.items()}


class OverlayKind(Kind):
    """Linked work tree of a repository, with whose only file it begins."""

    equal = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._repository = create_repository(folder / "repository")
        self._repository.commit({"kept.md": "The stone is round."})
        self._tree = Repository(folder / "tree")
        self._repository.git("worktree", "add", "--quiet", "-b", "next", str(self._tree.path))

    def base(self) -> Source:
        return open_source(self._repository.path)

    def write(self, texts: Mapping[str, str]) -> None:
        self._tree.git("reset", "--quiet", "--hard", "main")
        self._tree.commit(dict(texts))

    def opened(self) -> Source:
        return open_source(self._tree.path)


MARKDOWN = {"Content-Type": "text/markdown"}
KINDS: dict[str, type[Kind]] = {
    "directory": DirectoryKind,
    "git": GitKind,
    "worktree": WorkTreeKind,
    "webhook": MirrorKind,
    "import": ImportKind,
    "bucket": BucketKind,
    "web": SiteKind,
    "github": GitHubKind,
    "overlay": OverlayKind,
}


@dataclass
class Syncs:
    """Syncs of one client, each kind into a project of its own."""

    client: OperatorClient
    store: Store
    project: str = "docs"

    async def __call__(self, source: Source, until: Until = Until.KEYWORDS) -> SyncReport:
        return await sync_source(
            source,
            Destination(self.project),
            self.client,
            self.store,
            sizes=SizeLimits(LIMIT_BYTES, LIMIT_BYTES),
            until=until,
            show=lambda *_, **__: None,
        )

    async def hashes(self) -> dict[str, str]:
        """Hash of each text of the source in the index, by uri; a base has no part in it."""
        source = max(
            await self.store.sources.list(self.project), key=lambda source: source.base_id or ""
        )
        return {uri: text for uri, (text, _) in (await self.store.sources.contents(source)).items()}


@pytest.fixture
async def syncs(redis_url: str, worker: Database) -> AsyncIterator[Syncs]:
    """Syncs with a client and a store, without a worker."""
    store = Store(worker, Recipe(HASHING_MODEL))
    async with OperatorClient.connect(redis_url, content_store=store) as client:
        yield Syncs(client, store)


def counts(report: SyncReport) -> tuple[int, int, int]:
    return report.unchanged, report.published, report.deleted


async def test_a_sync_of_each_kind_follows_its_source(
    syncs: Syncs,
    redis_url: str,
    database: FreshDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second sync publishes and reads nothing; edits, new and gone documents follow.

    They follow also after a kill. A watch syncs a directory or a repository as here.
    """
    monkeypatch.setattr("sources.files._SETTLED_NANOSECONDS", -(10**9))
    finish = Lease.finish

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    async with headrace(redis_url, database):
        for name, kind_of in KINDS.items():
            syncs.project = name
            kind = kind_of(tmp_path / name)
            try:
                if (base := kind.base()) is not None:
                    await syncs(base)
                await asyncio.to_thread(kind.write, FIRST)
                kind.forget()
                assert counts(await syncs(kind.open())) == (kind.equal, 3, 0), name
                assert len(kind.read) == 3, name
                kind.forget()
                assert counts(await syncs(kind.open())) == (kind.equal + 3, 0, 0), name
                assert (kind.read, [*kind.served()]) == ([], []), name
                await asyncio.to_thread(kind.write, SECOND)
                monkeypatch.setattr(Lease, "finish", die)
                with pytest.raises(KeyboardInterrupt):
                    await syncs(kind.open(), Until.PUBLISHED)
                monkeypatch.setattr(Lease, "finish", finish)
                await asyncio.to_thread(kind.write, FIRST)
                await syncs(kind.open())
                assert await syncs.hashes() == expected(kind, FIRST), name
                await asyncio.to_thread(kind.write, SECOND)
                assert counts(await syncs(kind.open())) == (kind.equal + 1, 2, 1), name
                assert await syncs.hashes() == expected(kind, SECOND), name
            finally:
                kind.close()


async def test_an_import_publishes_edited_metadata(
    syncs: Syncs, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """Metadata and title of an imported document are those of its line, also without a new text."""
    file = tmp_path / "export.jsonl"
    line = {"uri": "wiki/7", "content": "The weir is low.", "title": "Weir"}
    async with headrace(redis_url, database) as running:
        for title in ("Weir", "The old weir"):
            file.write_text(json.dumps(line | {"title": title, "metadata": {"space": title}}))
            assert counts(await syncs(open_import(str(file)))) == (0, 1, 0)
            answer = await running.client.ask("docs", "weir", mode="keyword")
            assert answer.results[0].title == title
            assert answer.results[0].metadata == {"space": title}
        assert counts(await syncs(open_import(str(file)))) == (1, 0, 0)


async def test_a_citation_leads_to_the_place_in_its_document(
    syncs: Syncs, redis_url: str, database: FreshDatabase
) -> None:
    """The link of a result is that of the section of a page, or of the comment of a thread."""
    body = '<h1>Mill</h1><p>The weir is low.</p><h2 id="gate">Gate</h2><p>The sluice is shut.</p>'
    with website() as site, github() as server:
        site.page("/", body)
        page = open_site(site.url(), manners=Manners(delay_seconds=0), allow_private=True)
        number = server.open("The gate jams", "It jams at noon. " * 60, labels=[{"name": "bug"}])
        comment = server.comment(number, "Grease the hinge with tallow. " * 40)
        thread = open_github("mill/race", api=server.url, token=TOKEN, allow_private=True)
        async with headrace(redis_url, database) as running:
            assert counts(await syncs(page)) == (0, 1, 0)
            ask = partial(running.client.ask, "docs", mode="keyword")
            citation = (await ask("sluice")).results[0].citation
            assert (citation.uri, citation.permalink) == (site.url(), site.url("/#gate"))
            assert counts(await syncs(thread)) == (0, 1, 0)
            [result] = (await ask("tallow")).results
            assert (result.title, result.metadata["labels"]) == ("The gate jams (#1)", "bug")
            assert result.citation.speakers == ("bo",)
            assert result.citation.permalink == server.comments[comment]["html_url"]
            server.edit(number, state="closed")
            assert counts(await syncs(thread)) == (0, 1, 0)
            assert (await ask("tallow")).results[0].metadata["state"] == "closed"


def expected(kind: Kind, texts: Mapping[str, str]) -> dict[str, str]:
    """Hash of each document by uri."""
    return {kind.uri(path): content_hash(kind.text(path, text)) for path, text in texts.items()}
