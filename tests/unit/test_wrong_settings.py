"""What a person is told of a setting that can't be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from gateway.session import wrong_setting
from runtime.settings import Settings


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("MODEL_FAILURES", "0", "HEADRACE_MODEL_FAILURES: Input should be greater than 0"),
        ("MODEL_REQUESTS_PER_MINUTE", "0", "HEADRACE_MODEL_REQUESTS_PER_MINUTE: Input"),
        ("MODEL_TOKENS_PER_MINUTE", '{"voyage": 0}', "HEADRACE_MODEL_TOKENS_PER_MINUTE (voyage):"),
        ("MODEL_TOKENS_PER_MINUTE", "many", 'must be JSON, as in {"voyage": 300}, or a number'),
        ("MODELS", "code", 'HEADRACE_MODELS must be JSON, as in {"code":'),
    ],
)
def test_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    """And what it holds is not repeated."""
    monkeypatch.setenv(f"HEADRACE_{variable}", value)
    with pytest.raises((ValidationError, SettingsError)) as refused:
        Settings()
    assert isinstance(refused.value, ValidationError | SettingsError)
    assert told in wrong_setting(refused.value)


def test_a_number_is_the_limit_of_every_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most deployments have one."""
    monkeypatch.setenv("HEADRACE_MODEL_REQUESTS_PER_MINUTE", "300")
    assert Settings().model_requests_per_minute == {"": 300}
