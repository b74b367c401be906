from __future__ import annotations

import pytest
from yarl import URL

from runtime.errors import UsageError
from sources.web.addresses import LONGEST_ADDRESS, Scope, is_asset, is_at, is_public, to_address

PRIVATE = """
    127.0.0.1 127.8.8.8 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254
    100.64.0.1 100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 224.0.0.1 240.0.0.1
    255.255.255.255 168.63.129.16 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254
    64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2002:a00:1:: 2001:0:7f00:1:: 2001:db8::1
    fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 100::1 docs"""
PUBLIC = "8.8.8.8 93.184.216.34 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808"
BASE = URL("https://docs.example.org/guide/start.html")


def test_each_page_has_one_address() -> None:
    """Case, default ports, fragments, dots, double slashes and tracking do not count."""
    for link, expected in {
        "HTTPS://Docs.Example.ORG:443/guide//a/../b.html#part": "/guide/b.html",
        "https://docs.example.org./guide/b.html": "/guide/b.html",
        "b.html?utm_source=x&z=1&a=2&gclid=7": "/guide/b.html?a=2&z=1",
        " /guide/\nb c.html ": "/guide/b%20c.html",
        "?": "/guide/start.html",
        "//docs.example.org": "/",
        "/über?q=ü": "/%C3%BCber?q=%C3%BC",
        "/{path}": "/%7Bpath%7D",
    }.items():
        assert str(to_address(link, BASE)) == f"https://docs.example.org{expected}", link
        again = to_address(str(to_address(link, BASE)))
        assert again == to_address(link, BASE), link


def test_a_link_to_something_else_has_no_address() -> None:
    """Other schemes, user names, and addresses without host or end are not taken."""
    for link in [
        "mailto:ana@example.org",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://docs.example.org/",
        "data:text/html,x",
        "https://ana@docs.example.org/",
        "https://ana:secret@docs.example.org/",
        "https://docs.example.org:99999/",
        "https://[::1/",
        "/" + "x" * LONGEST_ADDRESS,
    ]:
        assert to_address(link, BASE) is None, link


def test_a_scope_is_the_folder_of_the_first_page() -> None:
    scope = Scope.of(BASE, None, ["*.xml", "/guide/old/"])
    inside = {"/guide/": True, "/guide/a/b": True, "/guide": False, "/other/": False}
    for path, expected in inside.items():
        assert scope.contains(URL(f"https://docs.example.org{path}")) is expected, path
    assert not scope.contains(URL("https://docs.example.org:8443/guide/"))
    assert not scope.contains(URL("https://example.org/guide/"))
    assert scope.contains(scope.folded(URL("http://docs.example.org/guide/a")))
    assert scope.spec().match_file("guide/old/a.html")
    assert Scope.of(BASE, "/", []).contains(URL("https://docs.example.org/other"))
    for prefix in ("https://example.org/guide/", "ftp://docs.example.org/"):
        with pytest.raises(UsageError, match=r"is not on docs\.example\.org"):
            Scope.of(BASE, prefix, [])


def test_a_host_is_the_same_with_both_schemes_at_their_ports() -> None:
    """So `--allow-private http://wiki/` follows a redirect to https, but not to another port."""
    origin = URL("http://wiki.internal")
    assert is_at(URL("http://wiki.internal/a"), origin)
    assert is_at(URL("https://wiki.internal/a"), origin)
    assert is_at(URL("http://wiki.internal:8080/a"), URL("http://wiki.internal:8080"))
    for url in (
        "http://wiki.internal:6379/",
        "https://wiki.internal:80/",
        "https://other.internal/",
        "https://wiki.internal.example.org/",
    ):
        assert not is_at(URL(url), origin), url
    assert not is_at(URL("https://wiki.internal/"), URL("http://wiki.internal:8080"))


def test_assets_are_recognized_by_their_names() -> None:
    assert is_asset(URL("https://docs.example.org/logo.PNG?x=1"))
    assert not is_asset(URL("https://docs.example.org/guide.pdf"))
    assert not is_asset(URL("https://docs.example.org/v1.2/"))


def test_only_addresses_of_the_public_internet_are_public() -> None:
    """Addresses count by the one that is reached in the end, also if it is carried inside."""
    for address in PRIVATE.split():
        assert not is_public(address), address
    for address in PUBLIC.split():
        assert is_public(address), address
