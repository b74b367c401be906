"""Grammars of the languages that are cut by syntax tree, one entry per language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count

from tree_sitter import Language, Node, Parser, Tree

from processors.chunking.chunkers.names import (
    NameOf,
    dart_name,
    declared_name,
    elixir_name,
    hcl_name,
    kotlin_name,
    name_of,
    objc_name,
    sql_name,
    stage_name,
    text_of,
)

__all__ = ["GRAMMARS", "Grammar", "missing_grammars", "parse"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """Node types of one language's syntax tree, and how to load its grammar.

    ``module`` and ``factory`` name the wheel's module and its function. ``functions`` and
    ``containers`` are the node types that become units; containers are opened if they do not fit.
    ``bodies`` are replaced by their children. ``wrappers`` (decorators, exports, templates) add
    their rows to the unit inside. ``bindings`` are units if they bind a function, ``properties`` if
    they take several rows. ``leading`` belong to the definition below, besides comments and
    attributes; ``tails`` to the one before. ``sections`` are functions that reach up to the next
    definition. With ``calls``, a call has what it calls as its type. Each pattern of ``rewrites``
    is replaced by its text before parsing, without a change of the number of lines.
    """

    module: str
    functions: frozenset[str]
    containers: frozenset[str] = frozenset()
    bodies: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    bindings: frozenset[str] = frozenset()
    properties: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()
    tails: frozenset[str] = frozenset()
    sections: frozenset[str] = frozenset()
    calls: bool = False
    rewrites: tuple[tuple[re.Pattern[str], str], ...] = ()
    factory: str = "language"
    separator: str = "."
    name_of: NameOf = name_of

    def type_of(self, node: Node) -> str:
        """Type of a node, for a call what it calls in a language that defines by calls."""
        if self.calls and node.type == "call":
            target = node.child_by_field_name("target")
            return "" if target is None else text_of(target)
        return node.type


def _types(names: str) -> frozenset[str]:
    return frozenset(names.split())


_JAVASCRIPT_FUNCTIONS = "function_declaration generator_function_declaration method_definition"
_JAVASCRIPT_BINDINGS = _types("lexical_declaration variable_declaration expression_statement")
_TYPESCRIPT_FUNCTIONS = _types(
    f"{_JAVASCRIPT_FUNCTIONS} interface_declaration enum_declaration type_alias_declaration"
)
_TYPESCRIPT_CONTAINERS = _types(
    "class_declaration abstract_class_declaration internal_module module"
)
_TYPESCRIPT_WRAPPERS = _types("export_statement ambient_declaration expression_statement")
_C_FUNCTIONS = "function_definition struct_specifier union_specifier enum_specifier type_definition"
_PREPROCESSOR = "preproc_if preproc_ifdef preproc_else preproc_elif preproc_elifdef"

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_FUN_INTERFACE = re.compile(r"\bfun(?=[ \t]+interface\b)")
_LONE_MACRO = re.compile(r"^[ \t]*[A-Z][A-Z\d_]{3,100}[ \t]*+;?[ \t]*+$", re.MULTILINE)
_ENUM_MACRO = re.compile(
    r"\b(?:typedef[ \t]+)?(?:NS|CF)_(?:CLOSED_|ERROR_)?(?:ENUM|OPTIONS)[ \t]*"
    r"\([^,()\n]{1,100},[ \t]*(\w{1,100})[ \t]*\)"
)

_MOST_STEPS = 20_000
"""Steps of a parser after which a text is cut by its indentation, so on every machine alike.

