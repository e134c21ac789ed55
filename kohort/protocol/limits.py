"""Bounds on what the codecs decode and encode."""

from typing import Final

ELEMENTS_MAX: Final = 1_000_000
"""Maximum array elements and tagged fields in one message: a bound on the memory and the time that
decoding a frame takes."""

REQUEST_ELEMENTS_MAX: Final = 50_000
"""Maximum elements of a request, which is decoded and executed in one event loop iteration; this
many take 0.1 to 0.4 s. The largest requests of clients have 40,000 (every partition of a full
broker, each in a topic of its own)."""

REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest field of a request that is copied out of its frame (all but `records`): one copy is one
step. The metadata and the assignment of a group's member are such fields; by default Kafka cannot
store more than 1 MB for a whole group."""

TEXT_BYTES_MAX: Final = 0x7FFF
"""Longest text that Kafka reads and writes, though the compact encoding allows more."""

TAGS_MAX: Final = 1_024
"""Maximum tagged fields in one structure; Kafka's own messages have fewer than ten."""

INFLATED_BYTES_LIMIT: Final = 64 << 20
"""Default limit of the inflated size of one batch. Clients build batches of 16 KiB to 1 MiB before
compression; only those that limit the compressed size come near this."""
