"""Limits on the messages and records that the codecs decode and encode."""

from typing import Final

ELEMENTS_MAX: Final = 1_000_000
"""Maximum array elements and tagged fields in one message: a bound on the memory and the time that
decoding a frame takes."""

REQUEST_ELEMENTS_MAX: Final = 50_000
"""Maximum elements of a request. The largest requests of clients have 40,000 (every partition of a
full broker, each in a topic of its own)."""

PRODUCE_ELEMENTS_MAX: Final = 15_000
"""Maximum elements of a Produce request, which is decoded and answered in one step. A producer's
default `max.request.size` of 1 MB has room for 14,000 of the smallest batches."""

REQUEST_BYTES_MAX: Final = 10 * 1024 * 1024
"""Maximum bytes of all texts and bytes fields of a request, which are copied out of its frame
(`records` are not): a handler may copy, store or return them in one step. 40,000 topic names of 249
characters fit, and the metadata and assignments of any group that Kafka can store by default (a
record of 1 MB)."""

PRODUCE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Maximum bytes of the topic names and the transactional id of a Produce request."""

TEXT_BYTES_MAX: Final = 0x7FFF
"""Longest text that Kafka reads and writes, though the compact encoding allows more."""

TAGS_MAX: Final = 1_024
"""Maximum tagged fields in one structure; Kafka's own messages have fewer than ten."""

INFLATED_BYTES_LIMIT: Final = 64 << 20
"""Default limit of the inflated size of one batch. Clients build batches of 16 KiB to 1 MiB before
compression; only those that limit the compressed size come near this."""
