from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runtime.logs import configure_logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_json_line_carries_correlation_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """Bound context appears in each log line."""
    configure_logs("json", "info")
    with structlog.contextvars.bound_contextvars(event_id="e1", project="demo"):
        structlog.get_logger("here").info("document.indexed", chunks=3)
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "document.indexed"
    assert (line["event_id"], line["project"], line["chunks"]) == ("e1", "demo", 3)
    assert (line["level"], line["logger"]) == ("info", "here")


def test_standard_library_logs_come_out_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of standard library loggers have the same form as others."""
    configure_logs("json", "info")
    with structlog.contextvars.bound_contextvars(query_id="q1"):
        logging.getLogger("faust.worker").warning("rebalanced %s", "now")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["query_id"], line["level"]) == ("rebalanced now", "q1", "warning")


def test_less_severe_lines_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The log level applies to all loggers, and noisy libraries start at warnings."""
    configure_logs("console", "info")
    structlog.get_logger("here").debug("quiet")
    logging.getLogger("elsewhere").debug("quiet")
    logging.getLogger("httpx").info("quiet")
    logging.getLogger("asyncpg.pool").warning("quiet")
    assert capsys.readouterr().err == ""


def test_no_secret_reaches_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Passwords in URLs and values with secret names are masked, also in lines of libraries."""
    configure_logs("json", "info")
    structlog.get_logger("here").info(
        "redis.opened", url="redis://:hunter2@localhost:1/0", api_key="hunter2"
    )
    logging.getLogger("elsewhere").info("connecting to postgresql://me:hunter2@localhost/db")
    logging.getLogger("elsewhere").info("connecting to redis://:with@hunter2@localhost/0")
    out = capsys.readouterr().err
    assert "hunter2" not in out
    assert "redis://:***@localhost:1/0" in out
    assert "postgresql://me:***@localhost/db" in out
