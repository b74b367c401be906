"""Extraction of a description: its introduction, its operations and its schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from content.extractors.openapi.operations import Operation, OperationTexts, operations
from content.extractors.openapi.references import Schemas, listed, mapping, sequence, text_of
from content.extractors.openapi.tree import Tree, read
from content.extractors.texts import decode, single_line
from content.extractors.writer import RenditionWriter
from content.rendition import Place, Rendition
from runtime.errors import LimitExceeded, UnsupportedContent

__all__ = ["extract"]

MOST_OPERATIONS = 20_000
_LEVEL = 2
_MOST_PROPERTIES = 500
_MOST_VALUES = 200
_MOST_LISTED = 500
_DESCRIPTION_CHARACTERS = 1_000
_WEBHOOKS = ("webhooks", "x-webhooks")


def extract(raw: bytes) -> Rendition:
    """Extract an OpenAPI 3 or Swagger 2 description in JSON or YAML.

    There is a section for the introduction, for each operation and for each schema, in the order of
    the file. The place of a line is the whole operation or schema. References are named and listed
    one level deep, never followed: that is how descriptions become a hundred times longer.

    Raises:
        UnsupportedContent: the file is not such a description. ``Damaged`` if it is not valid JSON
            or YAML, or not in a Unicode encoding.
        LimitExceeded: it has more than 300,000 values or 20,000 operations, is nested over 200
            levels deep, or its text is over 8 MiB.
    """
    tree = read(decode(raw))
    root = mapping(tree.root)
    _check(root)
    return _Description(tree, root).rendition()


def _check(root: Mapping[str, object]) -> None:
    version = text_of(root.get("openapi")) or text_of(root.get("swagger"))
    if not version.startswith(("2", "3")):
        raise UnsupportedContent(
            "the file is not an OpenAPI description: it has no openapi: 3 or swagger: 2",
            "publish it as code or text",
        )
    keys = ("paths", "components", "definitions", *_WEBHOOKS)
    if not any(isinstance(root.get(key), dict) for key in keys):
        raise UnsupportedContent(
            "the OpenAPI description has no paths, no webhooks and no schemas",
            "publish it as code or text",
        )


class _Description:
    """Rendition of one description, while it is being written."""

    def __init__(self, tree: Tree, root: Mapping[str, object]) -> None:
        self._tree = tree
        self._root = root
        self._schemas = Schemas(root)
        self._texts = OperationTexts(self._schemas, root)
        self._writer = RenditionWriter()
        self._operations = 0

    def rendition(self) -> Rendition:
        self._write_introduction()
        for key, value in self._root.items():
            if key == "paths":
                self._write_operations(operations(value, self._schemas))
            elif key in _WEBHOOKS:
                self._write_operations(operations(value, self._schemas, role="Webhook."))
            elif key == "definitions":
                self._write_schemas(value)
            elif key == "components":
                self._write_schemas(mapping(value).get("schemas"))
        title = text_of(mapping(self._root.get("info")).get("title"))
        return self._writer.rendition(title, self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        count = len(self._schemas.unresolved)
        return (f"{count:,} references lead out of the file and are only named",) if count else ()

    def _write_introduction(self) -> None:
        info = mapping(self._root.get("info"))
        place = Place(fragment="info", lines=self._tree.lines(info))
        self._writer.begin(_LEVEL, "info")
        self._writer.heading(_LEVEL, _heading_of(info), place)
        for paragraph in filter(None, self._introduction(info)):
            self._writer.blank()
            self._writer.write(paragraph, place)

    def _introduction(self, info: Mapping[str, object]) -> Iterator[str]:
        for key in ("summary", "description"):
            yield text_of(info.get(key)).strip()
        yield _bullets("Servers:", self._servers())
        yield _bullets("Auth:", self._security_schemes())
        yield _bullets("Tags:", self._tags())

    def _servers(self) -> Iterator[str]:
        for server in sequence(self._root.get("servers")):
            yield _entry(text_of(mapping(server).get("url")), "", mapping(server))
        host = text_of(self._root.get("host")) + text_of(self._root.get("basePath"))
        if host:
            schemes = ", ".join(listed(self._root.get("schemes"), _MOST_VALUES))
            yield _entry(host, schemes, {})

    def _security_schemes(self) -> Iterator[str]:
        components = mapping(self._root.get("components"))
        for holder, key in ((components, "securitySchemes"), (self._root, "securityDefinitions")):
            for name, reference in mapping(holder.get(key)).items():
                scheme = self._schemas.resolve(reference)
                details = (text_of(scheme.get(each)) for each in ("type", "scheme", "in", "name"))
                yield _entry(name, " ".join(filter(None, details)), scheme)

    def _tags(self) -> Iterator[str]:
        for tag in sequence(self._root.get("tags")):
            yield _entry(text_of(mapping(tag).get("name")), "", mapping(tag))

    def _write_operations(self, described: Iterator[Operation]) -> None:
        for operation in described:
            self._operations += 1
            if self._operations > MOST_OPERATIONS:
                raise LimitExceeded(
                    f"the description has more than {MOST_OPERATIONS:,} operations",
                    "split it into descriptions of fewer paths",
                )
            name = single_line(operation.name, 300)
            tag = "".join(listed(operation.value.get("tags"), 1)[:1])
            label = f"{tag} > {name}" if tag else ""
            place = Place(fragment=name, lines=self._tree.lines(operation.value))
            self._write_section(name, place, self._texts.paragraphs(operation), label, alone=True)

    def _write_schemas(self, schemas: object) -> None:
        for key, value in mapping(schemas).items():
            name = f"schema {single_line(key, 290)}"
            place = Place(fragment=name, lines=self._tree.lines(value))
            self._write_section(name, place, self._schema(value))

    def _write_section(
        self,
        name: str,
        place: Place,
        paragraphs: Iterator[str],
        label: str = "",
        *,
        alone: bool = False,
    ) -> None:
        self._writer.begin(_LEVEL, name, label=label, alone=alone)
        self._writer.heading(_LEVEL, name, place)
        for paragraph in paragraphs:
            self._writer.blank()
            self._writer.write(paragraph, place)

    def _schema(self, value: object) -> Iterator[str]:
        schema = mapping(value)
        description = text_of(schema.get("description")).strip()
        members = list(islice(self._schemas.properties(value, inner=True), _MOST_PROPERTIES + 1))
        values = listed(schema.get("enum"), _MOST_VALUES)
        if not members:
            kind = text_of(schema.get("type")) if values else self._schemas.type_name(value)
            description = "\n".join(filter(None, (f"Type: {kind}" * bool(kind), description)))
        if description:
            yield description
        rows = (
            _entry(member.name + "*" * member.required, member.type, member.schema)
            for member in members
        )
        if text := _bullets("Properties:", rows):
            yield text
        if values:
            yield f"Values: {', '.join(values)}"


def _heading_of(info: Mapping[str, object]) -> str:
    title, version = text_of(info.get("title")), text_of(info.get("version"))
    return " ".join(filter(None, (title or "API", version)))


def _entry(name: str, details: str, described: Mapping[str, object]) -> str:
    """Return ``name (details): description`` on one line, or '' without a name."""
    text = single_line(name, 300) + (f" ({single_line(details, 400)})" if details else "")
    description = single_line(text_of(described.get("description")), _DESCRIPTION_CHARACTERS)
    return (f"{text}: {description}" if description else text) if name else ""


def _bullets(heading: str, entries: Iterator[str]) -> str:
    """Return a heading with its list of entries, or '' if there is no entry."""
    shown = list(islice(filter(None, entries), _MOST_LISTED + 1))
    if len(shown) > _MOST_LISTED:
        shown[_MOST_LISTED:] = ["…"]
    return "\n".join(chain([heading], (f"- {entry}" for entry in shown))) if shown else ""
