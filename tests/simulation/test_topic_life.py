"""DeleteRecords, CreatePartitions and deleted topics through stops, kills and power losses."""

from collections import Counter

import pytest

from tests.simulation.topic_life import TopicLife

WORLDS_SHORT, WORLDS_LONG = 3, 200
FAILURES = 15


@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_and_nothing_deleted_comes_back(long_form: bool) -> None:
    acknowledged: Counter[str] = Counter()
    for number in range(WORLDS_LONG if long_form else WORLDS_SHORT):
        life = TopicLife(f"topics.{number}")
        life.live(FAILURES)
        for owner in life.owners:
            acknowledged.update(owner.acknowledged)
    assert min(acknowledged.values()) > WORLDS_SHORT, acknowledged
