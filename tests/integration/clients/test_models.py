"""The client's models and errors are those that the gateway describes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from events import models as server_models
from gateway.http.problems import HTTP_CODES, STATUS, status_of
from headrace_client import errors, models
from headrace_client.errors import HeadraceError, ServerDefect, error_of_problem
from runtime import errors as server_errors
from tests.support.gateways import Gateway

RESPONSES: dict[str, type[BaseModel]] = {
    "Answers": models.AnswerList,
    "Batch": models.SourceBatch,
    "BatchBody": models.BatchReport,
    "BatchProgress": models.BatchProgress,
    "ChangePage": models.ChangePage,
    "ChangeRow": models.Change,
    "ChunkPage": models.ChunkPage,
    "ChunkRow": models.Chunk,
    "Citation": models.Citation,
    "PageBox": models.PageBox,
    "CollectionRow": models.Collection,
    "Collections": models.CollectionList,
    "DocumentPage": models.DocumentPage,
    "ExactCounts": models.ExactCounts,
    "JudgementReceipt": models.JudgementReceipt,
    "DocumentRow": models.Document,
    "OtherMatch": models.OtherMatch,
    "ProjectRow": models.ProjectSummary,
    "Projects": models.ProjectList,
    "QueryAnswer": models.QueryAnswer,
    "ReceiptBody": models.Receipt,
    "Receipts": models.ReceiptList,
    "Recipe": models.Recipe,
    "RejectedChange": models.RejectedChange,
    "RetrieverScore": models.RetrieverScore,
    "Scores": models.Scores,
    "SearchResult": models.SearchResult,
    "SkippedFiles": models.SkippedFiles,
    "SourceRow": models.Source,
    "SourcesBody": models.SourceList,
    "SourceLines": models.SourceLines,
    "Span": models.Span,
    "TermMatch": models.TermMatch,
    "WaitingChange": models.ChangeState,
}
REQUESTS: dict[str, type[BaseModel]] = {
    "Filters": models.Filters,
    "Judgement": models.Judgement,
    "Like": models.Like,
    "Move": models.Move,
    "Question": models.Question,
    "Questions": models.QuestionList,
    "Weights": models.Weights,
    "Where": models.Where,
}
OTHERS = {
    # requests of routes that the client does not call, and the errors of the framework
    *("DeleteResponse", "IndexRequest", "IndexResponse", "Problem"),
    *("RetrieveFilters", "RetrieveRequest", "RetrieveResponse", "RetrievedChunk"),
    *("SourceBody", "SourcesResponse"),
    # the client takes any kind, because a newer gateway may have more of them
    "Kind",
    "Lane",
}

OUTCOMES: dict[type[BaseModel], type[BaseModel]] = {
    models.DocumentEmbedded: server_models.DocumentEmbeddedData,
    models.DocumentIndexed: server_models.DocumentIndexedData,
    models.DocumentRejected: server_models.DocumentRejectedData,
    models.OutcomeProblem: server_models.Problem,
}

OWN_ERRORS = {name for name in errors.__all__ if name[0].isupper()} - {
    "HeadraceError",
    "ServerDefect",
}


@pytest.fixture
async def schemas(served: Gateway) -> dict[str, dict[str, Any]]:
    """The schemas of the gateway's OpenAPI document."""
    async with served.client() as client:
        document = (await client.get(f"{served.url}/openapi.json")).json()
    described: dict[str, dict[str, Any]] = document["components"]["schemas"]
    return described


async def test_the_models_have_the_fields_that_the_gateway_describes(
    schemas: dict[str, dict[str, Any]],
) -> None:
    assert set(schemas) == {*RESPONSES, *REQUESTS, *OTHERS}
    for name, model in (RESPONSES | REQUESTS).items():
        described = fields_of(schemas[name], schemas)
        own_schema = model.model_json_schema(mode="serialization")
        own = fields_of(own_schema, own_schema.get("$defs", {}))
        assert own == described, name


async def test_an_absent_field_of_a_response_has_a_default(
    schemas: dict[str, dict[str, Any]],
) -> None:
    """The gateway leaves out some fields that are null."""
    for name, model in RESPONSES.items():
        certain = {
            field
            for field in schemas[name].get("required", ())
            if not is_nullable(schemas[name]["properties"][field])
        }
        needed = {field for field, info in model.model_fields.items() if info.is_required()}
        assert needed <= certain, name


@pytest.mark.parametrize("model", OUTCOMES, ids=lambda model: model.__name__)
def test_outcomes_have_the_fields_of_their_events(model: type[BaseModel]) -> None:
    """The OpenAPI document does not describe events of a stream."""
    own, sent = (
        described.model_json_schema(mode="serialization") for described in (model, OUTCOMES[model])
    )
    assert fields_of(own, own.get("$defs", {})) == fields_of(sent, sent.get("$defs", {}))
    needed = {field for field, info in model.model_fields.items() if info.is_required()}
    fields = OUTCOMES[model].model_fields.items()
    assert needed <= {field for field, info in fields if info.is_required()}


@pytest.mark.parametrize(
    "model", [*RESPONSES.values(), *OUTCOMES], ids=lambda model: model.__name__
)
def test_a_response_keeps_unknown_fields(model: type[BaseModel]) -> None:
    """A newer gateway may send more; nothing of it is changed."""
    assert model.model_config["extra"] == "allow"
    assert model.model_config["frozen"]


def fields_of(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {name: shape_of(field, schemas) for name, field in schema.get("properties", {}).items()}


def is_nullable(schema: dict[str, Any]) -> bool:
    return any(option.get("type") == "null" for option in schema.get("anyOf", ()))


def shape_of(schema: dict[str, Any] | bool, schemas: dict[str, Any]) -> object:
    """A schema without names, limits and the values of enumerations.

    A schema within itself is its name.
    """
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = schemas.get(name)
        return name if inner is None else shape_of(inner, schemas | {name: None})
    if options := schema.get("anyOf"):
        return tuple(sorted({repr(shape_of(option, schemas)) for option in options}))
    if schema.get("type") == "array":
        return [shape_of(schema.get("items", {}), schemas)]
    if schema.get("type") == "object":
        if "properties" in schema:
            return fields_of(schema, schemas)
        return {"*": shape_of(schema.get("additionalProperties", {}), schemas)}
    return schema["type"], schema.get("format") if schema.get("format") == "date-time" else None


@pytest.mark.parametrize(
    "code", [error.__name__ for error in STATUS] + [code for code, _ in HTTP_CODES.values()]
)
def test_every_problem_of_the_gateway_has_an_error(code: str) -> None:
    """An error of the same name, or of its status; a defect is one only with the status 500."""
    by_code = {name: status for status, (name, _) in HTTP_CODES.items()}
    status = by_code.get(code) or status_of(code)
    error = raised(status, {"code": code, "detail": "It happened"})
    assert isinstance(error, ServerDefect) == (status == 500)
    assert error.code == code
    assert str(error) == "It happened"
    if code in OWN_ERRORS:
        assert type(error).__name__ == code


def test_the_errors_of_the_client_are_those_of_the_gateway() -> None:
    assert set(server_errors.__all__) >= OWN_ERRORS


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, errors.NotFound),
        (418, errors.UsageError),
        (302, ServerDefect),
        (500, ServerDefect),
        (502, errors.Unavailable),
    ],
)
def test_a_response_without_a_problem_is_judged_by_its_status(
    status: int, error: type[HeadraceError]
) -> None:
    assert type(raised(status, {})) is error


def raised(status: int, problem: dict[str, Any]) -> HeadraceError:
    return error_of_problem(status, problem, request_id="id", retry_after=None)
