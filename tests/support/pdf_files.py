"""PDFs made in a test, object by object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["PdfFile", "PdfPage", "prose"]

WIDTH, HEIGHT = 612, 792
_WIDTHS = " ".join(["500"] * 256)  # of each character, in thousandths of the size


def prose(words: int = 40) -> str:
    """Return so many words of text that differ from each other."""
    return " ".join(f"word{number}" for number in range(words))


@dataclass
class PdfPage:
    """Page of 612 by 792 points; positions count from its lower left corner."""

    content: list[str] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    extra: str = ""
    image: bool = False

    def text(self, x: float, y: float, text: str, size: float = 10) -> PdfPage:
        """Write a line of text; each character is half as wide as the size."""
        return self.turned_text(x, y, text, (1, 0, 0, 1), size)

    def turned_text(
        self,
        x: float,
        y: float,
        text: str,
        matrix: tuple[float, float, float, float],
        size: float = 10,
    ) -> PdfPage:
        """Write a line of text with a matrix."""
        escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        placed = " ".join(f"{value:g}" for value in (*matrix, x, y))
        self.content.append(f"BT /F1 {size:g} Tf {placed} Tm ({escaped}) Tj ET")
        return self

    def lines(self, x: float, top: float, lines: Sequence[str], size: float = 10) -> PdfPage:
        """Write lines below each other, the first at ``top``."""
        for number, line in enumerate(lines):
            self.text(x, top - 1.2 * size * number, line, size)
        return self

    def rule(self, x: float, y: float, end_x: float, end_y: float) -> PdfPage:
        """Draw a line."""
        self.content.append(f"{x:g} {y:g} m {end_x:g} {end_y:g} l S")
        return self

    def comment(self, text: str, author: str = "") -> PdfPage:
        """Add a note."""
        self.annotations.append(
            "<< /Type /Annot /Subtype /Text /Rect [10 10 30 30]"
            f" /Contents ({text}) /T ({author}) >>"
        )
        return self

    def scan(self) -> PdfPage:
        """Cover the page with an image."""
        self.image = True
        self.content.append(f"q {WIDTH} 0 0 {HEIGHT} 0 0 cm /Im1 Do Q")
        return self


@dataclass
class PdfFile:
    """Document of pages. ``outline`` is rows of title and index of a page."""

    pages: Sequence[PdfPage]
    title: str = ""
    outline: Sequence[tuple[str, int]] = ()
    fields: Sequence[tuple[str, str]] = ()
    attachment: str = ""

    def write(self) -> bytes:
        """Return the bytes of the document."""
        self._objects: list[str] = []
        catalog, tree = self._new(""), self._new("")
        font = self._new(
            "<< /Type /Font /Subtype /Type1 /BaseFont /Courier /FirstChar 0 /LastChar 255"
            f" /Widths [{_WIDTHS}] /Encoding /WinAnsiEncoding >>"
        )
        image = self._stream(
            "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray"
            " /BitsPerComponent 8",
            "\x7f",
        )
        resources = f"<< /Font << /F1 {font} 0 R >> /XObject << /Im1 {image} 0 R >> >>"
        widgets = [
            self._new(
                "<< /Type /Annot /Subtype /Widget /FT /Tx /Rect [50 50 200 70]"
                f" /T ({name}) /V ({value}) >>"
            )
            for name, value in self.fields
        ]
        kids = []
        for number, page in enumerate(self.pages):
            content = self._stream("", "\n".join(page.content))
            notes = [f"{self._new(note)} 0 R" for note in page.annotations]
            notes += [f"{widget} 0 R" for widget in widgets] if number == 0 else []
            kids.append(
                self._new(
                    f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 {WIDTH} {HEIGHT}]"
                    f" /Resources {resources} /Contents {content} 0 R"
                    f" /Annots [{' '.join(notes)}] {page.extra} >>"
                )
            )
        listed = " ".join(f"{kid} 0 R" for kid in kids)
        self._objects[tree - 1] = f"<< /Type /Pages /Kids [{listed}] /Count {len(kids)} >>"
        entries = f"<< /Type /Catalog /Pages {tree} 0 R"
        if self.outline:
            entries += f" /Outlines {self._outline(kids)} 0 R"
        if widgets:
            fields = " ".join(f"{widget} 0 R" for widget in widgets)
            entries += f" /AcroForm << /Fields [{fields}] >>"
        if self.attachment:
            file = self._new(f"<< /Type /Filespec /F ({self.attachment}) >>")
            names = f"[({self.attachment}) {file} 0 R]"
            entries += f" /Names << /EmbeddedFiles << /Names {names} >> >>"
        self._objects[catalog - 1] = entries + " >>"
        properties = self._new(f"<< /Title ({self.title}) >>")
        return self._file(f"/Root {catalog} 0 R /Info {properties} 0 R")

    def _outline(self, kids: Sequence[int]) -> int:
        root = self._new("")
        numbers = range(root + 1, root + 1 + len(self.outline))
        for number, (title, page) in zip(numbers, self.outline, strict=True):
            following = f" /Next {number + 1} 0 R" if number + 1 in numbers else ""
            self._new(
                f"<< /Title ({title}) /Parent {root} 0 R"
                f" /Dest [{kids[page]} 0 R /XYZ 0 700 0]{following} >>"
            )
        self._objects[root - 1] = (
            f"<< /Type /Outlines /First {numbers[0]} 0 R /Last {numbers[-1]} 0 R >>"
        )
        return root

    def _new(self, text: str) -> int:
        self._objects.append(text)
        return len(self._objects)

    def _stream(self, entries: str, data: str) -> int:
        return self._new(f"<< {entries} /Length {len(data)} >>\nstream\n{data}\nendstream")

    def _file(self, trailer: str) -> bytes:
        body = b"%PDF-1.7\n"
        offsets = []
        for number, text in enumerate(self._objects, 1):
            offsets.append(len(body))
            body += f"{number} 0 obj\n{text}\nendobj\n".encode("cp1252")
        count = len(offsets) + 1
        table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
        body += (
            f"xref\n0 {count}\n0000000000 65535 f \n{table}"
            f"trailer\n<< /Size {count} {trailer} >>\nstartxref\n{len(body)}\n%%EOF\n"
        ).encode("ascii")
        return body
