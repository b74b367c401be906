-- A content is text or bytes. Code that knows only texts writes only texts.
alter table contents alter column content drop not null;

alter table contents add column raw bytea;

alter table contents
add constraint content_is_text_or_bytes check (num_nonnulls(content, raw) = 1);

-- Places of a chunk in a document that is not text: pages with boxes, a fragment, speakers, times,
-- lines of the original. The rows of a text have none.
alter table chunks add column locator jsonb;
