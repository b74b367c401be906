"""Operations of a description, and the text of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from content.extractors.openapi.references import (
    Schemas,
    listed,
    mapping,
    reference_name,
    sequence,
    text_of,
)
from content.extractors.texts import single_line

__all__ = ["Operation", "OperationTexts", "operations"]

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_MOST_NESTED_CALLBACKS = 2
_MOST_PARAMETERS = 300
_MOST_RESPONSES = 100
_MOST_MEDIA_TYPES = 10
_MOST_PROPERTIES = 30
_MOST_NAMES = 50
_DESCRIPTION_CHARACTERS = 1_000
_SENTENCE_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an API: a method of a path, of a webhook or of a callback."""

    method: str
    path: str
    value: Mapping[str, object]
    shared: tuple[object, ...]
    """Parameters that all methods of the path have."""

    role: str = ""
    """Sentence about a webhook or a callback; '' for an ordinary operation."""

    @property
    def name(self) -> str:
        """Method and path, such as ``GET /pets/{petId}``."""
        return f"{self.method.upper()} {self.path}"


def operations(items: object, schemas: Schemas, *, role: str = "") -> Iterator[Operation]:
    """Yield the operations of ``paths`` or of ``webhooks``, each followed by its callbacks."""
    yield from _operations(items, schemas, role, 0)


def _operations(items: object, schemas: Schemas, role: str, depth: int) -> Iterator[Operation]:
    for path, item in mapping(items).items():
        resolved = schemas.resolve(item)
        shared = tuple(sequence(resolved.get("parameters"))[:_MOST_PARAMETERS])
        for key, value in resolved.items():
            if key.lower() in _METHODS and isinstance(value, dict):
                operation = Operation(key, path, value, shared, role)
                yield operation
                if depth < _MOST_NESTED_CALLBACKS:
                    yield from _callbacks(operation, schemas, depth + 1)


def _callbacks(operation: Operation, schemas: Schemas, depth: int) -> Iterator[Operation]:
    for name, callback in mapping(operation.value.get("callbacks")).items():
        role = f"Callback {single_line(name, 100)} of {single_line(operation.name, 200)}."
        yield from _operations(schemas.resolve(callback), schemas, role, depth)


