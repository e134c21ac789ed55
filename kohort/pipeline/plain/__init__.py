"""The findings about one group in plain Python, without Spark and Java: for a history that fits
into memory. Rows are those of the lake's tables, made by the same rules as `transformations` has;
moments are milliseconds since 1970, and their columns end in `_at_ms` instead of `_at`.
"""
