"""The OpenAPI document against the gateway: its examples, and generated requests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.transport import Response as CheckedResponse
from schemathesis.generation.modes import GenerationMode

from gateway.auth.callers import Right
from gateway.http.openapi import Operation, operations
from tests.support.databases import Database
from tests.support.gateways import Gateway, gateway
from tests.support.running import headrace
