"""Isolation of records that repeatedly fail (KIP-1222): as deliveries of a range are used up,
fewer of its records are delivered together, at last one by one.
"""


def throttle_threshold(limit: int) -> int:
    """Return the delivery count from which on an Available record throttles its range."""
    raise NotImplementedError


def offsets_to_take(range_size: int, delivery_count: int, limit: int) -> int:
    """Return the most offsets that are acquired from a throttled range.

    `range_size` is the size when it was first acquired, `delivery_count` that of the first
    Available offset at or above the threshold.
    """
    raise NotImplementedError
