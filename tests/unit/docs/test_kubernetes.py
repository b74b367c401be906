"""The chart and the plain manifests fit the schemas of their kinds, and the code."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from events.names import GROUPS, Names, Topic
from processors.worker import ROLES
from runtime.settings import Settings

helm = pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this platform")

from tests.support.kubernetes import (  # noqa: E402 - it imports helm_python too
    CHART,
    PLAIN,
    TAGS,
    manifests,
    plain,
    require_valid,
    tags,
)

EVERYTHING: dict[str, Any] = {
    "keda": {"enabled": True},
    "bridge": {"secret": "headrace-bridge"},
    "partitions": 2,
    "secrets": ["headrace-keys"],
    "settings": {"HEADRACE_MODEL": "openai/text-embedding-3-small", "HEADRACE_CONCURRENCY": 4},
    "redis": {"tls": True},
    "postgres": {"options": "sslmode=require", "replica": "standby"},
    "image": {"tag": "2026-11-24"},
}
Change = Callable[[dict[str, Any]], object]


def of_kind(kind: str, objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found
        for found in objects
        if found["kind"] == kind
    }


def container_of(workload: dict[str, Any]) -> dict[str, Any]:
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


@pytest.fixture(scope="module")
def everything() -> list[dict[str, Any]]:
    return manifests(EVERYTHING)


def test_all_manifests_are_valid(everything: list[dict[str, Any]]) -> None:
    """Of the chart with its own values, and with every option."""
    assert helm.lint(CHART, strict=True)["errors"] == []
    for manifest in [*manifests(), *everything]:
        require_valid(manifest)


def test_the_chart_has_the_hash_tags_of_all_partitions() -> None:
    assert TAGS.read_text(encoding="utf-8") == tags()


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_manifests_are_those_of_the_chart(name: str) -> None:
    assert (CHART.parent / name).read_text(encoding="utf-8") == plain(name)


def test_each_role_has_a_deployment_with_its_rights(everything: list[dict[str, Any]]) -> None:
    """Only the Jobs know the owner's password; each role has users of its own and a budget."""
    deployments = of_kind("Deployment", everything)
    assert deployments.keys() == ROLES.keys() | {"gateway", "bridge"}
    assert deployments.keys() == of_kind("PodDisruptionBudget", everything).keys()
    assert of_kind("Job", everything).keys() == {"migrate", "access"}
    for role, deployment in deployments.items():
        container = container_of(deployment)
        user = role if role in {"answerer", "gateway"} else "worker"
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        named = {name.removeprefix("HEADRACE_").lower() for name in variables}
        assert named - Settings.model_fields.keys() == {f"{user}_password", "redis_user"}
        assert variables["HEADRACE_REDIS_URL"] == (
            f"rediss://$(REDIS_USER):$(HEADRACE_{user.upper()}_PASSWORD)@redis:6379/0"
        )
        assert variables["REDIS_USER"] == f"headrace_{user}"
        assert f"//headrace_{user}:" in str(variables["HEADRACE_DATABASE_URL"])
        assert variables["HEADRACE_READ_DATABASE_URL"] == str(
            variables["HEADRACE_DATABASE_URL"]
        ).replace("@postgres:", "@standby:")
        assert "OWNER" not in str(deployment)
        if role != "gateway":
            assert container["args"][:3] == ["worker", "--only", role]


def test_keda_scales_by_the_lag_of_each_stream(everything: list[dict[str, Any]]) -> None:
    """The streams and groups are those that the workers read; one pod always stays."""
    names = Names(partitions=EVERYTHING["partitions"])
    scaled = of_kind("ScaledObject", everything)
    judged = {names.stream(Topic.JUDGED, partition) for partition in range(names.partitions)}
    expected: dict[str, set[str]] = {}
    for topic, group in GROUPS.items():
        streams = {names.stream(topic, partition) for partition in range(names.partitions)}
        expected[group] = expected.get(group, set()) | streams - judged
    triggers = {
        role: [trigger["metadata"] for trigger in found["spec"]["triggers"]]
        for role, found in scaled.items()
    }
    assert {
        role: {trigger["stream"] for trigger in rows} for role, rows in triggers.items()
    } == expected
    assert all(row["consumerGroup"] == role for role, rows in triggers.items() for row in rows)
    deployments = of_kind("Deployment", everything)
    for role, found in scaled.items():
        assert found["spec"]["minReplicaCount"] >= 1
        assert "replicas" not in deployments[role]["spec"], "KEDA sets them"
        variables = {entry["name"] for entry in container_of(deployments[role])["env"]}
        assert all(row["usernameFromEnv"] in variables for row in triggers[role])
        assert all(row["passwordFromEnv"] in variables for row in triggers[role])


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Deployment", lambda spec: spec.update(replica=2)),
        ("Deployment", lambda spec: spec.pop("selector")),
        ("Deployment", lambda spec: spec["template"]["spec"]["containers"][0].pop("name")),
        ("PodDisruptionBudget", lambda spec: spec.update(maxUnavailable=[1])),
        ("Job", lambda spec: spec.update(backoffLimit="ten")),
        ("Service", lambda spec: spec["ports"][0].update(prt=1)),
        ("ScaledObject", lambda spec: spec.update(scaleTargetRef={})),
        ("ScaledObject", lambda spec: spec.update(minReplicaCount=0)),
        ("ScaledObject", lambda spec: spec["triggers"][0]["metadata"].update(lagCount=5)),
        ("ScaledObject", lambda spec: spec["triggers"][0]["metadata"].pop("stream")),
        ("ScaledObject", lambda spec: spec["triggers"][0].update(type="redis-stream")),
    ],
)
def test_wrong_manifests_are_refused(
    everything: list[dict[str, Any]], kind: str, change: Change
) -> None:
    wrong = deepcopy(next(found for found in everything if found["kind"] == kind))
    change(wrong["spec"])
    with pytest.raises(jsonschema.ValidationError):
        require_valid(wrong)


@pytest.mark.parametrize(
    "values",
    [
        {"indexer": {"replica": 2}},
        {"partitions": 0},
        {"archive": "/archive"},
        {"settings": {"MODEL": "x"}},
        {"bridge": {"brokers": ["kafka:9092"]}},
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm.HelmError):
        manifests(values)
