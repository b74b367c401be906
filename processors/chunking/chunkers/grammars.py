"""Grammars of the languages that are cut by syntax tree, one entry per language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from tree_sitter import Language, Parser, Tree

__all__ = ["GRAMMARS", "Grammar", "parse"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """Node types of one language's syntax tree, and how to load its grammar.

    ``module`` and ``factory`` name the wheel's module and its function. ``functions`` and
    ``containers`` are the node types that become units; containers are opened if they do not fit.
    ``bodies`` are replaced by their children. ``wrappers`` (decorators, exports, templates) add
    their rows to the unit inside. ``bindings`` are units if they bind a function. With
    ``ascii_only``, other characters are replaced by underscores before parsing.
    """

    module: str
    functions: frozenset[str]
    containers: frozenset[str] = frozenset()
    bodies: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    bindings: frozenset[str] = frozenset()
    factory: str = "language"
    separator: str = "."
    ascii_only: bool = False


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

GRAMMARS: dict[str, Grammar] = {
    # Its scanner indexes C tables for bytes by character: "{" and an emoji can crash it.
    "bash": Grammar("tree_sitter_bash", _types("function_definition"), ascii_only=True),
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
    "go": Grammar(
        "tree_sitter_go", _types("function_declaration method_declaration type_declaration")
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


def parse(language: str, text: str) -> Tree:
    r"""Parse ``text``; rows of the syntax tree are the text's lines, split at ``\n``."""
    text = text.removeprefix("\ufeff")
    if GRAMMARS[language].ascii_only:
        text = _NOT_ASCII.sub("_", text)
    return _parser(language).parse(text.encode("utf-8", "replace"))


@cache
def _parser(language: str) -> Parser:
    grammar = GRAMMARS[language]
    pointer = getattr(import_module(grammar.module), grammar.factory)()
    return Parser(Language(pointer))
