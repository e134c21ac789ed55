"""Isolation of records that repeatedly fail (KIP-1222): as deliveries of a range are used up,
fewer of its records are delivered together, at last one by one.
"""


def throttle_threshold(limit: int) -> int:
    """Return the delivery count from which on an Available record throttles its range."""
    return max(2, (limit + 1) // 2)


def records_to_take(range_size: int, delivery_count: int, limit: int) -> int:
    """Return the most records that are acquired from a throttled range.

    `range_size` is the size when it was first acquired, `delivery_count` that of the first
    Available record at or above the threshold. Records before that one count, too, but are taken
    in any case.
    """
    return max(1, range_size >> (delivery_count - throttle_threshold(limit) + 1))


def is_last_delivery(delivery_count: int, limit: int) -> bool:
    """Check whether the next delivery of an Available record is its last, so that it is delivered
    alone. A limit of 2 leaves no delivery for isolation.
    """
    return limit > 2 and delivery_count >= limit - 1
