-- Number of chunks of a document's text, code examples aside, so that a search is counted without
-- reading chunks. It holds for the version at counted_position: code that does not know the columns
-- advances the position alone. Documents written before are counted by their chunks until they change.
alter table documents add column text_chunks int;

alter table documents add column counted_position bigint;
