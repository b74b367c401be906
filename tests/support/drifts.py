"""Drifts made by SQL statements on the live generation, with the names of their findings."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DRIFTS", "Made"]


class Made(NamedTuple):
    """Statement (``$1`` is the generation) and the names of the drifts that it causes."""

    names: frozenset[str]
    statement: str


_STANDS_FOR = {
    "one_chunk": "(select max(id) from chunks where generation_id = $1)",
    "one_segment": "(select max(segment_id) from keyword_segments where generation_id = $1)",
}


def _made(names: str, statement: str) -> Made:
    for name, query in _STANDS_FOR.items():
        statement = statement.replace(name, query)
    return Made(frozenset(names.split()), statement)


DRIFTS = {
    "a deleted chunk": _made(
        "document.rows",
        """
        delete from chunks
        where
            generation_id = $1
            and document_id =
                (select id from documents where generation_id = $1 and uri = 'notes/5.md')
        """,
    ),
    "a changed text": _made(
        "document.rows",
        "update chunks set content = '!' where generation_id = $1 and id = one_chunk",
    ),
    "a changed line": _made(
        "document.rows",
        "update chunks set end_line = end_line + 1 where generation_id = $1 and agent = 'ada'",
    ),
    "a changed title": _made(
        "document.rows",
        "update documents set title = 'Other' where generation_id = $1 and uri = 'notes/6.md'",
    ),
    "changed metadata": _made(
        "document.rows",
        """
        update documents set metadata = '{"a": 1}'
        where generation_id = $1 and uri = 'notes/6.md'
        """,
    ),
    "a lost collection": _made(
        "document.rows", "delete from document_collections where generation_id = $1"
    ),
    "another content hash": _made(
        "document.content document.rows",
        """
        update documents set content_hash = repeat('0', 64)
        where generation_id = $1 and uri = 'notes/6.md'
        """,
    ),
    "another source": _made(
        "document.source",
        """
        update documents set source_id = repeat('d', 32), source_revision = position
        where generation_id = $1 and uri = 'notes/6.md'
        """,
    ),
    "a revived tombstone": _made(
        "document.not_deleted document.rows",
        "update documents set deleted = false where generation_id = $1 and uri = 'notes/2.md'",
    ),
    "a living document called deleted": _made(
        "document.deleted document.rows",
        "update documents set deleted = true where generation_id = $1 and uri = 'notes/6.md'",
    ),
    "a removed document": _made(
        "document.missing",
        """
        with gone as (
            delete from chunks c
            using documents d
            where
                c.generation_id = $1
                and d.generation_id = $1
                and d.id = c.document_id
                and d.uri = 'notes/7.md'
        )
        delete from documents where generation_id = $1 and uri = 'notes/7.md'
        """,
    ),
    "a removed tombstone": _made(
        "document.missing",
        "delete from documents where generation_id = $1 and uri = 'notes/3.md'",
    ),
    "a document that the log never had": _made(
        "document.unknown document.rows",
        """
        insert into documents (
            generation_id, uri, position, partition, kind, published_at, digest
        )
        select $1, 'intruder.md', position, partition, kind, now(), digest
        from documents
        where generation_id = $1 and uri = 'notes/7.md'
        """,
    ),
    "an older place in the log": _made(
        "document.older",
        """
        update documents set position = position - 2097152
        where generation_id = $1 and uri = 'notes/8.md'
        """,
    ),
    "a newer place in the log": _made(
        "document.newer",
        """
        update documents set position = position + 2
        where generation_id = $1 and uri = 'notes/8.md'
        """,
    ),
    "a lost vector": _made(
        "vector.missing",
        "delete from embeddings where generation_id = $1 and chunk_id = one_chunk",
    ),
    "a changed vector": _made(
        "vector.changed",
        """
        update embeddings e
        set embedding = o.embedding
        from embeddings o
        where
            e.generation_id = $1
            and o.generation_id = $1
            and e.chunk_id = (select min(id) from chunks where generation_id = $1)
            and o.chunk_id = one_chunk
        """,
    ),
    "a changed cache": _made(
        "vector.changed",
        """
        update vector_cache
        set embedding = ('[1' || repeat(',0', 383) || ']')::halfvec
        where
            content_hash =
                (select content_hash from chunks where generation_id = $1 and id = one_chunk)
        """,
    ),
    "a vector of another width": _made(
        "vector.foreign",
        """
        update embeddings set embedding = '[1,0,0]'::halfvec
        where generation_id = $1 and chunk_id = one_chunk
        """,
    ),
    "a vector of another model": _made(
        "vector.missing vector.foreign",
        """
        with other as (
            insert into models (name, dimensions) values ('other/model', 384) returning id
        )
        update embeddings
        set model_id = (select id from other)
        where generation_id = $1 and chunk_id = one_chunk
        """,
    ),
    "a removed segment": _made(
        "postings.missing",
        "delete from keyword_segments where generation_id = $1 and segment_id = one_segment",
    ),
    "all segments removed": _made(
        "postings.missing", "delete from keyword_segments where generation_id = $1"
    ),
    "a segment with a shorter list of chunks": _made(
        "postings.broken postings.missing",
        """
        update keyword_segments set documents = substring(documents from 13)
        where generation_id = $1 and segment_id = one_segment
        """,
    ),
    "a segment with fewer postings": _made(
        "postings.broken postings.missing",
        """
        update keyword_segments set postings = substring(postings for 20)
        where generation_id = $1 and segment_id = one_segment
        """,
    ),
    "a segment twice": _made(
        "postings.doubled",
        """
        insert into keyword_segments (generation_id, chunks, terms, documents, postings)
        select generation_id, chunks, terms, documents, postings
        from keyword_segments
        where generation_id = $1 and segment_id = one_segment
        """,
    ),
    "a ledger without some outcomes": _made(
        "ledger.missing",
        """
        delete from ledger
        where
            $1::int > 0
            and position in (select position from ledger order by position offset 5 limit 4)
        """,
    ),
}
