"""Masking of secrets wherever they appear."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import structlog
from pydantic import SecretStr

from gateway.failures import one_line
from processors.embedders.registry import ModelOptions
from processors.embedders.remote.provider import Endpoint, _first_line
from runtime import secrets
from runtime.errors import Unavailable
from runtime.logs import configure_logs
from runtime.secrets import keep_secret, masked
from runtime.settings import Settings

PLANTED = 'pl4nted "s3cret"/ü+=='


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Isolate secrets and logging of each test."""
    monkeypatch.setattr(secrets, "_secrets", set())
    monkeypatch.setattr(secrets, "_pattern", None)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def spellings() -> list[str]:
    return [
        PLANTED,
        quote(PLANTED, safe=""),
        json.dumps(PLANTED)[1:-1],
        json.dumps(PLANTED, ensure_ascii=False)[1:-1],
        repr(PLANTED)[1:-1],
        repr(PLANTED.encode())[2:-1],
    ]


@pytest.mark.parametrize(
    "value",
    [
        SecretStr(PLANTED),
        SecretStr(f"k1:{PLANTED}"),
        f"redis://user:{quote(PLANTED, safe='')}@localhost:1/0",
        f"redis://:{PLANTED}@localhost:1/0",
        f"postgresql://host/db?user=me&password={quote(PLANTED, safe='')}",
        f"s3://key:{quote(PLANTED, safe='')}@bucket/path",
    ],
)
def test_a_secret_is_known_however_it_is_set(value: object) -> None:
    """A secret is masked in every spelling, however it was set."""
    keep_secret([value])
    for spelling in spellings():
        assert masked(f"before {spelling} after") == "before *** after"


def test_variables_with_revealing_names_are_secrets_too() -> None:
    """Values of variables with secret names are masked, because model libraries read them."""
    limits = {"MODEL_TOKENS_PER_MINUTE": "100000", "MAX_CONTEXT_TOKENS": "200000"}
    keep_secret([], limits | {"VOYAGE_API_KEY": "pa-123456", "HOME": "/home/somebody"})
    assert masked("pa-123456 at /home/somebody") == "*** at /home/somebody"
    assert masked("live:0:1763200000000-0") == "live:0:1763200000000-0"


def test_what_could_be_any_text_is_masked_in_urls_only() -> None:
    """A short or common password is masked in URLs only."""
    keep_secret(["redis://:headrace@localhost:1/0", "postgresql://me:abc@localhost/db"])
    assert masked("headrace:{document.0} abc") == "headrace:{document.0} abc"
    assert masked("redis://:headrace@localhost:1/0") == "redis://:***@localhost:1/0"
    assert masked("https://model.test/v1?key=abc&n=1") == "https://model.test/v1?key=***&n=1"


def test_errors_mask_what_they_quote() -> None:
    """Errors mask secrets in their text."""
    keep_secret([SecretStr(PLANTED)])
    assert str(Unavailable(f"server said {PLANTED}")) == "server said ***"
    assert PLANTED not in one_line(ValueError(f"no number: {PLANTED}"))


@pytest.mark.parametrize("form", ["console", "json"])
def test_logs_hold_no_secret_at_any_depth(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs mask secrets in values, messages and tracebacks, and omit local variables."""
    keep_secret([SecretStr(PLANTED)])
    configure_logs("json" if form == "json" else "console", "debug")
    log = structlog.get_logger("here")
    log.info("x", nested={"url": [PLANTED]}, raw=PLANTED.encode())
    logging.getLogger("elsewhere").warning("they said %s", PLANTED)
    local = "only-in-a-variable"  # like a secret that is not declared
    try:
        int(f"bad: {PLANTED}")
    except ValueError:
        log.exception("crashed")
        logging.getLogger("elsewhere").exception("crashed")
    said = capsys.readouterr().err
    assert "crashed" in said
    assert [one for one in [*spellings(), f"'{local}'"] if one in said] == []


def test_nothing_that_holds_a_secret_shows_it() -> None:
    """The ``repr`` of settings and options shows no secret."""
    settings = Settings(
        redis_url="redis://:hunter22@localhost/0",
        database_url="postgresql://me:hunter22@localhost/db",
        model_api_key=SecretStr("hunter22"),
        signing_key=SecretStr("k1:hunter22-and-some-more"),
    )
    endpoint, options = Endpoint("m", "hunter22"), ModelOptions(api_key="hunter22")
    shown = f"{settings!r} {settings} {endpoint} {options}"
    assert "hunter22" not in shown
    assert "redis://:***@localhost/0" in shown


def test_a_models_error_shows_nothing_of_our_objects() -> None:
    """The first line of a library's error omits objects with memory addresses."""
    error = OSError("Cannot connect to host m.test:443 ssl:<ssl.SSLContext object at 0x7f2a> [no]")
    assert _first_line(error) == "Cannot connect to host m.test:443 [no]"
