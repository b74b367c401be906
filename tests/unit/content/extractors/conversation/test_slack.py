"""Exports of Slack."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from content.extractors.conversation.extractor import extract
from content.extractors.conversation.slack import to_markdown
from tests.support.containers import zip_of
from tests.support.forking import ROOT

ARCHIVE = ROOT / "tests/data/content/conversation/slack-testarchive.zip"
USERS = [
    {"id": "U1", "name": "ana", "profile": {"display_name": "Ana", "real_name": "Ana Ash"}},
    {"id": "U2", "name": "ben", "profile": {"display_name": "", "real_name": "Ben Birch"}},
]


def message(ts: str, text: str, user: str = "U1", **fields: object) -> Mapping[str, object]:
    return {"type": "message", "ts": ts, "text": text, "user": user, **fields}


def export(days: Mapping[str, object], **lists: object) -> bytes:
    files = {f"{name}.json": value for name, value in lists.items()} | dict(days)
    return zip_of({name: json.dumps(value) for name, value in files.items()})


def lines_of(raw: bytes) -> list[str]:
    return [line for line in extract(raw).lines if line]


def test_a_real_export() -> None:
    """Each channel and day is a section, and each turn has a speaker, a time and a place."""
    rendition = extract(ARCHIVE.read_bytes())
    assert [section.name for section in rendition.sections if section.level == 1] == [
        "enrique",
        "traveling-sailor",
    ]
    days = [section for section in rendition.sections if section.level == 2]
    assert len(days) == 18
    assert all(section.alone for section in days)
    assert len(rendition.places) == 147
    assert all(place.speakers and place.time for place in rendition.places)
    text = "\n".join(rendition.lines)
    assert "has joined the channel" not in text
    assert "<@U" not in text
    assert "**hamza** (2016-01-15 05:55): Need that done before it can be used in victoria" in text
    assert text.count("```") % 2 == 0


def test_threads_and_days() -> None:
    """Replies stand below their thread, other messages below their day, by time, over files."""
    raw = export(
        {
            "dev/2026-03-03.json": [
                message("1772496000.1", "late", "U2", thread_ts="1772409600.1")
            ],
            "dev/2026-03-02.json": [
                message("1772413200.2", "alone", "U2"),
                message("1772409600.1", "start", thread_ts="1772409600.1"),
                message("1772409660.1", "note", thread_ts="1772409660.1"),
            ],
        },
        users=USERS,
        channels=[{"id": "C1", "name": "dev"}],
    )
    assert lines_of(raw) == [
        "# dev",
        "## Thread 2026-03-02 00:00:00",
        "**Ana** (2026-03-02 00:00): start",
        "**Ben Birch** (2026-03-03 00:00): late",
        "## 2026-03-02",
        "**Ana** (2026-03-02 00:01): note",
        "**Ben Birch** (2026-03-02 01:00): alone",
    ]


def test_names_of_channels_and_speakers() -> None:
    """Direct messages are named after people, bots by their names, unknown users by their ids."""
    raw = export(
        {
            "x/D1/2026-03-02.json": [
                message("1.1", "a", "U9"),
                message("1.2", "b", "U8", user_profile={"real_name": "Guest"}),
                message("1.3", "c", "", bot_profile={"name": "Forge"}),
                message("1.4", "d", "", username="cron"),
                message("1.5", "e", "", bot_id="B1"),
            ]
        },
        **{"x/users": USERS, "x/dms": [{"id": "D1", "members": ["U1", "U2"]}]},
    )
    rendition = extract(raw)
    assert rendition.lines[0] == "# Ana, Ben Birch"
    speakers = [place.speakers[0] for place in rendition.places]
    assert speakers == ["U9", "U8", "Forge", "cron", "bot"]


def test_content_beside_the_text() -> None:
    """Previews, fields, blocks and names of files are text of the turn; notices are left out."""
    raw = export(
        {
            "dev/2026-03-02.json": [
                message("1.1", "", attachments=[{"pretext": "p", "title": "t", "fallback": "f"}]),
                message("1.2", "", attachments=[{"fields": [{"title": "State", "value": "ok"}]}]),
                message("1.3", "", attachments=[{"fallback": "f"}]),
                message("1.4", "", files=[{"name": "plan.pdf"}]),
                message("1.5", "", blocks=BLOCKS),
                message("1.6", "has joined", subtype="channel_join"),
                message("1.7", " "),
                {"type": "message", "ts": [], "subtype": [], "text": {}, "files": 1},
                [],
                None,
            ]
        },
    )
    assert lines_of(raw)[2:] == [
        "**U1** (1970-01-01 00:00): p",
        "t",
        "**U1** (1970-01-01 00:00): State: ok",
        "**U1** (1970-01-01 00:00): f",
        "**U1** (1970-01-01 00:00): [file: plan.pdf]",
        "**U1** (1970-01-01 00:00): Deploy",
        "it is done",
    ]


BLOCKS = [
    {"type": "header", "text": {"type": "plain_text", "text": "Deploy"}},
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [{"type": "text", "text": "it is "}, {"type": "text", "text": "done"}],
            }
        ],
    },
]


def test_a_damaged_day_is_left_out() -> None:
    """The other days are read, and a warning counts the damaged ones."""
    raw = zip_of(
        {
            "channels.json": "nonsense",
            "dev/2026-03-01.json": "[",
            "dev/2026-03-02.json": json.dumps([message("1.1", "kept")]),
        }
    )
    rendition = extract(raw)
    assert rendition.lines[-1].endswith("kept")
    assert rendition.warnings == ("1 files of a day can't be read",)


def test_a_file_of_a_day() -> None:
    """A day without its export has the names in it, and lines of the file."""
    text = json.dumps([message("1772409600.1", "a"), message("1772409601.1", "b", "U2")], indent=1)
    rendition = extract(text.encode())
    assert rendition.lines[0] == "# 2026-03-02"
    assert [place.lines for place in rendition.places] == [(2, 7), (8, 13)]
    assert extract(json.dumps({"messages": json.loads(text)}).encode()).lines == rendition.lines


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("<@U1> and <@U9|zoe> and <@U8>", "@Ana and @zoe and @U8"),
        ("<#C1|dev> <!here> <!subteam^S1|@ops>", "#dev @here @ops"),
        ("<!date^1^{date}|Monday>", "Monday"),
        ("<https://a.org/x> <https://a.org|a.org>", "https://a.org/x https://a.org"),
        ("<https://a.org|the page>", "[the page](https://a.org)"),
        ("<mailto:a@b.org|a@b.org>", "a@b.org"),
        ("1 &lt; 2 &amp;&amp; 3", "1 < 2 && 3"),
        ("see ```a\nb``` end", "see\n```\na\nb\n```\nend"),
        ("```x```", "```\nx\n```"),
        ("an odd ``` fence", "an odd ``` fence"),
    ],
)
def test_markup(text: str, markdown: str) -> None:
    """References are resolved, entities are decoded, and fences stand on lines of their own."""
    assert to_markdown(text, {"U1": "Ana"}) == markdown


FILE = {"title": "plan", "permalink": "https://acme.slack.com/files/U1/F1/plan.pdf"}


def permalinks(raw: bytes) -> list[str | None]:
    return [place.permalink for place in extract(raw).places]


def test_messages_have_addresses_where_the_workspace_is_known() -> None:
    """The link to a file names the workspace, and the lists of channels their ids."""
    days = {
        "dev/2026-03-03.json": [
            message("1772496000.000100", "one", files=[FILE]),
            message("1772496001.000200", "two", thread_ts="1772496000.000100"),
            message("broken", "three"),
        ],
        "D024BE91L/2026-03-03.json": [message("1772496003.000300", "four")],
        "gone/2026-03-03.json": [message("1772496004.000400", "five")],
    }
    raw = export(
        days, users=USERS, channels=[{"id": "C1", "name": "dev"}], dms=[{"id": "D024BE91L"}]
    )
    assert sorted(map(str, permalinks(raw))) == [
        "None",
        "None",
        "https://acme.slack.com/archives/C1/p1772496000000100",
        "https://acme.slack.com/archives/C1/p1772496001000200?thread_ts=1772496000.000100",
        "https://acme.slack.com/archives/D024BE91L/p1772496003000300",
    ]


@pytest.mark.parametrize(
    "link",
    ["https://acme.slack.com.example.org/files/a", "javascript:alert(1)//.slack.com/files/", ""],
)
def test_other_links_to_files_name_no_workspace(link: str) -> None:
    """Only an address of Slack is taken for that of the workspace."""
    file = {**FILE, "permalink": link}
    raw = export(
        {"dev/2026-03-03.json": [message("1772496000.000100", "one", files=[file])]},
        channels=[{"id": "C1", "name": "dev"}],
    )
    assert permalinks(raw) == [None]


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ("https://acme.slack.com/archives/C1/p1", "https://acme.slack.com/archives/C1/p1"),
        ("javascript:alert(1)", None),
        ("https://example.org/a b", None),
        (7, None),
    ],
)
def test_the_address_of_a_message_is_one_of_the_web(own: object, kept: str | None) -> None:
    """A link that a browser would run is left out."""
    raw = json.dumps([message("1772496000.1", "one", permalink=own)]).encode()
    assert permalinks(raw) == [kept]
