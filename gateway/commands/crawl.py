"""``headrace crawl`` and ``github``: publish the pages of a web site, and threads of GitHub."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gateway.commands.sync import (
    DryRunOption,
    FullOption,
    LaneOption,
    SkippedOption,
    VectorsOption,
    WaitOption,
    publish_source,
)
from gateway.session import (
    CollectionOption,
    JsonOption,
    OwnerOption,
    PrefixOption,
    ProjectOption,
)
from gateway.sync.registration import Destination
from runtime.settings import Settings
from sources import Source

__all__ = ["command", "github"]

_MEGABYTE = 10**6


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="First page, or llms.txt.")],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: Annotated[
        str | None,
        typer.Option(help="Name that identifies the source; default: the URL."),
    ] = None,
    prefix: PrefixOption = None,
    scope: Annotated[
        str | None,
        typer.Option(
            help="Beginning of the paths of all pages, such as /guide/; default: the folder of URL."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out pages whose path matches this pattern (as in .gitignore)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most pages to request.")] = 1_000,
    limit_mb: Annotated[int, typer.Option(min=1, help="Most megabytes to read.")] = 1_000,
    delay: Annotated[
        float,
        typer.Option(
            min=0, max=60, help="Seconds between two requests; a longer Crawl-delay is obeyed."
        ),
    ] = 0.25,
    contact: Annotated[
        str, typer.Option(help="Address for the User-Agent, so that the site can reach you.")
    ] = "",
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private",
            help="The host of URL may be in a private network or on this machine.",
        ),
    ] = False,
    lane: LaneOption = None,
    full: FullOption = False,
    dry_run: DryRunOption = False,
    skipped: SkippedOption = False,
    wait: WaitOption = False,
    vectors: VectorsOption = False,
    json: JsonOption = False,
) -> None:
    """Publish new and changed pages of a web site, and delete those that are gone.

    The pages are those below the folder of URL, on the same host, that links, llms.txt and sitemaps
    lead to. robots.txt is obeyed. The next crawl reads only pages that have changed: see
    docs/how-to/crawl.md.
    """

    def opened(_settings: Settings) -> Source:
        # imported lazily, because the libraries of the web are slow to import
        from sources.web.crawl import Limits  # noqa: PLC0415
        from sources.web.fetcher import Manners  # noqa: PLC0415
        from sources.web.site import open_site  # noqa: PLC0415

        return open_site(
            url,
            scope=scope,
            exclude=exclude or (),
            limits=Limits(limit, limit_mb * _MEGABYTE),
            manners=Manners(delay, contact),
            allow_private=allow_private,
        )

    publish_source(
        opened,
        Destination(project, tuple(collection or ()), lane, source, prefix, agent),
        full=full,
        dry_run=dry_run,
        skipped=skipped,
        wait=wait,
        vectors=vectors,
        json=json,
    )


def github(
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Name of a repository.")],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: Annotated[
        str | None,
        typer.Option(help="Name that identifies the source; default: the address of OWNER/NAME."),
    ] = None,
    prefix: PrefixOption = None,
    issues: Annotated[bool, typer.Option(help="Publish issues.")] = True,
    pulls: Annotated[bool, typer.Option(help="Publish pull requests.")] = True,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete", help="List all threads, to find deleted ones; default: once a day."
        ),
    ] = False,
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private",
            help="The host of GITHUB_API_URL may be in a private network or on this machine.",
        ),
    ] = False,
    lane: LaneOption = None,
    full: FullOption = False,
    dry_run: DryRunOption = False,
    skipped: SkippedOption = False,
    wait: WaitOption = False,
    vectors: VectorsOption = False,
    json: JsonOption = False,
) -> None:
    """Publish new and changed issues and pull requests of GitHub, and delete those that are gone.

    Each thread is a conversation with its comments and those of its reviews. GITHUB_TOKEN is the
    token to read with, and GITHUB_API_URL the address of another server than GitHub's own. The
    next sync reads only threads that have changed: see docs/how-to/sync.md.
    """

    def opened(_settings: Settings) -> Source:
        # imported lazily, because the libraries of the web are slow to import
        from sources.github.repository import (  # noqa: PLC0415
            DEFAULT_API,
            ThreadChoice,
            open_github,
        )

        return open_github(
            repository,
            api=os.environ.get("GITHUB_API_URL") or DEFAULT_API,
            token=os.environ.get("GITHUB_TOKEN"),
            choice=ThreadChoice(issues, pulls, complete),
            allow_private=allow_private,
        )

    publish_source(
        opened,
        Destination(project, tuple(collection or ()), lane, source, prefix, agent),
        full=full,
        dry_run=dry_run,
        skipped=skipped,
        wait=wait,
        vectors=vectors,
        json=json,
    )