class OperationTexts:
    """Texts of operations: paragraphs of Markdown, the heading aside."""

    def __init__(self, schemas: Schemas, root: Mapping[str, object]) -> None:
        self._schemas = schemas
        self._security = root.get("security")
        self._listings: dict[tuple[int, bool], str] = {}

    def paragraphs(self, operation: Operation) -> Iterator[str]:
        """Yield the paragraphs of one operation, none of them empty."""
        parts = (
            self._summary(operation),
            self._description(operation),
            self._identity(operation),
            self._parameters(operation),
            self._body(operation),
            self._responses(operation.value),
        )
        return filter(None, parts)

    def _summary(self, operation: Operation) -> str:
        summary = text_of(operation.value.get("summary")).strip()
        deprecated = "Deprecated." if operation.value.get("deprecated") is True else ""
        return "\n".join(filter(None, (summary, deprecated, operation.role)))

    def _description(self, operation: Operation) -> str:
        description = text_of(operation.value.get("description")).strip()
        return "" if description == text_of(operation.value.get("summary")).strip() else description

    def _identity(self, operation: Operation) -> str:
        tags = ", ".join(listed(operation.value.get("tags"), _MOST_NAMES))
        identifier = single_line(text_of(operation.value.get("operationId")), 200)
        auth = self._auth(operation.value)
        facts = (("Tags", tags), ("operationId", identifier), ("Auth", auth))
        return " · ".join(f"{name}: {value}" for name, value in facts if value)

    def _auth(self, value: Mapping[str, object]) -> str:
        """Name the security schemes: those that are needed together with ``and``."""
        requirements = value.get("security", self._security)
        ways = []
        for requirement in sequence(requirements)[:_MOST_NAMES]:
            schemes = []
            for name, scopes in islice(mapping(requirement).items(), _MOST_NAMES):
                within = ", ".join(listed(scopes, _MOST_NAMES))
                schemes.append(single_line(name, 100) + (f" ({within})" if within else ""))
            ways.append(" and ".join(schemes))
        return " or ".join(dict.fromkeys(filter(None, ways)))

    def _parameters(self, operation: Operation) -> str:
        lines = [
            self._parameter(name, parameter)
            for name, parameter in self._all_parameters(operation)
            if parameter.get("in") != "body"
        ]
        return "\n".join(["Parameters:", *lines]) if lines else ""

    def _all_parameters(self, operation: Operation) -> list[tuple[str, Mapping[str, object]]]:
        """Resolve the parameters; those of the operation replace those of its path."""
        own = sequence(operation.value.get("parameters"))[:_MOST_PARAMETERS]
        parameters: dict[tuple[str, str], tuple[str, Mapping[str, object]]] = {}
        for reference in (*operation.shared, *own):
            parameter = self._schemas.resolve(reference)
            name = text_of(parameter.get("name")) or reference_name(reference)
            if name:
                key = (name, text_of(parameter.get("in")))
                parameters[key] = (single_line(name, 200), parameter)
        return list(parameters.values())

    def _parameter(self, name: str, parameter: Mapping[str, object]) -> str:
        schema = parameter.get("schema")
        if not isinstance(schema, dict):
            media_types = mapping(parameter.get("content"))
            schema = next((mapping(each).get("schema") for each in media_types.values()), parameter)
        facts = (
            text_of(parameter.get("in")),
            # a parameter that leads out of the file has no type that could be named
            self._schemas.type_name(schema) if parameter else "",
            "required" if parameter.get("required") is True else "",
            "deprecated" if parameter.get("deprecated") is True else "",
        )
        within = ", ".join(filter(None, facts))
        description = single_line(text_of(parameter.get("description")), _DESCRIPTION_CHARACTERS)
        return (
            f"- {name}"
            + (f" ({within})" if within else "")
            + (f": {description}" * bool(description))
        )

    def _body(self, operation: Operation) -> str:
        """List the request bodies; media types that share a schema share a line."""
        bodies: dict[str, list[str]] = {}
        for name, parameter in self._all_parameters(operation):
            if parameter.get("in") == "body":
                bodies.setdefault(self._listing(parameter.get("schema")), []).append(name)
        reference = operation.value.get("requestBody")
        body = self._schemas.resolve(reference)
        for media_type, value in self._media_types(body):
            listing = self._listing(mapping(value).get("schema"))
            bodies.setdefault(listing, []).append(media_type)
        if not body and reference_name(reference):
            bodies[reference_name(reference)] = []
        description = single_line(text_of(body.get("description")), _DESCRIPTION_CHARACTERS)
        lines = [
            "Request body" + (f" ({', '.join(names)})" if names else "") + f": {listing}"
            for listing, names in bodies.items()
        ]
        return "\n".join(filter(None, (*lines, description)))

    def _media_types(self, value: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        for media_type, body in islice(mapping(value.get("content")).items(), _MOST_MEDIA_TYPES):
            yield single_line(media_type, 100), body

    def _responses(self, value: Mapping[str, object]) -> str:
        lines = [
            self._response(single_line(status, 20), response)
            for status, response in islice(mapping(value.get("responses")).items(), _MOST_RESPONSES)
        ]
        return "\n".join(["Responses:", *lines]) if lines else ""

    def _response(self, status: str, reference: object) -> str:
        response = self._schemas.resolve(reference)
        schemas = [
            response.get("schema"),
            *(mapping(body).get("schema") for _, body in self._media_types(response)),
        ]
        bodies = dict.fromkeys(
            # the members of an error are the same for every operation: its name is enough
            self._listing(schema, names_only=True)
            if status.startswith(("1", "2", "3"))
            else self._schemas.type_name(schema)
            for schema in schemas
            if isinstance(schema, dict)
        )
        description = text_of(response.get("description")) or reference_name(reference)
        text = single_line(description, _DESCRIPTION_CHARACTERS)
        return f"- {status} {text}".rstrip() + "".join(f" → {body}" for body in bodies)

    def _listing(self, schema: object, *, names_only: bool = False) -> str:
        """Name a schema and list its properties, one level deep; ``*`` marks required ones."""
        key = (id(schema), names_only)
        if key not in self._listings:
            self._listings[key] = self._list(schema, names_only)
        return self._listings[key]

    def _list(self, schema: object, names_only: bool) -> str:
        members = []
        for member in islice(self._schemas.properties(schema), _MOST_PROPERTIES + 1):
            if names_only:
                members.append(member.name)
                continue
            described = first_sentence(member.schema.get("description"))
            star = "*" if member.required else ""
            members.append(
                f"{member.name}{star} ({member.type})" + f" {described}" * bool(described)
            )
        if len(members) > _MOST_PROPERTIES:
            members[_MOST_PROPERTIES:] = ["…"]
        name = self._schemas.type_name(schema)
        return f"{name}: {', '.join(members)}" if members else name


def first_sentence(value: object) -> str:
    """Return the first sentence of a description, at most 160 characters, on one line."""
    line = single_line(text_of(value), _SENTENCE_CHARACTERS)
    end = next(
        (
            index
            for index in range(10, len(line) - 1)
            if line[index] in ".!?" and line[index + 1] == " "
        ),
        len(line),
    )
    return line[: end + 1]
