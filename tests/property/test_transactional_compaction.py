"""Compaction never loses a committed value nor shows an aborted one, whatever happens to a log."""

from tests.property.lived import lived
from tests.property.transactional_life import TransactionalLife

STEPS_OF_A_LIFE = 250
STEPS_SHORT = 2_500
STEPS_LONG = 500_000


def test_the_last_committed_value_of_every_key_is_kept_and_no_aborted_one(
    long_form: bool,
) -> None:
    steps = STEPS_LONG if long_form else STEPS_SHORT
    counts = lived(TransactionalLife, lives=steps // STEPS_OF_A_LIFE, steps=STEPS_OF_A_LIFE)
    print(steps, "steps:", dict(counts))
    for what in ("runs", "short runs", "commit", "abort", "tables compared", "power lost"):
        assert counts[what] > 0, what
