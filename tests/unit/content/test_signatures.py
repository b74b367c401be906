"""Signatures and documentation of units, by their lines alone."""

from __future__ import annotations

import pytest

from content.signatures import (
    definitions_of,
    documentation_of,
    is_defined_in,
    owners_of,
    signature_of,
    symbols_of,
)


@pytest.mark.parametrize(
    ("content", "name", "signature"),
    [
        ("def flow(self, a,\n    b):\n  x", "C.flow", (10, "def flow(self, a,\n    b):")),
        ("def flow(a=[(1)],\n  b=(\n)): x", "flow", (10, "def flow(a=[(1)],\n  b=(\n)): x")),
        ("@cached\n# fast\nasync def go(x): pass", "A.go", (12, "async def go(x): pass")),
        ("func (t *T) Name(a int) error {\n x", "T.Name", (10, "func (t *T) Name(a int) error {")),
        ("pub(crate) fn run<T>(x: T) {", "m::run", (10, "pub(crate) fn run<T>(x: T) {")),
        ("static int\nfoo(int a)\n{", "foo", (11, "foo(int a)")),
        ("export const handle = () => {", "handle", (10, "export const handle = () => {")),
        ("  static Map<K, V> build(int a) {", "B.build", (10, "  static Map<K, V> build(int a) {")),
        ("int Foo::bar(int x) {", "Foo::bar", (10, "int Foo::bar(int x) {")),
        ("  def self.make(x)", "K.make", (10, "  def self.make(x)")),
        ("#define MAX(a) a", "MAX", (10, "#define MAX(a) a")),
        ('"""The class Foo does."""\nclass Foo:', "Foo", (11, "class Foo:")),
        ("  get size() {", "A.size", (10, "  get size() {")),
        ("  x = fib(n)\n  return fib(3)", "fib", None),
        ("    let y = fib(n - 1);", "fib", None),
        ("    fib(n - 1)\n  x", "fib", None),
        ("    if (fib(n)) {", "fib", None),
        ("# def flow():", "flow", None),
        ("x", "", None),
    ],
)
def test_a_signature_is_found_by_its_lines(
    content: str, name: str, signature: tuple[int, str] | None
) -> None:
    """A definition is told from a call, in the order of the languages' own habits."""
    assert signature_of(content, name, first_line=10) == signature
    assert is_defined_in(content, name) is (signature is not None)


PYTHON = """import os


class A:
    def close(self,
              now):
        os.close(1)

        if now:
            close()

    closed = 1


class B:

    @cached
    def close(self): pass


def other(close): return close
"""
GO = """package gate

type gate struct {
\topen bool
}

func (g *gate) Open() bool {
\tif valid(g) {
\t\treturn true
\t}
\treturn false
}

func valid(g *gate) bool { return true }
"""
JAVA = """class Pump {
    /** start is first */
    public void start(int n)
    {
        start(n);
    }

    int stop(
        int n
    ) {
        return n;
    }
}
"""


@pytest.mark.parametrize(
    ("content", "symbol", "lines"),
    [
        (PYTHON, "close", [(5, 10), (18, 18)]),
        (PYTHON, "A.close", [(5, 10)]),
        (PYTHON, "B::close", [(18, 18)]),
        (PYTHON, "module.close", [(5, 10), (18, 18)]),
        (PYTHON, "A", [(4, 12)]),
        (PYTHON, "B", [(15, 18)]),
        (PYTHON, "now", []),
        (GO, "gate", [(3, 5)]),
        (GO, "gate.Open", [(7, 12)]),
        (GO, "valid", [(14, 14)]),
        (GO.replace("type gate", "type lock"), "gate", [(1, 1)]),
        (JAVA, "Pump", [(1, 13)]),
        (JAVA, "stop", [(8, 12)]),
        (JAVA, "Pump.start", [(3, 6)]),
        ("", "gate", []),
    ],
)
def test_each_definition_of_a_text(content: str, symbol: str, lines: list[tuple[int, int]]) -> None:
    """Each is from its signature to its last line, without the units around and below it."""
    found = definitions_of(content, symbol, first_line=11)
    assert [(line - 10, line - 10 + text.count("\n")) for line, text in found] == lines
    assert all(
        text == "\n".join(content.split("\n")[line - 11 :][: text.count("\n") + 1])
        for line, text in found
    )


def test_a_signature_is_bounded() -> None:
    """Of brackets that stay open, and of very long lines, only the beginning is taken."""
    open_brackets = "def flow(\n" + "    a,\n" * 100
    signature = signature_of(open_brackets, "flow")
    assert signature is not None
    assert signature.text == "def flow("
    assert len(signature_of("def flow(" + "a, " * 5_000 + ")", "flow") or "") < 5_000


def test_names_and_their_owners() -> None:
    """A symbol may list units; the owners of one are outermost first."""
    assert symbols_of("A.f, A.g") == ("A.f", "A.g")
    assert symbols_of(None) == ()
    assert owners_of("a::B::c") == [("a", "a::"), ("a::B", "a::B::")]
    assert owners_of("f") == []


@pytest.mark.parametrize(
    ("text", "documentation"),
    [
        ('def go(x):\n    """Go to x.\n\n    Not back.\n    """\n', "Go to x."),
        ("def go(x):\n    r'''Go\n    to x.'''\n    # now\n", "Go\n    to x."),
        ('# fast\ndef go(x):\n    """Go to x, and then', "Go to x, and then"),
        (
            "// Go goes to x\n// at once.\n//\n// Not back.\nfunc Go(x int) {",
            "Go goes to x\n at once.",
        ),
        ("/**\n * Goes to x.\n *\n * @param x place\n */\nfunction go(x) {", "Goes to x."),
        ("#[inline]\n/// Goes to x.\nfn go(x: i32) {}", "Goes to x."),
        ("#include <x.h>\nint go(int x) {\n  *p = x; /* Go. */\n", ""),
        ("-- Go to x.\nselect x", "Go to x."),
        ("", ""),
    ],
)
def test_documentation_is_the_first_paragraph(text: str, documentation: str) -> None:
    """It is that of a docstring, else of lines of comments; a comment within a line is code."""
    assert documentation_of(text) == documentation
