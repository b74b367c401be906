"""Questions of callers: their fields are those of a query."""

from __future__ import annotations

from events.models import Query, QueryFields
from gateway.knowledge import Question


def test_a_question_has_the_fields_of_a_query_and_its_own_deadline() -> None:
    decided_by_the_gateway = {"project", "agent", "deadline", "reply_to"}
    assert set(Query.model_fields) - decided_by_the_gateway == set(QueryFields.model_fields)
    assert set(Question.model_fields) - {"timeout_ms"} == set(QueryFields.model_fields)
