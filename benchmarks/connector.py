"""``python -m benchmarks.connector BOOTSTRAP DIRECTORY RECORDS JARS MASTER``: land a topic.

Nothing but Spark's connector and Delta take part, in a session like that of the jobs: what landing
is compared with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from kohort.pipeline import session

TOPIC: Final = "landing"
CONF: Final = {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}


def main(bootstrap: str, directory: str, records: str, jars: str, master: str) -> None:
    """Land the topic in one batch, and print the rows that it had and its rows per second."""
    spark = session.build("connector", master=master, conf=CONF, jars_directory=Path(jars))
    session.set_log_level(spark, "ERROR")
    session.fit_to_machine(spark)
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records)
        .load()
    )
    query = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/table")
    )
    query.awaitTermination()
    batch = max(query.recentProgress, key=lambda one: one.numInputRows)
    print(batch.numInputRows, batch.processedRowsPerSecond)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
