"""Extraction of OpenAPI and Swagger descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from content.extractors.openapi import extract, extractor
from content.rendition import Place, Rendition
from runtime.errors import Damaged, LimitExceeded, UnsupportedContent
from tests.support.fuzzed_bytes import assert_sound, renditions_of, variants

DATA = Path(__file__).parents[4] / "data/content/openapi"


def _extract(**parts: Any) -> Rendition:
    description = {"openapi": "3.1.0", "info": {"title": "Pets"}, **parts}
    rendition = extract(json.dumps(description).encode())
    assert_sound(rendition)
    return rendition


def _text(rendition: Rendition, name: str) -> str:
    """Return the lines of a section, without blank ones."""
    rows = [section.row for section in rendition.sections] + [len(rendition.lines)]
    index = [section.name for section in rendition.sections].index(name)
    return "\n".join(filter(None, rendition.lines[rows[index] : rows[index + 1]]))


def _operation(**value: Any) -> str:
    """Return the text of one operation, without its heading."""
    rendition = _extract(
        paths={"/pets": {"get": value}},
        components={
            "schemas": {
                "Pet": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {
                        "id": {"type": "integer", "format": "int64"},
                        "owner": {"$ref": "#/components/schemas/Owner"},
                        "name": {"type": "string", "description": "Name of it. And more."},
                    },
                },
                "Owner": {"properties": {"pets": {"items": {"$ref": "#/components/schemas/Pet"}}}},
            },
            "parameters": {
                "Limit": {"name": "limit", "in": "query", "schema": {"type": "integer"}}
            },
            "responses": {"Gone": {"description": "It is gone"}},
        },
    )
    return _text(rendition, "GET /pets").partition("\n")[2]


def test_an_operation_is_a_section_of_its_own_with_its_lines() -> None:
    raw = (DATA / "oai-v3.0-uspto.yaml").read_bytes()
    rendition = extract(raw)
    assert_sound(rendition)
    assert rendition.title == "USPTO Data Set API"
    sections = [(section.level, section.name, section.alone) for section in rendition.sections]
    assert sections == [
        (2, "info", False),
        (2, "GET /", True),
        (2, "GET /{dataset}/{version}/fields", True),
        (2, "POST /{dataset}/{version}/records", True),
        (2, "schema dataSetList", False),
    ]
    section = rendition.sections[2]
    assert section.label == "metadata > GET /{dataset}/{version}/fields"
    assert rendition.lines[section.row] == "## GET /{dataset}/{version}/fields"
    place = rendition.places[rendition.place_of[section.row]]
    assert place == Place(fragment="GET /{dataset}/{version}/fields", lines=(66, 109))
    lines = raw.decode().split("\n")
    assert lines[66 - 1].strip() == "get:"
    assert lines[110 - 1].strip() == "/{dataset}/{version}/records:"
    assert _text(rendition, "GET /{dataset}/{version}/fields").split("\n")[3:8] == [
        "Tags: metadata · operationId: list-searchable-fields",
        "Parameters:",
        "- dataset (path, string, required): Name of the dataset.",
        "- version (path, string, required): Version of the dataset.",
        "Responses:",
    ]


def test_swagger_2_reads_alike() -> None:
    rendition = extract((DATA / "oai-v2.0-json-petstore-expanded.json").read_bytes())
    assert_sound(rendition)
    assert [section.name for section in rendition.sections if section.alone] == [
        "GET /pets",
        "POST /pets",
        "GET /pets/{id}",
        "DELETE /pets/{id}",
    ]
    post = _text(rendition, "POST /pets")
    assert "Request body (pet): NewPet: name* (string), tag (string)" in post
    assert "- 200 pet response → Pet: name, tag, id" in post
    assert "- default unexpected error → Error" in post
    assert "- petstore.swagger.io/api (http)" in _text(rendition, "info")
    assert _text(rendition, "schema Error") == (
        "## schema Error\nProperties:\n- code* (integer int32)\n- message* (string)"
    )


def test_references_to_other_files_are_named() -> None:
    raw = (DATA / "oai-v2.0-json-petstore-separate-spec-swagger.json").read_bytes()
    rendition = extract(raw)
    assert_sound(rendition)
    get = _text(rendition, "GET /pets/{id}")
    assert "- 200 pet response → Pet" in get
    assert "- default unexpected error → Error" in get
    assert rendition.warnings == ("4 references lead out of the file and are only named",)


def test_a_schema_is_listed_one_level_deep() -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
    assert _operation(requestBody=body, responses={"200": {"description": "fine", **body}}) == (
        "Request body (application/json): "
        "Pet: id* (integer int64), owner (Owner), name (string) Name of it.\n"
        "Responses:\n- 200 fine → Pet: id, owner, name"
    )


def test_facts_of_an_operation() -> None:
    text = _operation(
        summary="List pets",
        description="List pets",
        deprecated=True,
        tags=["pets", "animals"],
        operationId="list",
        security=[{"oauth": ["read:pets"], "key": []}, {"basic": []}],
        parameters=[
            {"$ref": "#/components/parameters/Limit"},
            {"name": "state", "in": "query", "schema": {"enum": ["open", "sold"]}},
            {"$ref": "other.yaml#/Offset"},
        ],
        responses={"204": {}, "410": {"$ref": "#/components/responses/Gone"}},
    )
    assert text.split("\n") == [
        "List pets",
        "Deprecated.",
        "Tags: pets, animals · operationId: list · Auth: oauth (read:pets) and key or basic",
        "Parameters:",
        "- limit (query, integer)",
        "- state (query, string: open|sold)",
        "- Offset",
        "Responses:",
        "- 204",
        "- 410 It is gone",
    ]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string", "format": "date"}, "string date"),
        ({"type": ["string", "null"]}, "string|null"),
        ({"type": "array", "items": {"type": "array", "items": {}}}, "object[][]"),
        ({"oneOf": [{"$ref": "#/x/Cat"}, {"$ref": "Dog.json"}]}, "Cat|Dog"),
        ({"allOf": [{"$ref": "#/components/schemas/None"}]}, "None"),
        ({"additionalProperties": {"type": "integer"}}, "map of integer"),
        ({"const": "a"}, "string: a"),
        ({"title": "Animal", "type": "object"}, "Animal"),
        ({}, "object"),
    ],
)
def test_names_of_types(schema: dict[str, Any], name: str) -> None:
    text = _operation(parameters=[{"name": "x", "in": "query", "schema": schema}])
    assert f"- x (query, {name})" in text


def test_parameters_of_the_path_count_unless_the_operation_replaces_them() -> None:
    def parameter(name: str, description: str) -> dict[str, str]:
        return {"name": name, "in": "path", "description": description}

    item = {
        "parameters": [parameter("id", "from the path"), parameter("other", "kept")],
        "get": {"parameters": [parameter("id", "its own")]},
    }
    text = _text(_extract(paths={"/{id}": item}), "GET /{id}")
    assert text.split("\n")[1:] == [
        "Parameters:",
        "- id (path, object): its own",
        "- other (path, object): kept",
    ]


def test_webhooks_and_callbacks_are_operations() -> None:
    callback = {"{$request.body#/url}": {"post": {"summary": "Data arrives"}}}
    rendition = _extract(
        paths={"/streams": {"post": {"callbacks": {"onData": callback}}}},
        webhooks={"newPet": {"post": {"summary": "A pet is new"}}},
    )
    names = [section.name for section in rendition.sections if section.alone]
    assert names == ["POST /streams", "POST {$request.body#/url}", "POST newPet"]
    assert "Data arrives\nCallback onData of POST /streams." in _text(rendition, names[1])
    assert "A pet is new\nWebhook." in _text(rendition, names[2])


def test_the_introduction_names_servers_security_and_tags() -> None:
    rendition = _extract(
        info={"title": "Pets", "version": "1.10", "description": "About\n\npets."},
        servers=[{"url": "https://pets.example", "description": "Production"}],
        tags=[{"name": "pets", "description": "Everything\nabout pets"}],
        paths={},
        components={"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    )
    assert _text(rendition, "info").split("\n") == [
        "## Pets 1.10",
        "About",
        "pets.",
        "Servers:",
        "- https://pets.example: Production",
        "Auth:",
        "- token (http bearer)",
        "Tags:",
        "- pets: Everything about pets",
    ]


def test_a_schema_lists_the_schemas_within_it() -> None:
    schemas = {
        "Pet": {
            "description": "An animal.",
            "allOf": [{"$ref": "#/components/schemas/Base"}],
            "properties": {
                "owner": {"required": ["name"], "properties": {"name": {"type": "string"}}},
                "friends": {"items": {"$ref": "#/components/schemas/Pet"}},
            },
        },
        "Base": {"properties": {"id": {"type": "string", "description": "Key of it."}}},
        "Size": {"type": "string", "enum": ["s", "m"]},
    }
    rendition = _extract(components={"schemas": schemas})
    assert _text(rendition, "schema Pet").split("\n")[1:] == [
        "An animal.",
        "Properties:",
        "- id (string): Key of it.",
        "- owner (object)",
        "- owner.name* (string)",
        "- friends (Pet[])",
    ]
    assert _text(rendition, "schema Size").split("\n")[1:] == ["Type: string", "Values: s, m"]


def test_sections_are_in_the_order_of_the_file() -> None:
    raw = b"swagger: '2.0'\ndefinitions: {A: {type: string}}\npaths: {/a: {get: {}}}\n"
    names = [section.name for section in extract(raw).sections]
    assert names == ["info", "schema A", "GET /a"]


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"{}",
        b"just a text",
        b"openapi: 3.0.0\ninfo: {title: x}\n",
        b'{"swagger": "1.2", "paths": {}}',
        b'{"openapi": "3.0.0", "paths": []}',
        (DATA / "oai-v2.0-json-petstore-separate-spec-Pet.json").read_bytes(),
    ],
)
def test_a_file_that_is_no_description_is_refused(raw: bytes) -> None:
    with pytest.raises(UnsupportedContent, match="OpenAPI description") as refusal:
        extract(raw)
    assert not isinstance(refusal.value, Damaged)
    assert refusal.value.remedy


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: dict[str, Any] = {f"/{n}": {"get": {}} for n in range(5)}
    _extract(paths=paths)
    monkeypatch.setattr(extractor, "MOST_OPERATIONS", 4)
    with pytest.raises(LimitExceeded, match="4 operations"):
        _extract(paths=paths)


def _references(count: int) -> dict[str, Any]:
    """Schemas that refer to all of each other, in every way."""

    def reference(n: int) -> dict[str, str]:
        return {"$ref": f"#/components/schemas/S{n % count}"}

    return {
        f"S{n}": {
            "allOf": [reference(n + k) for k in range(count)],
            "properties": {f"p{k}": reference(n * k) for k in range(count)},
        }
        for n in range(count)
    }


def test_schemas_that_refer_to_each_other_stay_small() -> None:
    schemas = _references(60)
    body = {"schema": {"$ref": "#/components/schemas/S0"}}
    paths = {f"/{n}": {"get": {"responses": {"200": body}}} for n in range(100)}
    raw = json.dumps({"openapi": "3.0.0", "paths": paths, "components": {"schemas": schemas}})
    rendition = extract(raw.encode())
    assert sum(map(len, rendition.lines)) < len(raw)
    assert _text(rendition, "GET /7").endswith("p27, p28, p29, …")


@pytest.mark.parametrize(
    "root",
    [
        {"paths": {"/a": {"$ref": "#/paths/~1a"}}},
        {"paths": {"/a": {"get": {"callbacks": {"c": {"$ref": "#/paths"}}}}}},
        {"components": {"schemas": {"A": {"$ref": "#/components/schemas/A"}}}},
        {"components": {"schemas": {"A": {"items": {"$ref": "#/components/schemas/A"}}}}},
        {"paths": {"/a": 1, "/b": {"get": 2, "parameters": 3, "post": {"parameters": [[4]]}}}},
        {"paths": {"/a": {"get": {"responses": [], "tags": {}, "requestBody": "x"}}}},
        {"components": {"schemas": {"A": {"properties": [], "required": 1, "enum": {}}}}},
        {"paths": {"": {"get": {"$ref": "#/0/%ff/~2"}}}},
    ],
)
def test_strange_descriptions_are_extracted(root: dict[str, Any]) -> None:
    assert _extract(**root).lines


def test_aliases_do_not_multiply() -> None:
    """Nine levels of nine aliases stand for 400 million values."""
    levels = "".join(f"x{n + 1}: &x{n + 1} [{', '.join([f'*x{n}'] * 9)}]\n" for n in range(9))
    raw = f"openapi: 3.0.0\nx0: &x0 {{type: string}}\n{levels}paths:\n  /a: {{get: *x9}}\n"
    assert len(extract(raw.encode()).lines) < 10


def test_damaged_descriptions_are_refused_or_extracted() -> None:
    for name in ("oai-v3.0-uspto.yaml", "oai-v2.0-json-petstore-expanded.json"):
        raw = (DATA / name).read_bytes()
        extracted, refused = renditions_of(extract, variants(raw, seed=11, count=150))
        assert extracted > 10
        assert refused > 10


def test_equal_bytes_give_equal_renditions() -> None:
    raw = (DATA / "oai-v3.0-uspto.yaml").read_bytes()
    assert extract(raw) == extract(raw)
