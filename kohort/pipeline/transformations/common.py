"""What several transformations need."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.schemas import Table

GROUP: Final = ("cluster_id", "group")


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """The columns of a table, in its order and of its types."""
    return frame.select(
        *(
            f.col(column.name)
            .cast(column.type)
            .alias(column.name, metadata={"comment": column.meaning})
            for column in table.columns
        )
    )
