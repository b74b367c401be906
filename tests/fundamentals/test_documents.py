"""Documents, from publishing to answers: start reading here."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import pytest

from headrace import DocumentIndexed, DocumentRejected, HeadraceError, UsageError
from tests.support.dead_letters import letters
from tests.support.deliveries import deliver_again, outcomes_of
from tests.support.running import Headrace
from tests.support.waiting import eventually

RIVER = "# Weir\n\nA weir raises the level of the river so that water enters the headrace.\n"
BAKERY = "# Bread\n\nKnead the dough, let it rest, and bake it in a hot oven.\n"


async def test_a_published_document_is_found_where_it_stands(with_model: Headrace) -> None:
    """A question finds the published document and cites the lines that hold the answer."""
    await with_model.change("guide/river.md", RIVER)
    await with_model.change("guide/bread.md", BAKERY)
    answer = await with_model.client.ask("docs", "how does water get into the channel?")
    first = answer.results[0]
    assert first.citation.uri == "guide/river.md"
    lines = RIVER.splitlines()[first.citation.start_line - 1 : first.citation.end_line]
    assert first.content == "\n".join(lines)
    assert first.citation.heading_path == ("Weir",)


async def test_a_query_can_demand_to_be_as_new_as_a_change(running: Headrace) -> None:
    """The answer to a query with ``min_event`` contains that change."""
    await running.change("a.md", "The gate is painted green.")
    receipt = await running.client.upsert("docs", "a.md", "The gate is painted red.")
    answer = await running.client.ask("docs", "colour of the gate", min_event=receipt.token)
    assert not answer.stale
    assert [one.content for one in answer.results] == ["The gate is painted red."]


async def test_an_answer_says_when_it_is_stale(running: Headrace) -> None:
    """A query for a change that never comes gets a stale answer after ``max_wait``."""
    await running.change("a.md", "The gate is painted green.")
    answer = await running.client.ask(
        "docs",
        "colour of the gate",
        min_event="live:0:99999999999-0",
        max_wait=timedelta(milliseconds=50),
    )
    assert answer.stale
    assert answer.watermark["live:0"] != "0-0"


async def test_a_change_that_is_delivered_twice_takes_effect_once(running: Headrace) -> None:
    """The second delivery is a duplicate: it adds nothing, and undoes no newer change."""
    receipt = await running.client.upsert("docs", "a.md", "The gate is painted green.")
    await running.outcome(receipt)
    await running.change("a.md", "The gate is painted red.")
    await deliver_again(running)
    await running.change("b.md", "The bridge is painted blue.")

    async def outcomes() -> list[DocumentIndexed]:
        both = await outcomes_of(running, receipt)
        indexed = [outcome for outcome in both if isinstance(outcome, DocumentIndexed)]
        return indexed if len(indexed) > 1 else []

    first, second = await eventually(outcomes, "the outcomes of both deliveries")
    assert (first.data.outcome, second.data.outcome) == ("indexed", "duplicate")
    assert (first.data.chunks_added, second.data.chunks_added) == (1, 0)
    answer = await running.client.ask("docs", "colour of the gate")
    contents = [result.content for result in answer.results if result.citation.uri == "a.md"]
    assert contents == ["The gate is painted red."]


async def test_an_event_id_names_one_change(running: Headrace) -> None:
    """The same change published again is a duplicate; another change under its id is refused."""
    first = await running.client.upsert("docs", "a.md", "The gate is red.", event_id="gate")
    again = await running.client.upsert("docs", "a.md", "The gate is red.", event_id="gate")
    assert (again.duplicate, again.token) == (True, first.token)
    with pytest.raises(HeadraceError, match="gate") as refused:
        await running.client.upsert("docs", "b.md", "The bridge is blue.", event_id="gate")
    assert refused.value.code == "EventIdReused"


async def test_an_edit_can_be_bound_to_the_version_that_was_read(running: Headrace) -> None:
    """An edit of another version is rejected, and is not a dead letter."""
    before, after = "The gate is green.", "The gate is red."
    created = await running.change("a.md", before)
    read = sha256(before.encode()).hexdigest()
    edited = await running.change("a.md", after, expected_hash=read)
    lost = await running.change("a.md", "The gate is blue.", expected_hash=read)
    assert isinstance(created, DocumentIndexed)
    assert isinstance(edited, DocumentIndexed)
    assert isinstance(lost, DocumentRejected)
    assert (created.data.created, edited.data.created) == (True, False)
    assert lost.data.problem.type == "PreconditionFailed"
    answer = await running.client.ask("docs", "colour of the gate")
    assert [result.content for result in answer.results] == [after]
    assert await letters(running) == []


async def test_an_answer_can_be_limited_to_similar_chunks(with_model: Headrace) -> None:
    """Also chunks that only the keyword retriever would return are left out."""
    await with_model.change("guide/river.md", RIVER)
    await with_model.change("guide/bread.md", BAKERY)
    question = "how does water get into the channel, and not into the dough?"
    every = await with_model.client.ask("docs", question)
    assert every.searched_chunks == len(every.results) == 2
    cosines = [result.scores.vector.score for result in every.results if result.scores.vector]
    limit = sum(cosines) / 2
    similar = await with_model.client.ask("docs", question, min_similarity=limit)
    assert [result.chunk_id for result in similar.results] == [
        result.chunk_id
        for result in every.results
        if result.scores.vector and result.scores.vector.score >= limit
    ]
    assert len(similar.results) == 1
    with pytest.raises(UsageError, match="min_similarity"):
        await with_model.client.ask("docs", question, mode="keyword", min_similarity=limit)


async def test_an_explanation_has_the_words_that_match(running: Headrace) -> None:
    """Other forms of a word, parts of an identifier and corrected words are marked."""
    await running.change("limits.md", "Retry twice: connect_timeout limits the attempts.")
    answer = await running.client.ask("docs", "retries connectTimeout atempts limit", explain=True)
    [result] = answer.results
    assert result.matches is not None
    words = {
        match.term: [result.content[span.start : span.end] for span in match.spans]
        for match in result.matches
    }
    assert words == {
        "retri": ["Retry"],
        "connect": ["connect"],
        "timeout": ["timeout"],
        "attempt": ["attempts"],
        "limit": ["limits"],
    }
    assert all(match.weight > 0 for match in result.matches)
    unexplained = await running.client.ask("docs", "retries")
    assert unexplained.results[0].matches is None


async def test_an_edit_embeds_only_what_changed(running: Headrace) -> None:
    """Chunks with unchanged text keep their rows and vectors."""
    sections = [
        f"# Part {number}\n\n" + f"Sentence {number} of the book. " * 40 for number in range(6)
    ]
    before = await running.change("book.md", "\n\n".join(sections))
    sections[3] = sections[3].replace("book", "letter")
    after = await running.change("book.md", "\n\n".join(sections))
    assert isinstance(before, DocumentIndexed)
    assert isinstance(after, DocumentIndexed)
    assert 1 <= after.data.chunks_embedded <= 2
    assert after.data.chunks_kept == before.data.chunks_added - after.data.chunks_added


async def test_a_move_of_a_tree_embeds_nothing(running: Headrace) -> None:
    """The citation changes. Texts have folder and file name at most, and these stay the same."""
    await running.change("old/docs/river.md", RIVER)
    receipt = await running.client.rename("docs", "new/docs/river.md", "old/docs/river.md", RIVER)
    moved = await running.outcome(receipt)
    assert isinstance(moved, DocumentIndexed)
    assert moved.data.chunks_embedded == 0
    answer = await running.client.ask("docs", "weir")
    assert {one.citation.uri for one in answer.results} == {"new/docs/river.md"}


async def test_a_rename_embeds_a_text_without_a_title(running: Headrace) -> None:
    """Its text begins with the file name; a title takes that place, so it embeds nothing then."""
    await running.change("old.md", RIVER)
    receipt = await running.client.rename("docs", "new.md", "old.md", RIVER)
    untitled = await running.outcome(receipt)
    await running.change("titled/old.md", BAKERY, title="Bread")
    receipt = await running.client.rename(
        "docs", "titled/new.md", "titled/old.md", BAKERY, title="Bread"
    )
    titled = await running.outcome(receipt)
    assert isinstance(untitled, DocumentIndexed)
    assert isinstance(titled, DocumentIndexed)
    assert (untitled.data.chunks_embedded, titled.data.chunks_embedded) == (1, 0)


async def test_a_copy_of_a_tree_embeds_nothing(running: Headrace) -> None:
    """Vectors are cached by text, so a copy with the same folder and name needs no embedding."""
    await running.change("docs/river.md", RIVER)
    copied = await running.change("copy/of/docs/river.md", RIVER)
    assert isinstance(copied, DocumentIndexed)
    assert copied.data.chunks_added > 0
    assert copied.data.chunks_embedded == 0


async def test_a_deleted_document_is_gone(running: Headrace) -> None:
    """An answer contains no chunk of a deleted document."""
    await running.change("river.md", RIVER)
    await running.change("bread.md", BAKERY)
    await running.outcome(await running.client.delete("docs", "river.md"))
    answer = await running.client.ask("docs", "weir river headrace", limit=50)
    assert {one.citation.uri for one in answer.results} == {"bread.md"}
