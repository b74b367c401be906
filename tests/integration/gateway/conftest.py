"""A gateway beside a worker, which the tests of a module share."""

from __future__ import annotations

from tests.support.gateways import deployed, served

__all__ = ["deployed", "served"]
