"""Rights and projects of callers."""

from __future__ import annotations

import pytest

from gateway.auth.callers import Caller, Right
from runtime.errors import Forbidden, UnknownProject
from store.generations.catalog import unknown_project

READER = Caller("abcd1234", "alpha", None, frozenset({Right.ASK, Right.READ}))
OPERATOR = Caller("operator", None, None, frozenset(Right))


@pytest.mark.parametrize("right", Right)
def test_a_caller_has_the_rights_of_its_key_only(right: Right) -> None:
    OPERATOR.require(right)
    if right in {Right.ASK, Right.READ}:
        READER.require(right)
        return
    with pytest.raises(Forbidden, match=f"abcd1234 does not have the right '{right}'") as refused:
        READER.require(right)
    # the right to operate is never one of a key of a project
    assert ("--operator" in refused.value.remedy) == (right is Right.OPERATE)


def test_another_project_looks_like_one_that_does_not_exist() -> None:
    """The error for a foreign project equals that for a missing one."""
    assert READER.scope("alpha") == "alpha"
    assert OPERATOR.scope("beta") == "beta"
    with pytest.raises(UnknownProject) as refused:
        READER.scope("beta")
    assert str(refused.value) == str(unknown_project("beta"))
