"""Keys, tokens and positions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.partitions import hash_tag
from events.streams.entries import order, preceding
from events.streams.groups import reached
from runtime.errors import MalformedEvent

entry_ids = st.builds(
    "{}-{}".format, st.integers(0, 2**42 - 1), st.integers(0, 3) | st.integers(0, 2**20 - 1)
)
positions = st.builds(LogPosition.of_entry, st.sampled_from(Lane), st.integers(0, 255), entry_ids)


@given(positions)
def test_a_position_survives_its_token_and_its_number(position: LogPosition) -> None:
    assert LogPosition.from_token(position.token) == position
    assert LogPosition(position.position, position.partition) == position
    assert 0 <= position.position < 2**63


@given(positions, positions)
def test_numbers_are_ordered_as_entry_ids_and_live_wins_a_tie(
    a: LogPosition, b: LogPosition
) -> None:
    def key(position: LogPosition) -> tuple[tuple[int, int], bool]:
        return order(position.entry_id), position.lane is Lane.LIVE

    assert (a.position < b.position) == (key(a) < key(b))


@given(entry_ids)
def test_the_preceding_id_is_smaller_and_a_position_still(entry_id: str) -> None:
    before = preceding(entry_id)
    assert order(before) < order(entry_id) or entry_id == before == "0-0"
    assert (
        LogPosition.of_entry(Lane.LIVE, 0, before).position
        <= LogPosition.of_entry(Lane.LIVE, 0, entry_id).position
    )


@given(entry_ids, entry_ids)
def test_a_watermark_has_reached_what_is_not_above_it(handled: str, wanted: str) -> None:
    watermark = {"live:0": handled}
    assert reached(watermark, f"live:0:{wanted}") == (order(wanted) <= order(handled))
    assert not reached(watermark, "bulk:0:1-0")


@pytest.mark.parametrize(
    "token",
    [
        *("", "live", "live:0:5", "live:0:5-", "slow:0:5-0", "live:-1:5-0", "live:0:5-0 "),
        *("live:0:٣-0", "live:0:1_0-0", "live:1000:5-0"),
        *("live:0:5-1048576", "live:0:999999999999999-0"),
    ],
)
def test_what_is_not_a_token_is_refused(token: str) -> None:
    with pytest.raises(MalformedEvent):
        LogPosition.from_token(token)


@given(st.text())
def test_no_text_breaks_the_parsing_of_tokens(text: str) -> None:
    with pytest.raises(MalformedEvent):
        LogPosition.from_token("live:" + text + "x")


def test_keys_that_one_script_touches_share_a_hash_tag() -> None:
    names = Names("app", partitions=8)
    changes = [
        names.stream(Topic.CHANGED_LIVE, 3),
        names.stream(Topic.CHANGED_BULK, 3),
        names.dead(Topic.CHANGED_LIVE, 3),
        names.seen("p", "e", 3),
        names.number_key(3),
        names.stream(Topic.OUTCOME, 3),
    ]
    queries = [names.stream(Topic.QUERY, 3), names.replies("c", 3), names.replied("q", 3)]

    assert {key.split("}")[0] for key in changes} == {f"app:{{{hash_tag('document', 3)}"}
    assert {key.split("}")[0] for key in queries} == {f"app:{{{hash_tag('query', 3)}"}
    assert len({*changes, *queries}) == 9


@pytest.mark.parametrize("family", ["document", "query"])
@pytest.mark.parametrize("masters", [3, 4, 6])
@pytest.mark.parametrize("partitions", [16, 64, 256])
def test_partitions_are_evenly_spread_over_a_cluster(
    family: str, masters: int, partitions: int
) -> None:
    """Masters have equal shares of the slots, and of the partitions; partition 0 keeps its tag."""
    tags = [hash_tag(family, partition) for partition in range(partitions)]
    shares = Counter(key_slot(tag.encode()) * masters // 16_384 for tag in tags)
    assert len(shares) == masters
    assert max(shares.values()) - min(shares.values()) <= 2
    assert tags[0] == f"{family}.0"
    assert len(set(tags)) == partitions


def test_dead_letter_topics_lie_beside_their_streams() -> None:
    names = Names()
    for topic in GROUPS:
        assert names.dead(topic) == names.stream(topic) + ".dead"


@given(st.text(), st.text(), st.integers(1, 256))
def test_a_document_has_one_partition(project: str, uri: str, partitions: int) -> None:
    names = Names(partitions=partitions)
    partition = names.partition_of(project, uri)
    assert 0 <= partition < partitions
    assert names.partition_of(project, uri) == partition
