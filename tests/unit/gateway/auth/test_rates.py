"""Headers of rate limits, and the addresses that share a limit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.auth.rates import Allowance, _origin, rate_headers


def test_headers_name_each_limit_and_its_rest() -> None:
    """The headers are lists of structured fields; times are rounded up to seconds."""
    requests = Allowance("requests", 600, 599, timedelta(milliseconds=100))
    published = Allowance("bytes", 1_000, 0, timedelta(seconds=60))
    assert rate_headers(requests, published) == {
        "RateLimit-Policy": '"requests";q=600;w=60, "bytes";q=1000;w=60',
        "RateLimit": '"requests";r=599;t=1, "bytes";r=0;t=60',
    }


def test_a_key_without_a_limit_has_no_headers() -> None:
    assert rate_headers(Allowance("requests", 0), Allowance("bytes", 0)) == {}


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:0DB8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not an address}", "unknown"),
        ("", "unknown"),
    ],
)
def test_addresses_of_one_machine_share_a_limit(address: str, origin: str) -> None:
    """Addresses of one IPv6 network count as one; a text that is no address can't name a key."""
    assert _origin(address) == origin
