"""Settings of every Spark that these tests start, small and on two cores."""

from pathlib import Path

from kohort.pipeline.java import LOGGING

JARS = Path(__file__).parents[2] / ".cache" / "jars"
"""Where `make` has put them."""

JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {LOGGING}"
"""For minutes of many small jobs: the second compiler would work longer than it saves."""

CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    # A table's log need not be read by many tasks where it has three entries.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    # Tables of ten rows: what makes code for large ones costs most of the time here.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
