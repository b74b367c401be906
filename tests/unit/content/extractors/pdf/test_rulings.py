"""Edges of what is drawn on a page."""

from __future__ import annotations

import pytest

from content.extractors.pdf import rulings
from content.extractors.pdf.document import open_document
from content.extractors.pdf.rulings import Edge, Rulings, joined_edges, near, read_rulings
from tests.support.pdf_files import PdfFile, PdfPage


def rulings_of(page: PdfPage, quarters: int = 0) -> Rulings:
    with open_document(PdfFile([page]).write()) as document, document.page(0) as opened:
        assert opened is not None
        return read_rulings(opened.handle, quarters)


def drawn(*operators: str) -> PdfPage:
    return PdfPage(content=list(operators))


def test_lines_are_edges() -> None:
    read = rulings_of(PdfPage().rule(100, 500, 300, 500).rule(100, 400, 100, 500))

    assert len(read.across) == len(read.down) == 1
    assert read.across[0] == pytest.approx((500, 100, 300), abs=1)
    assert read.down[0] == pytest.approx((100, 400, 500), abs=1)


def test_a_thin_rectangle_is_an_edge() -> None:
    assert rulings_of(drawn("100 500 200 1 re f")).across == [Edge(500.5, 100, 300)]


def test_a_rectangle_has_four_edges() -> None:
    read = rulings_of(drawn("100 500 200 40 re S"))

    assert sorted(read.across) == [Edge(500, 100, 300), Edge(540, 100, 300)]
    assert sorted(read.down) == [Edge(100, 500, 540), Edge(300, 500, 540)]


def test_slanted_and_short_lines_are_not_edges() -> None:
    read = rulings_of(drawn("100 500 m 300 600 l S", "100 400 m 105 400 l S"))

    assert (read.across, read.down, read.paths) == ([], [], 2)


def test_a_matrix_moves_an_edge() -> None:
    assert rulings_of(drawn("q 2 0 0 2 10 20 cm 50 100 100 10 re f Q")).across == [
        Edge(220, 110, 310),
        Edge(240, 110, 310),
    ]


def test_edges_are_turned_with_the_page() -> None:
    read = rulings_of(drawn("500 100 1 200 re f"), quarters=1)

    assert read.down == []
    assert read.across == [Edge(-500.5, 100, 300)]


def test_images_are_counted() -> None:
    assert rulings_of(PdfPage().scan()).images == 1


def test_the_number_of_paths_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulings, "MOST_PATHS", 3)

    read = rulings_of(drawn(*("100 500 200 1 re f",) * 5))

    assert (read.paths, len(read.across)) == (3, 3)


def test_collinear_edges_that_nearly_touch_are_joined() -> None:
    edges = [Edge(500, 100, 200), Edge(501, 203, 300), Edge(500.5, 320, 400), Edge(490, 100, 200)]

    joined = joined_edges(edges)

    assert [(edge.start, edge.end) for edge in joined] == [(100, 200), (100, 300), (320, 400)]
    assert joined[1].at == pytest.approx(500.5)


def test_near_edges_are_a_run_of_the_sorted_ones() -> None:
    edges = [Edge(at, 0, 1) for at in (1.0, 2.0, 3.0, 4.0)]

    assert near(edges, 2.0, 3.5) == edges[1:3]
    assert near(edges, 5.0, 9.0) == []
