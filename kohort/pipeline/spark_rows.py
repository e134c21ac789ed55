"""Rows of some groups, as Spark's queries choose them."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from kohort.pipeline.catalog import text

if TYPE_CHECKING:
    from pyspark.sql import Column


def of_groups(groups: Collection[tuple[str, str]]) -> Column:
    """The condition that a row is of one of these groups, each with its cluster."""
    conditions = [
        (f.col("cluster_id") == cluster_id) & (f.col("group") == group)
        for cluster_id, group in sorted(groups)
    ]
    return reduce(or_, conditions, f.lit(False))


def of_groups_in_sql(groups: Collection[tuple[str, str]]) -> str:
    """The same in SQL."""
    told = [
        f"(cluster_id = {text(cluster_id)} AND `group` = {text(group)})"
        for cluster_id, group in sorted(groups)
    ]
    return " OR ".join(told) or "false"
