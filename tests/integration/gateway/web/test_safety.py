"""Sessions, forms of other sites, headers, and stored texts that try to run a script."""

from __future__ import annotations

import re

import httpx2
import pytest
from playwright.sync_api import expect

from gateway.web.pages import CONTENT_SECURITY_POLICY
from tests.support.browser import Opened
from tests.support.hostile_documents import hostile_documents
from tests.support.hostile_values import CONTROLS, INJECTIONS, MARKUP
from tests.support.site import API_KEY, FORM_VALUE, Contents, served


def test_stored_texts_run_no_script(opened: Opened) -> None:
    hostile = [*MARKUP, *CONTROLS, *INJECTIONS]
    texts = {f"{text[:150]} {number}.md": f"{text}\n" for number, text in enumerate(hostile)}
    contents = Contents(texts=texts)
    with opened(contents) as page:
        page.goto("/ask?q=text")
        expect(page.locator("article")).to_have_count(len(texts))
        for uri, text in zip(texts, MARKUP, strict=False):
            contents.texts = {uri: texts[uri]}
            page.goto("/ask")
            page.locator("#q").fill(text)
            page.locator("#q").press("Enter")
            expect(page.locator("article")).to_have_count(1)
        contents.texts = texts
        page.goto("/documents")
        names = page.locator("a.open").all_inner_texts()
        assert len(names) == min(50, len(texts))
        for number, (uri, text) in enumerate(texts.items()):
            if number < len(MARKUP):
                page.goto("/document")
                page.goto(str(httpx2.URL("/document", params={"uri": uri})))
                assert page.locator("#L1 code").inner_text() == text.rstrip("\n")
        assert page.locator("main script, main img, main svg[onload], base").count() == 0
        assert page.title() != "owned"


def test_hostile_documents_are_shown_as_text(opened: Opened) -> None:
    texts = {}
    for document in hostile_documents():
        text = document.raw[:4_000].decode(errors="replace").replace("\x00", "")
        texts[document.name] = f"{text}\n"
    with opened(Contents(texts=dict([*texts.items()][::5]))) as page:
        response = page.goto("/ask?q=x")
        assert response is not None
        assert response.status == 200
        expect(page.locator("article")).to_have_count(len(texts.keys() & {*[*texts][::5]}))
        for uri in [*texts][::25]:
            response = page.goto(str(httpx2.URL("/document", params={"uri": uri})))
            assert response is not None
            assert response.status == 200
            expect(page.locator(".row").first).to_be_visible()


@pytest.fixture
def client() -> httpx2.Client:
    return httpx2.Client(follow_redirects=False, timeout=60)


def test_without_a_session_every_page_leads_to_the_login(client: httpx2.Client) -> None:
    with served(Contents.full()) as address, client:
        for path in ("/ask", "/documents", "/document?uri=x", "/streams", "/dead-letters"):
            response = client.get(f"{address}{path}")
            assert (response.status_code, response.headers["location"]) == (303, "/login")
        response = client.get(f"{address}/ask", headers={"HX-Request": "true"})
        assert (response.status_code, response.headers["hx-redirect"]) == (401, "/login")


def test_a_text_that_postgres_cannot_hold_is_refused(opened: Opened) -> None:
    with opened(Contents.full(), allowed="422") as page:
        for path in ("/document?uri=a%00", "/documents?prefix=%00", "/batch?id=%00"):
            response = page.goto(path)
            assert response is not None
            assert response.status == 422
            expect(page.get_by_role("alert")).to_contain_text("must not contain NUL")


def test_headers_of_pages_and_files(client: httpx2.Client) -> None:
    with served(Contents.full()) as address, client:
        for path in ("/login", "/static/page.css", "/static/vendor/htmx.min.js", "/favicon.ico"):
            headers = client.get(f"{address}{path}").headers
            assert headers.get_list("content-security-policy") == [CONTENT_SECURITY_POLICY]
            assert headers["x-content-type-options"] == "nosniff"
        assert client.get(f"{address}/login").headers["cache-control"] == "no-store"
        for path in (
            "/static/../pages.py",
            "/static/vendor/vendor.toml",
            "/static/%2e%2e/pages.py",
        ):
            assert client.get(f"{address}{path}").status_code == 404


