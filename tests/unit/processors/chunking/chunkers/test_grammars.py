"""Definitions of each language, with the names that people search for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import dedent

import pytest

from processors.chunking.chunkers import grammars
from processors.chunking.chunkers.grammars import GRAMMARS, missing_grammars, parse
from processors.chunking.chunkers.syntax import units_of
from processors.chunking.packing.outline import Unit
from tests.support.chunking import cut

DEFINITIONS = {
    "dart": (
        """
        import 'dart:async';

        /// A counter.
        @immutable
        class Counter extends StatefulWidget with Shown {
          const Counter({super.key});
          Counter.from(this.start) : super();
          factory Counter.json(Map<String, int> json) => Counter();
          final int start = 1;
          // the view
          @override
          Widget build(BuildContext context) {
            return Text('$start');
          }
          int get total => start;
          Counter operator +(Counter other) => this;
          void reset();
        }
        mixin Shown on Object {
          void show() {}
        }
        extension Words on String {
          String shout() => toUpperCase();
        }
        typedef Handler = void Function(int);
        Future<void> main(List<String> arguments) async {
          runApp(const Counter());
        }
        """,
        {
            "Counter": 3,
            "Counter.Counter": 6,
            "Counter.from": 7,
            "Counter.json": 8,
            "Counter.build": 10,
            "Counter.total": 15,
            "Counter.operator +": 16,
            "Counter.reset": 17,
            "Shown": 19,
            "Shown.show": 20,
            "Words": 22,
            "Words.shout": 23,
            "Handler": 25,
            "main": 26,
        },
    ),
    "dockerfile": (
        """
        # syntax=docker/dockerfile:1
        ARG VERSION=3

        # compiles
        FROM golang:${VERSION} AS build
        WORKDIR /src
        # the modules first
        COPY go.mod .
        RUN go build \\
            -o /server

        FROM scratch
        COPY --from=build /server /server
        ENTRYPOINT ["/server"]
        """,
        {"build": 4, "scratch": 12},
    ),
    "elixir": (
        """
        defmodule Shop.Cart do
          use Ecto.Schema

          @doc "Adds an item."
          @spec add(t, Item.t) :: t
          def add(cart, item) when is_map(cart) do
            [item | cart]
          end

          # nothing to add
          defp none, do: []
          def left <> right, do: left
          defimpl String.Chars, for: Cart do
            def to_string(cart), do: cart.name
          end
          describe "an empty cart" do
            test "has no items", %{cart: cart} do
              assert cart == []
            end
          end
        end
        """,
        {
            "Shop.Cart": 1,
            "Shop.Cart.add": 4,
            "Shop.Cart.none": 10,
            "Shop.Cart.<>": 12,
            "Shop.Cart.String.Chars": 13,
            "Shop.Cart.String.Chars.to_string": 14,
            "Shop.Cart.describe an empty cart": 16,
            "Shop.Cart.describe an empty cart.test has no items": 17,
        },
    ),
    "hcl": (
        """
        terraform {
          required_version = ">= 1.0"
        }

        # the web server
        resource "aws_instance" "web" {
          ami = data.aws_ami.ubuntu.id
          ebs_block_device {
            volume_size = 10
          }
        }

        locals {
          region = "eu"
          tags = {
            team = "docs"
          }
        }
        """,
        {
            "terraform": 1,
            "resource.aws_instance.web": 5,
            "resource.aws_instance.web.ebs_block_device": 8,
            "locals": 13,
            "locals.tags": 15,
        },
    ),
    "kotlin": (
        """
        package shop

        /** Carts by id. */
        @Singleton
        class Carts(private val store: Store) : Repository<Cart> {
            private val cache = mutableMapOf<Id, Cart>()
            var size: Int
                get() = cache.size
            init { store.open() }
            constructor(url: String) : this(Store(url))

            // from the cache
            @Throws(IOException::class)
            override suspend fun find(id: Id): Cart? {
                return cache[id]
            }

            companion object {
                fun create() = Carts(Store())
            }
            fun `is empty`() = size == 0
        }

        fun <T> List<T>.second(): T = this[1]
        fun String.shout() = uppercase()
        typealias Handler = (String) -> Unit
        fun interface Listener {
            fun changed()
        }
        object Registry {
            fun clear() {}
        }
        """,
        {
            "Carts": 3,
            "Carts.size": 7,
            "Carts.init": 9,
            "Carts.constructor": 10,
            "Carts.find": 12,
            "Carts.create": 19,
            "Carts.is empty": 21,
            "List.second": 24,
            "String.shout": 25,
            "Handler": 26,
            "Listener": 27,
            "Listener.changed": 28,
            "Registry": 30,
            "Registry.clear": 31,
        },
    ),
    "lua": (
        """
        local M = {}

        --- Adds two numbers.
        -- @param a number
        function M.add(a, b)
          return a + b
        end

        function M:rename(name) self.name = name end
        local function helper() end
        local handler = function(event) return event end
        M.other = function() end
        local limits = { most = 1 }
        return M
        """,
        {"M.add": 3, "M:rename": 9, "helper": 10, "handler": 11, "M.other": 12},
    ),
    "objc": (
        """
        #import "Cart.h"
        NS_ASSUME_NONNULL_BEGIN

        typedef NS_ENUM(NSInteger, CartState) {
          CartStateOpen
        };

        /// A cart.
        @interface Cart : NSObject <Shown>
        @property (nonatomic, copy) NSString *name;
        - (instancetype)initWithName:(NSString *)name limit:(int)limit NS_DESIGNATED_INITIALIZER;
        @end

        static int helper(int x) { return x; }

        @implementation Cart {
          int _limit;
        }

        // opens it
        - (instancetype)initWithName:(NSString *)name limit:(int)limit {
          return self;
        }
        #if DEBUG
        + (void)dump { }
        #endif
        @end

        @implementation Cart (Prices)
        - (int)total { return 1; }
        @end
        NS_ASSUME_NONNULL_END
        """,
        {
            "CartState": 4,
            "Cart": 8,
            "Cart.initWithName:limit:": 11,
            "helper": 14,
            "Cart (2)": 16,
            "Cart.initWithName:limit: (2)": 20,
            "Cart.dump": 25,
            "Cart (3)": 29,
            "Cart.total": 30,
        },
    ),
    "scala": (
        """
        package shop

        /** Carts by id. */
        class Carts[F[_]](store: Store) extends Base {
          private val cache = Map.empty[Id, Cart]
          // from the cache
          def find(id: Id): F[Option[Cart]] = {
            cache.get(id)
          }
          val routes = HttpRoutes.of[F] {
            case GET -> Root => Ok()
          }
        }
        object Carts {
          def apply() = new Carts(null)
        }
        trait Shape { def area: Double }
        enum Color(val code: Int):
          case Red extends Color(1)
          def hex = code.toHexString

        extension (text: String)
          def shout: String = text.toUpperCase

        given order: Ordering[Cart] with
          def compare(left: Cart, right: Cart) = 0
        """,
        {
            "Carts": 3,
            "Carts.find": 6,
            "Carts.routes": 10,
            "Carts (2)": 14,
            "Carts.apply": 15,
            "Shape": 17,
            "Shape.area": 17,
            "Color": 18,
            "Color.hex": 20,
            "String": 22,
            "String.shout": 23,
            "order": 25,
            "order.compare": 26,
        },
    ),
    "sql": (
        """
        -- people
        CREATE TABLE shop.people (
          id bigint PRIMARY KEY
        );

        /* who pays */
        CREATE OR REPLACE VIEW "paying" AS SELECT * FROM shop.people;
        CREATE UNIQUE INDEX people_name ON shop.people (name);
        INSERT INTO shop.people VALUES (1);
        BEGIN;
        ALTER TABLE shop.people ADD COLUMN age int;
        COMMIT;
        CREATE FUNCTION total(a int, b int) RETURNS int AS $$
        BEGIN
          RETURN a + b;
        END;
        $$ LANGUAGE plpgsql;
        """,
        {
            "shop.people": 1,
            "paying": 6,
            "people_name": 8,
            "shop.people (2)": 11,
            "total": 13,
        },
    ),
    "swift": (
        """
        import UIKit

        /// A form.
        @available(iOS 13, *)
        public final class LoginView: UIView, Themed {
            private var name: String = ""
            lazy var label: UILabel = {
                let label = UILabel()
                return label
            }()

            init(frame: CGRect) { super.init(frame: frame) }
            deinit { close() }

            /// Logs in.
            @objc func login(user: String) async throws -> Bool {
                return true
            }
            subscript(index: Int) -> Int { index }
            static func == (left: LoginView, right: LoginView) -> Bool { true }
        }
        extension Array where Element: Hashable {
            func unique() -> [Element] { [] }
        }
        protocol Themed {
            func apply(_ theme: Theme)
        }
        enum Direction { case north, south }
        """,
        {
            "LoginView": 3,
            "LoginView.label": 7,
            "LoginView.init": 12,
            "LoginView.deinit": 13,
            "LoginView.login": 15,
            "LoginView.subscript": 19,
            "LoginView.==": 20,
            "Array": 22,
            "Array.unique": 23,
            "Themed": 25,
            "Themed.apply": 26,
            "Direction": 28,
        },
    ),
}


def named(units: Sequence[Unit], owner: str, separator: str) -> Iterator[tuple[str, int]]:
    """Qualified names of all definitions, with their first lines; outer ones come first."""
    for unit in units:
        name = separator.join(filter(None, (owner, unit.name)))
        if unit.name:
            yield name, unit.start + 1
        if unit.expand is not None:
            yield from named(unit.expand(), name, separator)


@pytest.mark.parametrize("language", DEFINITIONS)
def test_definitions_have_the_names_that_people_use(language: str) -> None:
    """Each definition has its name, and begins with the comment or attribute above it."""
    indented, expected = DEFINITIONS[language]
    text = dedent(indented).strip("\n")
    tree = parse(language, text)
    assert tree is not None
    units = units_of(tree.root_node, 0, text.count("\n") + 1, GRAMMARS[language])
    definitions: dict[str, int] = {}
    for name, line in named(units, "", GRAMMARS[language].separator):
        times = sum(before.partition(" (")[0] == name for before in definitions)
        definitions[f"{name} ({times + 1})" if times else name] = line
    assert definitions == expected


def test_rewritten_texts_keep_their_rows() -> None:
    """Lines that the parser misreads are replaced without moving the lines below."""
    text = "NS_ASSUME_NONNULL_BEGIN\n\n\n@interface Cart\n- (void)open;\n@end\n"
    (chunk,) = cut("Cart.h", text)
    assert chunk.symbol == "Cart"
    assert chunk.content == text.rstrip("\n")


def test_clauses_of_a_function_are_named_once() -> None:
    """A function of several clauses is one name in the symbol of their chunk."""
    clauses = "def shape(:square), do: 4\ndef shape(:circle), do: 0\ndef area(_), do: 1\n"
    (chunk,) = cut("shapes.exs", clauses)
    assert chunk.symbol == "shape, area"


def test_code_without_its_grammar_is_cut_by_indentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that is not installed is named, and its language is cut without symbols."""
    absent = replace(GRAMMARS["lua"], module="tree_sitter_of_a_missing_wheel")
    monkeypatch.setitem(GRAMMARS, "lua", absent)
    assert missing_grammars() == ["lua"]
    assert parse("lua", "x = 1") is None
    (chunk,) = cut("a.lua", "function one()\nend\n")
    assert chunk.symbol is None


