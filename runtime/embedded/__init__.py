"""Postgres 18 with pgvector and Redis as child processes, for a machine without such servers."""

from runtime.embedded.postgres import EmbeddedPostgres, PostgresUrls
from runtime.embedded.redis import EmbeddedRedis, RedisBinary, find_redis

__all__ = ["EmbeddedPostgres", "EmbeddedRedis", "PostgresUrls", "RedisBinary", "find_redis"]