def test_long_pages_are_compressed_for_those_who_accept_it(client: httpx2.Client) -> None:
    with served(Contents.full()) as address, client:
        cookie = _cookie(client, address)
        replies = [
            client.get(
                f"{address}/documents", headers={"Cookie": cookie, "Accept-Encoding": coding}
            )
            for coding in ("gzip, br", "gzip, br;q=0", "identity")
        ]
        files = [
            client.get(f"{address}/static/page.css", headers={"Accept-Encoding": coding})
            for coding in ("br", "gzip", "identity")
        ]
    for responses in (replies, files):
        assert [response.headers.get("content-encoding") for response in responses] == [
            "br",
            "gzip",
            None,
        ]
        assert len({response.text for response in responses}) == 1
        sizes = [response.num_bytes_downloaded for response in responses]
        assert sizes[0] < sizes[1] < sizes[2] / 2


def test_the_cookie_is_for_this_host_and_not_for_scripts(client: httpx2.Client) -> None:
    with served(Contents.full()) as address, client:
        response = client.post(
            f"{address}/login",
            data={"api_key": API_KEY},
            headers={"Sec-Fetch-Site": "same-origin"},
        )
        cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-headrace=")
    for attribute in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    assert "Domain" not in cookie


def test_forms_of_other_sites_are_refused(client: httpx2.Client) -> None:
    contents = Contents.full()
    with served(contents) as address, client:
        cookie = _cookie(client, address)
        form = {
            "id": contents.letters[0].id,
            "action": "drop",
            "csrf_token": FORM_VALUE,
        }
        own = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        refused = [
            ({"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}, form),
            ({"Cookie": cookie, "Sec-Fetch-Site": "same-site"}, form),
            ({"Cookie": cookie}, form),
            ({"Cookie": cookie, "Origin": "http://evil.example"}, form),
            (own, form | {"csrf_token": "of another session"}),
            (own, {name: text for name, text in form.items() if name != "csrf_token"}),
        ]
        for headers, fields in refused:
            response = client.post(f"{address}/dead-letters/apply", data=fields, headers=headers)
            assert response.status_code == 403
        assert not contents.done
        for headers in (own, {"Cookie": cookie, "Origin": address}):
            response = client.post(f"{address}/dead-letters/apply", data=form, headers=headers)
            assert response.status_code == 200


def _cookie(client: httpx2.Client, address: str) -> str:
    response = client.post(
        f"{address}/login", data={"api_key": API_KEY}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    return str(response.headers["set-cookie"]).partition(";")[0]


def test_wrong_keys_and_used_tickets(opened: Opened) -> None:
    with opened(Contents.full(), login=False) as page:
        page.goto("/login")
        page.get_by_label("API key").fill("hr_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("the API key is not valid")
        page.goto("/login?ticket=used")
        expect(page.get_by_role("alert")).to_contain_text("the link was used before")
        page.goto("/login?ticket=right")
        page.wait_for_url("**/ask")


def test_logging_out_ends_the_session(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        assert not contents.sessions
        page.goto("/ask")
        expect(page).to_have_url(re.compile("/login$"))


def test_a_form_has_a_bounded_size(client: httpx2.Client) -> None:
    with served(Contents.full()) as address, client:
        headers = {"Cookie": _cookie(client, address), "Sec-Fetch-Site": "same-origin"}
        for data, status in (({"id": "x" * 300_000}, 413), ({"id": ["1"] * 2_000}, 422)):
            response = client.post(f"{address}/dead-letters/apply", data=data, headers=headers)
            assert response.status_code == status
