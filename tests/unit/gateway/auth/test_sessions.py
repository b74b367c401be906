"""Forms of a session."""

from __future__ import annotations

import pytest

from gateway.auth.callers import Caller, Right
from gateway.auth.sessions import Session
from runtime.errors import Forbidden

CALLER = Caller("abcd1234", "alpha", None, frozenset({Right.ASK}))


def test_a_form_belongs_to_one_session() -> None:
    """The token differs by session, reveals no cookie, and no other token is accepted."""
    session, other = (Session(CALLER, f"hrs_{letter * 43}") for letter in "ab")
    session.check_form(session.csrf_token)
    assert session.cookie not in session.csrf_token
    assert session.cookie not in repr(session)
    for wrong in (other.csrf_token, "", session.cookie, session.csrf_token[:-1], "ü", "\udc80"):
        with pytest.raises(Forbidden, match="does not belong to this session"):
            session.check_form(wrong)
