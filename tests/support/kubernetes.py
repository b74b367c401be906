"""Manifests of the chart, rendered by Helm's own engine, and their validation by schema.

``python -m tests.support.kubernetes`` writes the plain manifests of deploy/kubernetes and the
numbers in hash tags of the chart again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate

from events.partitions import LARGEST_PARTITIONS, spreading_number
from tests.support.forking import ROOT

__all__ = ["CHART", "PLAIN", "TAGS", "manifests", "plain", "require_valid", "tags"]

CHART = ROOT / "deploy/kubernetes/chart"
TAGS = CHART / "tags.json"
PLAIN = {
    "headrace.yaml": "The chart with its own values",
    "scaled.yaml": "ScaledObjects of the chart with its own values, for KEDA",
}
"""Files beside the chart, and what they contain."""

_KUBERNETES = "1.30"
"""Oldest version of Kubernetes that the manifests must fit."""

_yaml: Any = import_module("yaml")  # it has no types
_NUMBER = {"type": "string", "pattern": r"^\d+$"}
_NAME = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_REDIS_STREAMS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["address", "stream", "consumerGroup", "lagCount", "activationLagCount"],
    "properties": {
        "usernameFromEnv": _NAME,
        "passwordFromEnv": _NAME,
        "consumerGroup": _NAME,
        "address": {"type": "string", "pattern": r"^[^:]+:\d+$"},
        "stream": {"type": "string", "pattern": r"^.+:\{(document|query)\.\d+(-\d+)?\}:[a-z.]+$"},
        "lagCount": _NUMBER,
        "activationLagCount": _NUMBER,
        "databaseIndex": _NUMBER,
        "enableTLS": {"enum": ["true", "false"]},
    },
}
"""Parameters of KEDA's trigger ``redis-streams`` by lag, all of them texts.

Source: keda.sh/docs/latest/scalers/redis-streams.
"""

SCALED_OBJECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "labels": _TEXTS},
        },
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["scaleTargetRef", "minReplicaCount", "maxReplicaCount", "triggers"],
            "properties": {
                "scaleTargetRef": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}},
                },
                "minReplicaCount": {"type": "integer", "minimum": 1},
                "maxReplicaCount": {"type": "integer", "minimum": 1},
                "pollingInterval": {"type": "integer", "minimum": 1},
                "triggers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["type", "metadata"],
                        "properties": {
                            "type": {"const": "redis-streams"},
                            "metadata": _REDIS_STREAMS,
                        },
                    },
                },
            },
        },
    },
}
"""The part of KEDA's ScaledObject that the chart uses.

Source: keda.sh/docs/latest/reference/scaledobject-spec.
"""


def manifests(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Objects of the chart with these values in place of its own.

    Raises:
        helm_python.HelmError: the values are refused.
    """
    return [*_parsed("\n".join(_rendered(values)))]


def plain(name: str) -> str:
    """Text of a file of ``PLAIN``."""
    scaled = name == "scaled.yaml"
    documents = [
        document.strip("\n")
        for text in _rendered({"keda": {"enabled": True}} if scaled else {})
        for document in text.split("---\n")
        if document.strip() and ("kind: ScaledObject" in document) == scaled
    ]
    first = f"# {PLAIN[name]}. Written by `python -m tests.support.kubernetes`.\n"
    return first + "".join(f"---\n{document}\n" for document in documents)


def tags() -> str:
    """Text of the chart's file of the numbers in hash tags: by family, those of partition 1 on."""
    families = ("document", "query")
    partitions = range(1, LARGEST_PARTITIONS)
    numbers = {
        family: " ".join(str(spreading_number(family, partition)) for partition in partitions)
        for family in families
    }
    return json.dumps(numbers, indent=2) + "\n"


def require_valid(manifest: Mapping[str, Any]) -> None:
    """Check an object against the schema of its kind, in which unknown fields are errors.

    Raises:
        jsonschema.ValidationError: it does not fit.
    """
    if manifest.get("kind") == "ScaledObject":
        jsonschema.validate(manifest, SCALED_OBJECT)
    else:
        kubernetes_validate.validate(manifest, _KUBERNETES, strict=True)


def _rendered(values: Mapping[str, Any] | None) -> list[str]:
    """Texts of the templates, the Jobs first."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(dict(values or {})))
        return [
            text for _, text in sorted(chart.render(dict(values or {}), name="headrace").items())
        ]


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    return (document for document in _yaml.safe_load_all(text) if document)


if __name__ == "__main__":
    TAGS.write_text(tags(), encoding="utf-8")
    for name in PLAIN:
        (CHART.parent / name).write_text(plain(name), encoding="utf-8")
