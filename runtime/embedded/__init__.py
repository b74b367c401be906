"""Real servers of one's own, for a machine that has none: Postgres 18 with pgvector, and Redis."""

from runtime.embedded.postgres import EmbeddedPostgres, PostgresUrls
from runtime.embedded.redis import EmbeddedRedis, RedisBinary, find_redis

__all__ = ["EmbeddedPostgres", "EmbeddedRedis", "PostgresUrls", "RedisBinary", "find_redis"]
