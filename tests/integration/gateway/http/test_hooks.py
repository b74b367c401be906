"""Webhooks: each kind of host, and deliveries that must have no effect."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from events.client.client import Client
from events.client.questions import QueryRefused
from gateway.http.middleware import HOOK_BYTES
from gateway.sync.hook_syncs import HookSyncs
from tests.support.databases import Database
from tests.support.gateways import gateway
from tests.support.repositories import create_repository
from tests.support.running import headrace
from tests.support.waiting import eventually

SECRET = "whsec_" + base64.b64encode(b"a secret of the host").decode()
BODY = json.dumps({"ref": "refs/heads/main", "repository": {"clone_url": "file:///etc"}}).encode()
Headers = dict[str, str]


def signature(body: bytes, key: str = SECRET) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


def forgejo(number: str, body: bytes = BODY, key: str = SECRET) -> Headers:
    """Headers of Forgejo, which sends those of Gitea and GitHub too."""
    signed = signature(body, key)
    own = {"X-Forgejo-Event": "push", "X-Forgejo-Delivery": number, "X-Forgejo-Signature": signed}
    return own | gitea(number, body, key) | github(number, body, key)


def gitea(number: str, body: bytes = BODY, key: str = SECRET) -> Headers:
    signed = signature(body, key)
    return {"X-Gitea-Event": "push", "X-Gitea-Delivery": number, "X-Gitea-Signature": signed}


def github(number: str, body: bytes = BODY, key: str = SECRET) -> Headers:
    signed = f"sha256={signature(body, key)}"
    return {"X-GitHub-Event": "push", "X-GitHub-Delivery": number, "X-Hub-Signature-256": signed}


def gitlab(number: str, body: bytes = BODY, key: str = SECRET, age: int = 0) -> Headers:
    """Headers of GitLab with a signing secret, which may have been replaced lately."""
    stamp = str(int(time.time()) - age)
    raw = base64.b64decode(key.removeprefix("whsec_"))
    digest = hmac.digest(raw, f"{number}.{stamp}.".encode() + body, "sha256")
    return {
        "webhook-id": number,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,b3RoZXI= v1,{base64.b64encode(digest).decode()}",
        "X-Gitlab-Event": "Push Hook",
    }


def gitlab_token(number: str, body: bytes = BODY, key: str = SECRET) -> Headers:
    del body
    return {"X-Gitlab-Token": key, "Idempotency-Key": number, "X-Gitlab-Event": "Tag Push Hook"}


async def uris(client: Client, project: str, text: str) -> list[str]:
    """Uris that hold a text; none if the project does not exist yet."""
    with suppress(QueryRefused):
        answer = await client.ask(project, text, mode="keyword")
        return [result.citation.uri for result in answer.results]
    return []


HOSTS = (forgejo, gitea, github, gitlab, gitlab_token)
WORDS = ("sluice", "turbine", "granary", "footbridge", "spillway")


async def test_a_delivery_of_each_host_makes_a_commit_searchable(
    redis_url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit before the start is found without a delivery.

    Deliveries that are forged, repeated, old, too large or of other events have no effect.
    """
    origin = create_repository(tmp_path / "origin", {"first.md": "The weir is low."})
    origin.commit()
    hooks = {"docs": {"secret": SECRET, "repository": str(origin.path), "project": "docs"}}
    async with (
        headrace(redis_url, database) as running,
        gateway(redis_url, database, home=tmp_path, gateway={"hooks": hooks}) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=60) as client,
    ):

        async def deliver(headers: Headers, body: bytes = BODY, name: str = "docs") -> int:
            response = await client.post(f"/hooks/{name}", headers=headers, content=body)
            return response.status_code

        async def until_searchable(name: str, word: str) -> None:
            async def is_searchable() -> bool:
                return await uris(running.client, "docs", word) == [name]

            await eventually(is_searchable, f"{name} is searchable")

        async def is_ignored(headers: Headers) -> bool:
            return await deliver(headers) == 200

        await until_searchable("first.md", "weir")
        for number, (host, word) in enumerate(zip(HOSTS, WORDS, strict=True)):
            name = f"{host.__name__}.md"
            origin.commit({name: f"The {word} is open."})
            assert await deliver(host(f"id-{number}")) == 202, host
            await until_searchable(name, word)
        for number, host in enumerate(HOSTS):
            remembered = partial(is_ignored, host(f"id-{number}"))
            await eventually(remembered, "its sync has ended", every=0.5)
        asked: list[str] = []

        def ask(_: HookSyncs, name: str, *__: Any) -> None:
            asked.append(name)

        monkeypatch.setattr(HookSyncs, "ask", ask)
        other = "whsec_" + base64.b64encode(b"another secret of a host").decode()
        for host in HOSTS:
            assert await deliver(host("forged", key=other)) == 401, host
        assert await deliver(github("x", b"signed"), b"changed") == 401
        assert await deliver(gitlab("x") | {"webhook-id": "y"}) == 401
        assert await deliver(gitlab("x", age=400)) == 401
        assert await deliver(gitlab("x", age=-400)) == 401
        assert await deliver(gitlab("x") | {"webhook-timestamp": "now"}) == 401
        assert await deliver(forgejo("x") | {"X-Forgejo-Signature": "0" * 64}) == 401
        assert await deliver({"X-GitHub-Event": "push"}) == 401
        assert await deliver(github("x"), name="other") == 401
        assert await deliver(github("x") | {"X-GitHub-Event": "ping"}) == 200
        assert await deliver(github("x"), b" " * (HOOK_BYTES + 1)) == 413
        assert asked == []
        assert [await deliver(github("x")) for _ in range(2)] == [202, 202], "no sync has ended"
        assert asked == ["docs", "docs"]
        while await deliver(github("forged", key=other)) != 429:
            pass  # a stranger at the same address
        assert await deliver(github("y")) == 202


async def test_a_delivery_that_failed_may_be_repeated(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """It is accepted again after a failed fetch; a damaged mirror is made again."""
    path = tmp_path / "origin"
    hooks = {"docs": {"secret": SECRET, "repository": str(path), "collections": ["a"]}}
    async with (
        headrace(redis_url, database) as running,
        gateway(redis_url, database, home=tmp_path, gateway={"hooks": hooks}) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=60) as client,
    ):

        async def is_accepted() -> bool:
            response = await client.post("/hooks/docs", headers=github("same"), content=BODY)
            return response.status_code == 202

        assert await is_accepted()
        create_repository(path, {"first.md": "The weir is low."}).commit()
        mirror = tmp_path / "mirrors" / "docs.git"
        mirror.mkdir(parents=True, exist_ok=True)
        (mirror / "HEAD").write_text("damaged")

        async def is_searchable() -> bool:
            await is_accepted()
            return await uris(running.client, "default", "weir") == ["first.md"]

        await eventually(is_searchable, "the document is searchable", every=0.2)
