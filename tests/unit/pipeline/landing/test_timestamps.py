"""Ranges of a batch around the offsets that the driver reads."""

import random

import pytest

from kohort.pipeline.landing.timestamps import OffsetRange, outside


@pytest.mark.parametrize("seed", range(50))
def test_every_offset_is_read_once_by_the_connector_or_by_the_driver(seed: int) -> None:
    chosen = random.Random(seed)
    begins = {partition: chosen.randrange(5) for partition in range(3)}
    ends = {partition: begin + chosen.randrange(12) for partition, begin in begins.items()}
    by_driver = []
    for partition, end in ends.items():
        at = begins[partition]
        while at < end and chosen.random() < 0.7:
            first = chosen.randrange(at, end)
            at = chosen.randrange(first + 1, end + 1)
            by_driver.append(OffsetRange(partition, first, at))
    chosen.shuffle(by_driver)
    found = outside(begins, ends, by_driver)
    assert all(firsts.keys() == lasts.keys() == ends.keys() for firsts, lasts in found)
    read = [
        (partition, offset)
        for firsts, lasts in found
        for partition, first in firsts.items()
        for offset in range(first, lasts[partition])
    ]
    read += [(one.partition, offset) for one in by_driver for offset in range(one.first, one.end)]
    assert sorted(read) == [
        (partition, offset)
        for partition, begin in begins.items()
        for offset in range(begin, ends[partition])
    ]
