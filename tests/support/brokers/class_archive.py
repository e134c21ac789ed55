"""``python -m tests.support.brokers.class_archive``: archives the classes that a Kafka loads until
it serves, as a JVM maps them into its memory (JEP 350), so that later ones start faster.

`make setup` runs it. Java starts without an archive that does not fit, as after its own update.
"""

import tempfile
from pathlib import Path

from tests.support.brokers.kafka_server import KafkaServer
from tests.support.processes import java_env


def make() -> None:
    """Start a Kafka and stop it, whereupon Java writes the archive."""
    archive = java_env.archive("broker")
    # Complete or absent: it is used as soon as it is there.
    part = archive.with_suffix(".part")
    with tempfile.TemporaryDirectory() as directory:
        server = KafkaServer(Path(directory))
        server.java_options = (*java_env.QUICK_START, f"-XX:ArchiveClassesAtExit={part}")
        server.start()
        server.stop(timeout_s=120)
    part.rename(archive)


if __name__ == "__main__":
    make()
