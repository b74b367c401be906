"""A way out: a generation as Parquet files, and these in a vector store."""