A step is a hundred operations of the parser, or one reading of the text. A file of a megabyte takes
2,000 to 5,000. Some grammars need minutes for a text that is not of their language: recovery from
errors reads the same text again and again.
"""
_READ_BYTES = 4_096

GRAMMARS: dict[str, Grammar] = {
    # Its scanner indexes C tables for bytes by character: "{" and an emoji can crash it.
    "bash": Grammar(
        "tree_sitter_bash", _types("function_definition"), rewrites=((_NOT_ASCII, "_"),)
    ),
    "c": Grammar(
        "tree_sitter_c",
        _types(_C_FUNCTIONS),
        bodies=_types(f"{_PREPROCESSOR} linkage_specification declaration_list"),
    ),
    "c_sharp": Grammar(
        "tree_sitter_c_sharp",
        _types(
            "method_declaration constructor_declaration destructor_declaration enum_declaration "
            "property_declaration indexer_declaration operator_declaration delegate_declaration "
            "conversion_operator_declaration event_declaration local_function_statement"
        ),
        containers=_types(
            "class_declaration struct_declaration interface_declaration record_declaration "
            "namespace_declaration"
        ),
        bodies=_types(
            f"declaration_list file_scoped_namespace_declaration global_statement {_PREPROCESSOR}"
        ),
    ),
    "cpp": Grammar(
        "tree_sitter_cpp",
        _types(f"{_C_FUNCTIONS} alias_declaration concept_definition"),
        containers=_types("class_specifier struct_specifier namespace_definition"),
        bodies=_types(
            f"{_PREPROCESSOR} linkage_specification declaration_list field_declaration_list"
        ),
        wrappers=_types("template_declaration"),
        separator="::",
    ),
    "dart": Grammar(
        "tree_sitter_dart",
        _types(
            "function_signature getter_signature setter_signature operator_signature "
            "constructor_signature constant_constructor_signature factory_constructor_signature "
            "redirecting_factory_constructor_signature type_alias"
        ),
        containers=_types(
            "class_definition mixin_declaration extension_declaration enum_declaration "
            "extension_type_declaration"
        ),
        bodies=_types("class_body extension_body enum_body"),
        wrappers=_types("declaration method_signature"),
        leading=_types("annotation"),
        tails=_types("function_body ;"),
        name_of=dart_name,
    ),
    "dockerfile": Grammar(
        "tree_sitter_containerfile",
        _types("from_instruction"),
        sections=_types("from_instruction"),
        name_of=stage_name,
    ),
    "elixir": Grammar(
        "tree_sitter_elixir",
        _types(
            "def defp defmacro defmacrop defguard defguardp defdelegate defn defnp "
            "test property setup setup_all"
        ),
        containers=_types("defmodule defprotocol defimpl describe"),
        bodies=_types("do_block"),
        leading=_types("unary_operator"),
        calls=True,
        name_of=elixir_name,
    ),
    "go": Grammar(
        "tree_sitter_go", _types("function_declaration method_declaration type_declaration")
    ),
    "hcl": Grammar(
        "tree_sitter_hcl",
        frozenset(),
        containers=_types("block"),
        bodies=_types("body"),
        properties=_types("attribute"),
        name_of=hcl_name,
    ),
    "java": Grammar(
        "tree_sitter_java",
        _types(
            "method_declaration constructor_declaration compact_constructor_declaration "
            "annotation_type_declaration"
        ),
        containers=_types(
            "class_declaration interface_declaration enum_declaration record_declaration"
        ),
        bodies=_types("class_body interface_body enum_body enum_body_declarations"),
    ),
    "javascript": Grammar(
        "tree_sitter_javascript",
        _types(_JAVASCRIPT_FUNCTIONS),
        containers=_types("class_declaration"),
        bodies=_types("class_body"),
        wrappers=_types("export_statement"),
        bindings=_JAVASCRIPT_BINDINGS,
    ),
    "kotlin": Grammar(
        "tree_sitter_kotlin",
        _types("function_declaration secondary_constructor anonymous_initializer type_alias"),
        containers=_types("class_declaration object_declaration"),
        bodies=_types("class_body enum_class_body companion_object"),
        properties=_types("property_declaration"),
        rewrites=((_FUN_INTERFACE, "   "),),
        name_of=kotlin_name,
    ),
    "lua": Grammar(
        "tree_sitter_lua",
        _types("function_declaration"),
        bindings=_types("variable_declaration assignment_statement"),
    ),
    "objc": Grammar(
        "tree_sitter_objc",
        _types(f"{_C_FUNCTIONS} method_definition method_declaration"),
        containers=_types("class_interface class_implementation protocol_declaration"),
        bodies=_types(
            f"{_PREPROCESSOR} linkage_specification declaration_list implementation_definition "
            "qualified_protocol_interface_declaration"
        ),
        rewrites=((_LONE_MACRO, ""), (_ENUM_MACRO, r"enum \1")),
        name_of=objc_name,
    ),
    "php": Grammar(
        "tree_sitter_php",
        _types("function_definition method_declaration"),
        containers=_types(
            "class_declaration interface_declaration trait_declaration enum_declaration "
            "namespace_definition"
        ),
        bodies=_types("declaration_list enum_declaration_list compound_statement"),
        factory="language_php",
        separator="::",
    ),
    "python": Grammar(
        "tree_sitter_python",
        _types("function_definition"),
        containers=_types("class_definition"),
        bodies=_types("block"),
        wrappers=_types("decorated_definition"),
    ),
    "ruby": Grammar(
        "tree_sitter_ruby",
        _types("method singleton_method"),
        containers=_types("class module singleton_class"),
        bodies=_types("body_statement"),
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        _types(
            "function_item function_signature_item struct_item enum_item union_item "
            "macro_definition type_item"
        ),
        containers=_types("impl_item trait_item mod_item"),
        bodies=_types("declaration_list"),
        separator="::",
    ),
    "scala": Grammar(
        "tree_sitter_scala",
        _types("function_definition function_declaration type_definition"),
        containers=_types(
            "class_definition object_definition trait_definition enum_definition package_object "
            "given_definition extension_definition"
        ),
        bodies=_types("template_body enum_body with_template_body package_clause"),
        properties=_types("val_definition var_definition"),
        name_of=declared_name,
    ),
    "sql": Grammar(
        "tree_sitter_sql",
        _types(
            "create_table create_view create_materialized_view create_index create_function "
            "create_procedure create_trigger create_type create_policy create_sequence "
            "create_schema create_extension create_role create_database "
            "alter_table alter_view alter_type alter_index alter_sequence alter_policy"
        ),
        bodies=_types("transaction block"),
        wrappers=_types("statement"),
        tails=_types(";"),
        name_of=sql_name,
    ),
    "swift": Grammar(
        "tree_sitter_swift",
        _types(
            "function_declaration init_declaration deinit_declaration subscript_declaration "
            "protocol_function_declaration typealias_declaration macro_declaration"
        ),
        containers=_types("class_declaration protocol_declaration"),
        bodies=_types("class_body enum_class_body protocol_body"),
        properties=_types("property_declaration"),
        name_of=declared_name,
    ),
    "tsx": Grammar(
        "tree_sitter_typescript",
        _TYPESCRIPT_FUNCTIONS,
        containers=_TYPESCRIPT_CONTAINERS,
        bodies=_types("class_body statement_block"),
        wrappers=_TYPESCRIPT_WRAPPERS,
        bindings=_JAVASCRIPT_BINDINGS,
        factory="language_tsx",
    ),
    "typescript": Grammar(
        "tree_sitter_typescript",
        _TYPESCRIPT_FUNCTIONS,
        containers=_TYPESCRIPT_CONTAINERS,
        bodies=_types("class_body statement_block"),
        wrappers=_TYPESCRIPT_WRAPPERS,
        bindings=_JAVASCRIPT_BINDINGS,
        factory="language_typescript",
    ),
}


def missing_grammars() -> list[str]:
    """Languages whose grammar is not installed, by name; none is loaded."""
    return [name for name in sorted(GRAMMARS) if not _is_installed(GRAMMARS[name].module)]


def parse(language: str, text: str) -> Tree | None:
    r"""Parse ``text``; rows of the syntax tree are the text's lines, split at ``\n``.

    Returns None if the grammar is not installed, or needs too many steps.
    """
    grammar = GRAMMARS[language]
    if not _is_installed(grammar.module):
        return None
    text = text.removeprefix("\ufeff")
    for pattern, replacement in grammar.rewrites:
        text = pattern.sub(replacement, text)
    raw = text.encode("utf-8", "replace")
    parser = _parser(language)
    steps = count()

    def read(offset: int, _: object) -> bytes:
        next(steps)
        return raw[offset : offset + _READ_BYTES]

    try:
        return parser.parse(read, progress_callback=lambda *_: next(steps) > _MOST_STEPS)
    except ValueError:
        parser.reset()
        return None


@cache
def _is_installed(module: str) -> bool:
    return find_spec(module) is not None


@cache
def _parser(language: str) -> Parser:
    grammar = GRAMMARS[language]
    pointer = getattr(import_module(grammar.module), grammar.factory)()
    return Parser(Language(pointer))
