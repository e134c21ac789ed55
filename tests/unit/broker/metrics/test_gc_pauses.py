"""The meter of the garbage collector."""

import gc

from kohort.broker.metrics.stalls import GcPauseMeter


def test_collections_are_counted_by_generation_until_the_meter_is_stopped() -> None:
    meter = GcPauseMeter()
    meter.start()
    gc.collect(2)
    meter.stop()
    gc.collect(2)
    assert sum(meter.pauses[2].counts) == 1
    assert meter.pauses[2].total > 0


def test_stopping_a_meter_that_was_not_started_does_nothing() -> None:
    before = list(gc.callbacks)
    GcPauseMeter().stop()
    assert gc.callbacks == before
