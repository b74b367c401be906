"""Values and texts that break naive code."""

from __future__ import annotations

from random import Random
from typing import Any

__all__ = ["CONTROLS", "INJECTIONS", "MARKUP", "VALUES", "hostile_text"]

MARKUP = (
    "<script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    '"><svg onload="document.title = \'owned\'">',
    "</code></pre><script>document.title = 'owned'</script>",
    "<a href=\"javascript:document.title = 'owned'\">x</a>",
    "{{ 7 * 7 }}{% raw %}",
    "<div hx-get='/logout' hx-trigger='load' hx-on::load='document.title=1'>",
    "<base href='http://evil.example/'>",
    "<meta http-equiv='refresh' content='0;url=http://evil.example/'>",
)

CONTROLS = (
    "\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31m",
    "\r overwritten",
    "line one\nheadrace: line two",
    "\x08\x08\x08",
    "\u202egnp.exe",
    "\u2066hidden\u2069",
    "\u2028next",
    "\x7f\x85",
)

INJECTIONS = (
    "' OR '1'='1",
    "'; DROP TABLE documents; --",
    '" OR ""="',
    "$1",
    "$$; select 1; $$",
    "E'\\x41'",
    "\\",
    "\\'; select pg_sleep(10); --",
    "1; select set_config('app.project_id', '1', false)",
    "%",
    "_",
    "%_\\%",
    "{0.__class__}",
    "{generation_id}",
    "{}{conditions}{",
    "%s%n%x",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "[red]markup[/red]",
    "[/]",
    "[link=http://evil.example]x[/link]",
    "<script>alert(1)</script>",
    ".*",
    "(a+)+$",
    "[",
    "*",
    "?",
    "../../etc/passwd",
    "..\\..\\windows",
    "file:///etc/passwd",
    "{commit}{path}{start}{end}",
    "app.agent",
    "* ",
    "NULL",
    "null",
    "NaN",
    "\N{FULLWIDTH APOSTROPHE} OR 1=1",
    "a\u0301\u0301\u0301",
    "\U0001f600" * 20,
    "\u0130\u0131\u1e9e",
    *CONTROLS,
)

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1e308,
    10**30,
    10**400,
    2**63,
    "",
    " ",
    "\x00",
    "\ud800",
    "x" * 129,
    "x" * 5000,
    "é" * 2000,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-13-45",
    "live:0:1-1",
    "bulk:999:999999999999999-9999999999",
    "live:0:99999999999999999999-0",
    "headrace:{query.0}:requested",
    "headrace:{document.0}:changed.live",
    "headrace:{query.0}:replies:",
    "headrace:{query.0}:replies:other\n",
    "upsert",
    "delete",
    "rename",
    "pdf",
    "code",
    [],
    {},
    [None],
    ["common"] * 40,
    {"a": {"b": {"c": []}}},
    {"k" * 200: 1},
    {f"k{number}": number for number in range(70)},
    {"sha256": "0" * 64, "size_bytes": 1},
    {"sha256": "0" * 64, "size_bytes": 2**40},
    *INJECTIONS,
)


def hostile_text(random: Random, longest: int) -> str:
    """Random text with lone surrogates and NUL, or an injection."""
    if random.random() < 0.5:
        return random.choice(INJECTIONS)[:longest]
    highest = random.choice([0x20, 0x7F, 0xFFFF, 0x10FFFF])
    return "".join(chr(random.randint(0, highest)) for _ in range(random.randrange(longest)))
