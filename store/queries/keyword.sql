-- name: insert_segment
-- A new segment; returns its id. Small ones include their postings. $7: words that maintenance must
-- add to the vocabulary, or null. Rows are only appended, so that writers never wait for each other.
with words as (
    insert into keyword_words (generation_id, words)
    select $1, $7::text where $7::text is not null
)
insert into keyword_segments (generation_id, chunks, terms, documents, postings, is_example)
values ($1, $2, $3, $4, $5, $6)
returning segment_id

-- name: insert_postings
-- The postings of a large segment: see store.search.keyword.rows for rows and their keys.
insert into keyword_postings (generation_id, segment_id, term, postings)
select $1, $2, term, postings
from unnest($3::bigint[], $4::bytea[]) as new (term, postings)

-- name: read_segments
-- Everything that a query needs, in one statement and therefore one snapshot: a merge that commits
-- at the same time has no effect on it. Segments whose ids are in $2 are cached by the client: they
-- are immutable, so their contents are not sent again. $3: keys of rows of postings. $4: the
-- segments of code examples, or those of the text. Postings of the other segments are sent too; the
-- client leaves them out.
select
    segment_id,
    chunks,
    terms,
    case when segment_id = any ($2::bigint[]) then null else documents end as documents,
    case when segment_id = any ($2::bigint[]) then null else postings end as postings,
    null::bigint as term
from keyword_segments
where generation_id = $1 and is_example = $4
union all
select segment_id, 0, 0, null, postings, term
from keyword_postings
where generation_id = $1 and term = any ($3::bigint[])

-- name: state_as_row
-- A further row of read_segments: the state of the generation, by the query of that name.
select null, is_live::int, is_covered::int, null, null, null
from ({state}) state

-- name: read_vocabulary
-- Words of these lengths, and new words that are not in the vocabulary yet (length null), newest
-- first.
select length, words
from keyword_vocabulary
where generation_id = $1 and length = any ($2::int[])
union all
(
    select null, words
    from keyword_words
    where generation_id = $1
    order by words_id desc
    limit $3
)

-- name: list_segments
-- Every segment of a generation, without its contents.
select segment_id, chunks, postings is not null as inline, is_example
from keyword_segments
where generation_id = $1
order by segment_id

-- name: read_for_merge
-- The contents of some segments.
select segment_id, documents, postings, is_example
from keyword_segments
where generation_id = $1 and segment_id = any ($2::bigint[])
order by segment_id

-- name: read_postings_for_merge
-- Every posting of one large segment.
select term, postings
from keyword_postings
where generation_id = $1 and segment_id = $2

-- name: delete_postings
delete from keyword_postings where generation_id = $1 and segment_id = any ($2::bigint[])

-- name: delete_segments
delete from keyword_segments where generation_id = $1 and segment_id = any ($2::bigint[])

-- name: take_words
-- Removes words to be added to the vocabulary. The generation's maintenance lock must be held, so
-- that no other process takes them.
delete from keyword_words
where
    generation_id = $1
    and words_id in (
        select words_id from keyword_words where generation_id = $1 order by words_id limit $2
    )
returning words

-- name: read_whole_vocabulary
select length, words from keyword_vocabulary where generation_id = $1 and length = any ($2::int[])

-- name: upsert_vocabulary
insert into keyword_vocabulary (generation_id, length, words)
select $1, length, words
from unnest($2::int[], $3::text[]) as new (length, words)
on conflict (generation_id, length) do update set words = excluded.words

-- name: alive_chunks
-- The chunks among $2 that still exist; the scope must include private ones.
select id from chunks where generation_id = $1 and id = any ($2::bigint[])

-- name: size_postings
-- Postings of some terms in large segments: bundles with the keys $4 to $5, and the size in bytes
-- of the other rows, which are not read for it.
select
    p.term,
    octet_length(p.postings) as bytes,
    case when p.term >= $4::bigint and p.term < $5::bigint then p.postings end as bundle
from keyword_postings p
join keyword_segments s on s.generation_id = p.generation_id and s.segment_id = p.segment_id
where p.generation_id = $1 and p.term = any ($2::bigint[]) and s.is_example = $3
