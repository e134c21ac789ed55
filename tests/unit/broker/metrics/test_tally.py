"""Histograms and recent maxima."""

from kohort.broker.metrics.tally import HistogramTally, RecentMaximum


def test_an_observation_on_a_bound_is_in_the_bucket_of_that_bound() -> None:
    tally = HistogramTally((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        tally.observe(value)
    assert tally.counts == [2, 2, 1]
    assert tally.total == 7.5


def test_adding_a_histogram_counts_all_it_has_counted_and_leaves_it_alone() -> None:
    one, other = HistogramTally((1.0,)), HistogramTally((1.0,))
    one.observe(0.5)
    other.observe(5.0)
    one.add(other)
    assert (one.counts, one.total) == ([1, 1], 5.5)
    assert (other.counts, other.total) == ([0, 1], 5.0)


def test_a_maximum_is_remembered_for_one_period_at_least_and_two_at_most() -> None:
    maximum = RecentMaximum(period_s=60)
    maximum.observe(7.0, now_s=100)
    maximum.observe(3.0, now_s=101)
    assert maximum.value_at(159) == 7.0
    maximum.observe(2.0, now_s=161)
    assert maximum.value_at(170) == 7.0
    maximum.observe(1.0, now_s=230)
    assert maximum.value_at(231) == 2.0


def test_a_maximum_of_long_ago_is_forgotten_though_no_one_asked_meanwhile() -> None:
    maximum = RecentMaximum(period_s=60)
    maximum.observe(7.0, now_s=100)
    assert maximum.value_at(1000) == 0.0
