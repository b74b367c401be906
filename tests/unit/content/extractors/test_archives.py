"""Safe reading of zip archives."""

from __future__ import annotations

import io
import random
import zipfile

import pytest

from content.extractors.archives import MOST_MEMBERS, open_members
from runtime.errors import Damaged, Encrypted, LegacyFormat, LimitExceeded, Poison

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def _archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_members_are_named_in_order_and_read() -> None:
    members = open_members(_archive({"b.xml": b"<b/>", "folder/": b"", "a.xml": b"<a/>"}))
    assert members.names == ("b.xml", "a.xml")
    assert members.read("a.xml") == b"<a/>"
    assert "a.xml" in members
    assert "folder/" not in members


def test_a_missing_member_is_damage() -> None:
    with pytest.raises(Damaged, match=r"no member 'c\.xml'"):
        open_members(_archive({"a.xml": b""})).read("c.xml")


def test_too_many_members_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="2,000 members"):
        open_members(_archive({f"{n}": b"" for n in range(MOST_MEMBERS + 1)}))


def test_a_directory_of_many_entries_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(LimitExceeded, match="2,000 members"):
        open_members(b"PK\x01\x02" * (10 * MOST_MEMBERS + 1))


def test_a_bomb_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="200 times"):
        open_members(_archive({"a.xml": bytes(1 << 20)}))


def test_a_small_member_may_expand_more() -> None:
    assert open_members(_archive({"a.xml": bytes(20_000)})).read("a.xml") == bytes(20_000)


def test_an_announced_size_over_the_limit_is_refused() -> None:
    raw = bytearray(_archive({"a": b"x" * 100}, zipfile.ZIP_STORED))
    entry = raw.rindex(b"PK\x01\x02")
    raw[entry + 20 : entry + 28] = (300 << 20).to_bytes(4, "little") * 2
    with pytest.raises(LimitExceeded, match="256 MiB"):
        open_members(bytes(raw))


def test_a_member_that_is_larger_than_announced_is_damage() -> None:
    raw = bytearray(_archive({"a": b"y" * 50_000}))
    entry = raw.rindex(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    with pytest.raises(Damaged, match="can't be read"):
        open_members(bytes(raw)).read("a")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_of_compression_are_refused(method: int) -> None:
    with pytest.raises(Damaged, match="method"):
        open_members(_archive({"a": b"x" * 1_000}, method))


def test_an_encrypted_member_is_refused() -> None:
    raw = bytearray(_archive({"a": b"x"}))
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(Encrypted) as refusal:
        open_members(bytes(raw))
    assert refusal.value.remedy == "save it without a password"


def test_an_encrypted_office_file_is_refused() -> None:
    with pytest.raises(Encrypted):
        open_members(_COMPOUND_FILE + bytes(512) + "EncryptedPackage".encode("utf-16-le"))


def test_an_old_office_file_is_refused() -> None:
    with pytest.raises(LegacyFormat) as refusal:
        open_members(_COMPOUND_FILE + bytes(512))
    assert ".docx" in refusal.value.remedy


@pytest.mark.parametrize("raw", [b"", b"PK", b"PK\x03\x04 and nothing else", b"plain text"])
def test_other_bytes_are_damage(raw: bytes) -> None:
    with pytest.raises(Damaged):
        open_members(raw)


def test_damaged_archives_are_read_or_refused() -> None:
    raw = _archive({"a.xml": b"<a>text</a>" * 50, "b/c.xml": b"<c/>"})
    numbers = random.Random(13)
    refused = 0
    for _ in range(2_000):
        damaged = bytearray(raw)
        for _ in range(numbers.randint(1, 4)):
            damaged[numbers.randrange(len(raw))] = numbers.randrange(256)
        try:
            members = open_members(bytes(damaged[: numbers.randint(0, 2 * len(raw))]))
            for name in members.names:
                members.read(name)
        except Poison:
            refused += 1
    assert refused > 0
