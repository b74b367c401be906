comment on column keyword_postings.term is
    'hash of a term, or the key of a bundle of terms: see store.search.keyword.rows';
