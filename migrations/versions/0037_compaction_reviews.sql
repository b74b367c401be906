-- A compaction reads old changes again only if one became old since it did so last, or came with a new file:
-- the position of its retention, and the highest segment_id of the files then. Null: it never did.
alter table archive_compactions add column review_limit bigint, add column newest_file bigint;
