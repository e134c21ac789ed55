"""Compacted logs keep what Kafka promises to readers, whatever happens in their lives."""

from tests.property.compacted_life import CompactedLife
from tests.property.lived import lived

STEPS_OF_A_LIFE = 400
STEPS_SHORT = 8_000
STEPS_LONG = 1_000_000


def test_no_deleted_key_comes_back_and_no_last_value_is_lost(long_form: bool) -> None:
    steps = STEPS_LONG if long_form else STEPS_SHORT
    counts = lived(CompactedLife, lives=steps // STEPS_OF_A_LIFE, steps=STEPS_OF_A_LIFE)
    print(steps, "steps:", dict(counts))
    for what in ("runs", "short runs", "broken off", "failed", "killed", "power lost", "end lost",
                 "records deleted", "tables compared", "far timestamps"):  # fmt: skip
        assert counts[what] > 0, what
