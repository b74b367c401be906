"""Addresses of web pages: one form for each page, and those that a crawl may request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import PurePosixPath

from pathspec import GitIgnoreSpec
from yarl import URL

from runtime.errors import UsageError

__all__ = ["LONGEST_ADDRESS", "Scope", "is_asset", "is_at", "is_public", "origin_of", "to_address"]

LONGEST_ADDRESS = 1_900
"""Most characters of an address: a uri and a template of links have room for 2,048."""

_SCHEMES = ("http", "https")
_TRACKING = ("utm_", "mc_", "pk_", "hsa_")
_TRACKING_NAMES = frozenset({"gclid", "fbclid", "msclkid", "dclid", "yclid", "igshid", "_ga"})
_PUBLIC_V6 = IPv6Network("2000::/3")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_RESERVED = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
"""Addresses of metadata servers among others, which not every release of Python knows."""

_ASSET_SUFFIXES = """
    .avif .bmp .gif .ico .jpeg .jpg .png .svg .tif .tiff .webp .css .map .wasm .eot .otf .ttf
    .woff .woff2 .aac .avi .flac .m4a .m4v .mkv .mov .mp3 .mp4 .ogg .ogv .wav .webm .7z .apk
    .bz2 .deb .dmg .exe .gz .img .inv .iso .jar .msi .pkg .rar .rpm .tar .tgz .whl .xz .zip .zst"""
_ASSETS = frozenset(_ASSET_SUFFIXES.split())


def to_address(link: str, base: URL | None = None) -> URL | None:
    """Bring a link into the one form of its address; returns None if it is not one of the web.

    The host is lower case, without a final dot and the port of its scheme. Fragments, tracking
    parameters and double slashes are removed, and the query is sorted. An address with a user name,
    or with more than 1,900 characters, is not taken.
    """
    try:
        url = URL("".join(link.split("\n")).strip())
        url = url if base is None else base.join(url)
        host = (url.raw_host or "").rstrip(".")
        if url.scheme not in _SCHEMES or not host or url.user is not None or url.password:
            return None
        url = URL.build(
            scheme=url.scheme,
            host=f"[{host}]" if ":" in host else host,
            port=None if url.is_default_port() else url.port,
            path=_path(url.raw_path),
            query_string=_query(url.raw_query_string),
            encoded=True,
        )
    except ValueError:
        return None
    return url if len(str(url)) <= LONGEST_ADDRESS else None


def origin_of(url: URL) -> str:
    """Scheme, host and port of an address, such as ``https://docs.example.org``."""
    return str(url.origin())


def is_at(url: URL, origin: URL) -> bool:
    """True if an address has an origin, or is at its host with the other scheme.

    The ports have to be those of the schemes then: another port is another server.
    """
    if url.origin() == origin:
        return True
    return url.host == origin.host and url.is_default_port() and origin.is_default_port()


def is_asset(url: URL) -> bool:
    """True if an address is that of an image, a font or an archive by its name.

    Names of scripts do not count, because pages have them too: ``/guide/chart.js``.
    """
    return PurePosixPath(url.path).suffix.lower() in _ASSETS


def is_public(address: str) -> bool:
    """True if an IP address belongs to the public internet, also the one that it carries inside.

    Private, loopback, link-local and reserved addresses are not public, and neither are those of
    metadata servers.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = _inner(ip)
        if inner is None:
            return ip in _PUBLIC_V6 and ip.is_global and not ip.is_multicast
        ip = inner
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _RESERVED)


@dataclass(frozen=True)
class Scope:
    """Part of a site: the pages of an origin whose path begins with a prefix.

    Attributes:
        origin: scheme, host and port.
        prefix: begin of the path, such as ``/guide/``.
        exclude: patterns of paths that are left out, in the format of ``.gitignore``.
    """

    origin: str
    prefix: str
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, start: URL, prefix: str | None, exclude: Sequence[str]) -> Scope:
        """Scope of a crawl that begins at ``start``; by default, the folder of ``start``.

        Raises:
            UsageError: the prefix is not on the site of ``start``, or a pattern is invalid.
        """
        if prefix is None:
            path = start.raw_path.rpartition("/")[0] + "/"
        else:
            url = to_address(prefix, start)
            if url is None or url.origin() != start.origin():
                raise UsageError(
                    f"the scope {prefix!r:.200} is not on {start.host}",
                    "name the beginning of a path, such as /guide/",
                )
            path = url.raw_path
        scope = cls(origin_of(start), path, tuple(exclude))
        try:
            scope.spec()
        except ValueError as error:
            raise UsageError(f"--exclude is not a pattern: {error}") from None
        return scope

    def spec(self) -> GitIgnoreSpec:
        """Patterns in the form in which they match."""
        return GitIgnoreSpec.from_lines(self.exclude)

    def folded(self, url: URL) -> URL:
        """Give an address of the same host the scheme of the scope."""
        origin = URL(self.origin)
        return url.with_scheme(origin.scheme) if is_at(url, origin) else url

    def contains(self, url: URL) -> bool:
        """True if an address is within the scope, whether or not a pattern excludes it."""
        return origin_of(url) == self.origin and url.raw_path.startswith(self.prefix)


def _inner(ip: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which packets for this address are sent; None without one."""
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    return IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _TRANSLATED else None


def _path(path: str) -> str:
    while "//" in path:
        path = path.replace("//", "/")
    return path or "/"


def _query(query: str) -> str:
    pairs = [pair for pair in query.split("&") if pair and not _is_tracking(pair)]
    return "&".join(sorted(pairs))


def _is_tracking(pair: str) -> bool:
    name = pair.partition("=")[0].lower()
    return name.startswith(_TRACKING) or name in _TRACKING_NAMES
