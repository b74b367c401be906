"""Names of definitions in syntax trees, as people of each language write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile

from tree_sitter import Node

from processors.chunking.packing.headers import one_line

__all__ = [
    "NameOf",
    "dart_name",
    "declared_name",
    "elixir_name",
    "hcl_name",
    "kotlin_name",
    "name_of",
    "objc_name",
    "sql_name",
    "stage_name",
    "text_of",
]

NameOf = Callable[[Node], str]
"""Name of a definition, '' if it has none."""

_NAME_FIELDS = ("name", "declarator", "left", "type")
_NAME_PARENTS = (
    *("_spec", "_declarator", "assignment_expression", "assignment_statement", "variable_list"),
    "type_alias",
)
_NAMES = ("identifier", "_name", "member_expression", "scope_resolution", "index_expression")
_LONGEST_CHAIN = 12

_DECLARED_FIELDS = ("name", "pattern", "return_type", "parameters")
_KEYWORD_NAMES = {
    "secondary_constructor": "constructor",
    "anonymous_initializer": "init",
    "deinit_declaration": "deinit",
    "subscript_declaration": "subscript",
}
_TYPE_ARGUMENTS = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_DEEPEST_ARGUMENTS = 4


def text_of(node: Node) -> str:
    """Text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def name_of(node: Node) -> str:
    """Name of a definition, found by the fields that most grammars have."""
    receiver = node.child_by_field_name("receiver")
    prefix = f"{_receiver_type(receiver)}." if receiver is not None else ""
    for _ in range(_LONGEST_CHAIN):
        inner = _named_part(node)
        if inner is None:
            break
        node = inner
    return prefix + one_line(text_of(node)) if not node.children or _is_name(node) else prefix


def _named_part(node: Node) -> Node | None:
    """Return the node one step closer to a definition's name, or None at the end."""
    if _is_name(node):
        return None
    for field in _NAME_FIELDS:
        inner = node.child_by_field_name(field)
        if inner is not None:
            return inner
    for inner in node.named_children:
        if inner.type.endswith(_NAME_PARENTS):
            return inner
    return None


def _is_name(node: Node) -> bool:
    return node.type.endswith(_NAMES)


def _receiver_type(receiver: Node) -> str:
    """Extract ``T`` from a Go receiver ``(t *T[K])``."""
    words = text_of(receiver).strip("()").split() or [""]
    return words[-1].lstrip("*").split("[")[0]


def declared_name(node: Node) -> str:
    """Name of a definition of Scala or Swift: ``init`` and the like for those without one.

    An extension has the name of the type that it extends.
    """
    if node.type in _KEYWORD_NAMES:
        return _KEYWORD_NAMES[node.type]
    for field in _DECLARED_FIELDS:
        name = node.child_by_field_name(field)
        if name is not None:
            return _plain(text_of(name).strip("()").rpartition(": ")[2])
    return ""


def kotlin_name(node: Node) -> str:
    """Name of a definition of Kotlin, with the type that it extends: ``String.shout``."""
    name = node.child_by_field_name("name") or node.child_by_field_name("type")
    if name is None:
        variables = [child for child in node.children if child.type == "variable_declaration"]
        name = variables[0].named_child(0) if variables else None
        before = variables[0].prev_sibling if variables else None
    else:
        before = name.prev_sibling
    if name is None:
        return declared_name(node)
    if before is None or before.type not in (".", "user_type"):
        return _plain(text_of(name))
    receiver = before.prev_sibling if before.type == "." else before
    parts = [_plain(text_of(part)) for part in (receiver, name) if part is not None]
    return ".".join(filter(None, parts))  # behind type arguments, the receiver contains the name


def dart_name(node: Node) -> str:
    """Name of a definition of Dart: ``named`` for a constructor ``Point.named``."""
    if node.type == "operator_signature":
        operators = [child for child in node.children if child.type.endswith("operator")]
        return f"operator {text_of(operators[-1])}" if operators else ""
    own = [child for child in node.children if child.type in ("identifier", "type_identifier")]
    if node.type.endswith("constructor_signature"):
        return ".".join(text_of(part) for part in own[1:] or own)
    name = node.child_by_field_name("name")
    if name is None and own:
        is_assigned = any(child.type == "=" for child in node.children)
        name = own[0] if is_assigned or node.type != "type_alias" else own[-1]
    return text_of(name) if name is not None else ""


def objc_name(node: Node) -> str:
    """Name of a definition of Objective-C, for a method its selector: ``initWithX:y:``."""
    if not node.type.startswith(("method_", "class_", "protocol_")):
        return name_of(node)
    selector, part = "", ""
    for child in node.named_children:
        if child.type == "identifier":
            part = part or text_of(child)
            if not node.type.startswith("method_"):
                return part
        elif child.type == "method_parameter":
            selector, part = f"{selector}{part}:", ""
    return selector or part


def elixir_name(node: Node) -> str:
    """Name of what a call of ``def`` and the like defines; a test is named ``test adds a user``."""
    target = node.child_by_field_name("target")
    arguments = [child for child in node.children if child.type == "arguments"]
    defined = arguments[0].named_child(0) if arguments else None
    if defined is None:
        return ""
    for _ in range(_LONGEST_CHAIN):
        operator = defined.child_by_field_name("operator")
        if operator is not None and text_of(operator) != "when":
            return text_of(operator)
        inner = defined.child_by_field_name("left" if operator is not None else "target")
        if inner is None or defined.type == "dot":
            break
        defined = inner
    if defined.type == "string" and target is not None:
        return one_line(f"{text_of(target)} {text_of(defined).strip(chr(34))}")
    return one_line(text_of(defined))


def sql_name(node: Node) -> str:
    """Name of the object that a statement of SQL creates or alters, without quotes."""
    for child in node.named_children:
        if child.type in ("object_reference", "identifier"):
            return one_line(re.sub(r"[\"`\[\]]", "", text_of(child)))
    return ""


def hcl_name(node: Node) -> str:
    """Type and labels of a block of HCL: ``resource.aws_instance.web``."""
    parts = takewhile(lambda child: child.type in ("identifier", "string_lit"), node.children)
    return one_line(".".join(text_of(part).strip('"') for part in parts))


def stage_name(node: Node) -> str:
    """Name of a stage of a Dockerfile, else the image that it begins from."""
    name = node.child_by_field_name("as")
    images = [child for child in node.children if child.type == "image_spec"]
    return one_line(text_of(name or images[0])) if name is not None or images else ""


def _plain(name: str) -> str:
    """Remove type arguments and the marks around a name that is also a keyword."""
    for _ in range(_DEEPEST_ARGUMENTS):
        shorter = _TYPE_ARGUMENTS.sub("", name)
        if shorter == name:
            break
        name = shorter
    return one_line(name.replace("`", ""))
