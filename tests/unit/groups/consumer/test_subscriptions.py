"""The hash of subscribed topics is Kafka's: a broker that reads the other's log sees no change. The
hashes below were read from the records of type 3 of an Apache Kafka 4.4.0.
"""

import pytest

from kohort.groups.steps import at_once
from kohort.groups.topics import metadata_hash

TOPICS = {
    "asn-t": (bytes.fromhex("2c15a7ce7140442b899afc096d2d04aa"), 3),
    "asn-u": (bytes.fromhex("0920320dd1824f5eb9ff4146f126b3b1"), 5),
    "asn-v": (bytes.fromhex("074afd3c1e8949ce890f922912af3cee"), 2),
}


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        ([], 0),
        (["asn-t"], -2718549157990056013),
        (["asn-u", "asn-t"], -5612946081718611832),
        (["asn-t", "asn-v", "asn-u"], -1862910434992435081),
    ],
)
def test_the_hash_of_topics_is_that_of_kafka(names: list[str], stored: int) -> None:
    assert at_once(metadata_hash({name: TOPICS[name] for name in names})) == stored
