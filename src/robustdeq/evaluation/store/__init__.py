"""The store: Parquet shards, their schema, and the typed manifest."""
