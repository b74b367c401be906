-- name: lock_documents
select uri, id, title, position, partition, deleted, content_hash, source_id, source_revision
from documents
where generation_id = $1 and agent = $2 and uri = any ($3::text[])
order by uri
for update

-- name: advance_documents
-- The fence (events/names.py): a lower rank changes nothing and returns no row, nor does an equal
-- one unless $20.
-- A deleted document stays as a tombstone that keeps its position. A row that no transaction has
-- updated (xmax) is a new one.
insert into documents as d (
    generation_id, agent, uri, position, partition, deleted, published_at, content_hash, kind,
    media_type, title, commit, permalink_template, metadata, digest,
    source_id, source_revision, text_chunks, counted_position
)
select $1, $2, n.*
from unnest(
    $3::text[], $4::bigint[], $5::smallint[], $6::boolean[], $7::timestamptz[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::jsonb[], $15::bytea[],
    $16::text[], $17::bigint[], $18::int[], $19::bigint[]
) as n
on conflict (generation_id, agent, uri) do update
set
    position = excluded.position,
    partition = excluded.partition,
    deleted = excluded.deleted,
    published_at = excluded.published_at,
    updated_at = now(),
    content_hash = excluded.content_hash,
    kind = excluded.kind,
    media_type = excluded.media_type,
    title = excluded.title,
    commit = excluded.commit,
    permalink_template = excluded.permalink_template,
    metadata = excluded.metadata,
    digest = excluded.digest,
    text_chunks = excluded.text_chunks,
    counted_position = excluded.counted_position,
    source_id = excluded.source_id,
    source_revision = excluded.source_revision
where
    (coalesce(d.source_revision, d.position), d.position, d.partition)
    < (coalesce(excluded.source_revision, excluded.position), excluded.position, excluded.partition)
    or ($20 and (d.position, d.partition) = (excluded.position, excluded.partition))
returning uri, id, xmax = 0 as created
