"""References and schemas of a description, as short texts that never grow with their depth.

Every loop has a bound: a hostile description refers to itself, or to 100,000 things at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote

from content.extractors.texts import single_line

__all__ = ["Property", "Schemas", "listed", "mapping", "reference_name", "sequence", "text_of"]

_MOST_HOPS = 8
_MOST_DEPTH = 6
_MOST_SCHEMAS = 500
"""Schemas that are looked at for the properties of one."""

_MOST_VALUES = 20
_MOST_ALTERNATIVES = 8
_INLINE_ALTERNATIVES = 3
_TYPE_CHARACTERS = 300
_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Property:
    """Property of a schema; ``name`` has dots if it belongs to a schema within."""

    name: str
    type: str
    required: bool
    schema: Mapping[str, object]


@dataclass(slots=True)
class _Walk:
    """Schemas and names of properties that were visited already, by one walk."""

    inner: bool
    schemas: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


def mapping(value: object) -> Mapping[str, object]:
    """Return a mapping, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[object]:
    """Return a list, or an empty one for any other value."""
    return value if isinstance(value, list) else ()


def text_of(value: object) -> str:
    """Return a scalar as it is written in the file, '' for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""


def listed(values: object, most: int) -> Sequence[str]:
    """Return at most ``most`` scalars of a list as texts, and ``…`` if there are more."""
    texts = [single_line(text_of(value), _NAME_CHARACTERS) for value in sequence(values)[:most]]
    return [*filter(None, texts), *(["…"] if len(sequence(values)) > most else [])]


def reference_name(value: object) -> str:
    """Return the last part of a ``$ref``, '' for anything else."""
    reference = mapping(value).get("$ref")
    return _last_part(reference) if isinstance(reference, str) else ""


@lru_cache(maxsize=10_000)
def _last_part(reference: str) -> str:
    last = unquote(reference[-_TYPE_CHARACTERS:].rstrip("/").rpartition("/")[2])
    name = last.replace("~1", "/").replace("~0", "~")
    for suffix in (".json", ".yaml", ".yml"):
        name = name.removesuffix(suffix)
    return single_line(name, _NAME_CHARACTERS)


class Schemas:
    """Schemas of one description; ``unresolved`` has the references that lead out of it."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._resolved: dict[str, object] = {}
        self.unresolved: set[str] = set()

    def resolve(self, value: object) -> Mapping[str, object]:
        """Follow the references of a value; an empty mapping if they lead nowhere."""
        for _ in range(_MOST_HOPS):
            reference = mapping(value).get("$ref")
            if not isinstance(reference, str):
                return mapping(value)
            value = self._target(reference)
        return {}

    def _target(self, reference: str) -> object:
        if reference not in self._resolved:
            self._resolved[reference] = self._walk(reference)
        return self._resolved[reference]

    def _walk(self, reference: str) -> object:
        value = self._root
        if not reference.startswith("#/"):
            self.unresolved.add(reference)
            return None
        for part in unquote(reference[2:]).split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key[:9]) < len(value):
                value = value[int(key[:9])]
            else:
                self.unresolved.add(reference)
                return None
        return value

    def type_name(self, schema: object, depth: int = 0) -> str:
        """Name the type of a schema: ``Pet``, ``Pet[]``, ``integer int64``, ``string: a|b``."""
        name = reference_name(schema)
        if name:
            return name
        if depth > _MOST_DEPTH:
            return "…"
        return single_line(self._described(mapping(schema), depth), _TYPE_CHARACTERS)

    def _described(self, schema: Mapping[str, object], depth: int) -> str:
        kind = schema.get("type")
        declared = text_of(kind) or "|".join(listed(kind, _MOST_ALTERNATIVES))
        if declared == "array" or (not declared and "items" in schema):
            return self.type_name(schema.get("items"), depth + 1) + "[]"
        values = schema.get("enum") if "enum" in schema else [schema.get("const")]
        if texts := listed(values, _MOST_VALUES):
            return f"{declared or 'string'}: {'|'.join(texts)}"
        alternatives = _alternatives(schema)
        if alternatives:
            names = [self.type_name(each, depth + 1) for each in alternatives[:_MOST_ALTERNATIVES]]
            return "|".join(dict.fromkeys(names))
        title = text_of(schema.get("title"))
        if title and declared in ("", "object"):
            return title
        parts = sequence(schema.get("allOf"))
        if parts and not declared:
            return self.type_name(parts[0], depth + 1)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict) and additional and "properties" not in schema:
            return f"map of {self.type_name(additional, depth + 1)}"
        return " ".join(filter(None, (declared or "object", text_of(schema.get("format")))))

    def properties(self, schema: object, *, inner: bool = False) -> Iterator[Property]:
        """Yield the properties of a schema or of its items, each name once, in their order.

        Parts of ``allOf`` count. References of properties are named, not followed; ``inner`` also
        yields the properties of schemas that are written within.
        """
        yield from self._properties(schema, _Walk(inner), "", 0)

    def _properties(
        self, schema: object, walk: _Walk, prefix: str, depth: int
    ) -> Iterator[Property]:
        resolved = self.resolve(schema)
        if not resolved or id(resolved) in walk.schemas or depth > _MOST_DEPTH:
            return
        if len(walk.schemas) >= _MOST_SCHEMAS:
            return
        walk.schemas.add(id(resolved))
        unnamed = [each for each in _alternatives(resolved) if not reference_name(each)]
        parts = [*sequence(resolved.get("allOf"))[:_MOST_SCHEMAS], *unnamed[:_INLINE_ALTERNATIVES]]
        if isinstance(resolved.get("items"), dict):
            parts.append(resolved["items"])
        for part in parts:
            yield from self._properties(part, walk, prefix, depth + 1)
        required = set(listed(resolved.get("required"), _MOST_SCHEMAS))
        for key, value in mapping(resolved.get("properties")).items():
            if prefix + key in walk.names:
                continue
            walk.names.add(prefix + key)
            name = prefix + single_line(key, _NAME_CHARACTERS)
            yield Property(name, self.type_name(value), key in required, self.resolve(value))
            if walk.inner and not reference_name(value):
                yield from self._properties(value, walk, f"{name}.", depth + 1)


def _alternatives(schema: Mapping[str, object]) -> Sequence[object]:
    kinds = ("oneOf", "anyOf")
    return [each for kind in kinds for each in islice(sequence(schema.get(kind)), _MOST_SCHEMAS)]
