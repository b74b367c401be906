"""Operations of a deployment, for commands, routes and pages."""

from gateway.operations.operations import Operations

__all__ = ["Operations"]
