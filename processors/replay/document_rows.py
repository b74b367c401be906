"""Row numbers of documents by their key, packed: some 25 bytes for each besides agent and uri."""

from __future__ import annotations

from array import array

from events.names import DocumentKey

__all__ = ["DocumentRows"]

_EMPTY = -1
_FIRST_SLOTS = 64


class DocumentRows:
    """Numbers of documents from 0 on, in the order in which they were added.

    A dictionary of keys would take some 300 bytes for each document. This is a hash table with open
    addressing over one buffer that has all keys. At most two thirds of its slots are in use.
    """

    def __init__(self) -> None:
        self._texts = bytearray()
        self._ends = array("q")
        self._hashes = array("q")
        self._slots = array("i", [_EMPTY]) * _FIRST_SLOTS

    def __len__(self) -> int:
        return len(self._ends)

    def find(self, key: DocumentKey) -> int | None:
        """Row of a document. Returns None if it has none."""
        text = _encoded(key)
        row = self._slots[self._slot(text, hash(text))]
        return None if row == _EMPTY else row

    def add(self, key: DocumentKey) -> int:
        """Row of a document, which is a new one if it has none."""
        text = _encoded(key)
        hashed = hash(text)
        slot = self._slot(text, hashed)
        row = self._slots[slot]
        if row != _EMPTY:
            return row
        row = len(self._ends)
        self._slots[slot] = row
        self._texts += text
        self._ends.append(len(self._texts))
        self._hashes.append(hashed)
        if 3 * len(self._ends) > 2 * len(self._slots):
            self._grow()
        return row

    def key(self, row: int) -> DocumentKey:
        """Key of the document in a row."""
        agent, _, uri = self._text(row).decode("utf-8", "surrogatepass").partition("\0")
        return DocumentKey(agent, uri)

    def _text(self, row: int) -> bytearray:
        return self._texts[self._ends[row - 1] if row else 0 : self._ends[row]]

    def _slot(self, text: bytes, hashed: int) -> int:
        """Slot that has the row of a key, or the empty one for it."""
        mask = len(self._slots) - 1
        slot = hashed & mask
        while (row := self._slots[slot]) != _EMPTY:
            if self._hashes[row] == hashed and self._text(row) == text:
                break
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        slots = array("i", [_EMPTY]) * (2 * len(self._slots))
        mask = len(slots) - 1
        for row, hashed in enumerate(self._hashes):
            slot = hashed & mask
            while slots[slot] != _EMPTY:
                slot = (slot + 1) & mask
            slots[slot] = row
        self._slots = slots


def _encoded(key: DocumentKey) -> bytes:
    """The key as bytes; neither an agent nor a uri has the character NUL."""
    return f"{key[0]}\0{key[1]}".encode("utf-8", "surrogatepass")