def test_a_text_that_takes_too_long_to_parse_is_cut_by_indentation() -> None:
    """The parser gives up on a text that is not of its language, and reads the next one."""
    assert parse("lua", "- " * 50_000) is None
    assert len(cut("a.lua", "- " * 50_000)) > 10
    (chunk,) = cut("a.lua", "function one()\nend\n")
    assert chunk.symbol == "one"


def test_the_limit_of_a_parser_does_not_depend_on_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text needs the same number of steps each time, also after another one was given up."""
    text = "def f(x):\n    return [x, (x + 1) * 2]\n" * 400
    fewest = next(most for most in range(1_000) if _is_parsed(monkeypatch, text, most))
    for most, is_parsed in ((fewest - 1, False), (fewest, True)) * 2:
        assert _is_parsed(monkeypatch, "- " * 500, 0) is False
        assert _is_parsed(monkeypatch, text, most) is is_parsed


def _is_parsed(monkeypatch: pytest.MonkeyPatch, text: str, most_steps: int) -> bool:
    monkeypatch.setattr(grammars, "_MOST_STEPS", most_steps)
    return parse("python", text) is not None


def test_grammars_are_loaded_when_their_language_is_met() -> None:
    """A parser process starts without a grammar, so that more of them do not slow it."""
    program = (
        "import sys; from processors.chunking import registry; "
        "print(sorted(name for name in sys.modules if name.startswith('tree_sitter_')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
