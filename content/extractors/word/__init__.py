"""Extractor of Word documents: Mammoth makes HTML of them, which the walk over pages reads."""

from content.extractors.draft import Draft
from content.extractors.html.page import put_page
from content.extractors.word.package import WordPackage
from content.rendition import Place, Rendition
from runtime.errors import NoTextLayer

__all__ = ["extract"]

_MOST_FRAGMENT_CHARACTERS = 300


def extract(raw: bytes) -> Rendition:
    """Return the text of a document; places are paths of headings, such as ``Costs > Travel``.

    Tracked insertions are in, deletions are out. Comments follow their paragraph, the content of a
    text box follows the paragraph that it belongs to. Headers come first and footers last, each
    different one once.

    Raises:
        Encrypted: the document has a password.
        LegacyFormat: the document is a ``.doc``.
        NoTextLayer: the document has pictures and no text.
        Damaged: the archive is no Word document, or can't be read.
        LimitExceeded: the archive is over its limits, or there is more than 8 MiB of text.
    """
    package = WordPackage(raw)
    draft = Draft()
    for line in package.headers:
        draft.put(line, Place())
    title = put_page(draft, package.html(), _place, main_only=False, small_tables=True)
    draft.gap()
    for line in package.footers:
        draft.put(line, Place())
    rendition = draft.rendition(title or package.title)
    if not rendition.lines and package.has_pictures:
        raise NoTextLayer(
            "the document has pictures and no text",
            "publish a PDF of it with a text layer, made e.g. by ocrmypdf",
        )
    return rendition


def _place(_identifier: str, path: tuple[str, ...]) -> Place:
    return Place(fragment=" > ".join(path)[:_MOST_FRAGMENT_CHARACTERS])
