-- Code examples are chunks too, beside those of the text. They have vectors and keyword segments of
-- their own, so that the ranking of the text does not depend on them. Only generations that are cut
-- by version 2 have any, which older code cannot write.
alter table chunks add column is_example boolean not null default false;

-- Language of the code of an example, if the document names it.
alter table chunks add column language text;

-- Text around an example, by which it is found.
alter table chunks add column surroundings text;

alter table embeddings add column is_example boolean not null default false;

-- A segment holds either examples or text.
alter table keyword_segments add column is_example boolean not null default false;

-- Examples are few among all chunks, and are counted and compared without the others.
create index chunks_examples on chunks (generation_id, document_id) where is_example;

create index embeddings_examples on embeddings (generation_id, model_id) where is_example;
