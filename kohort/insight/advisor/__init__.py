"""Predicts the effect of other settings by replaying a group's history through the group core.

Pure Python, no Spark: `reading` makes a `Trace` of a group's history, `replay` runs it through
`kohort.groups` in virtual time under a `Setting`, and `advice` compares the outcomes of a grid of
settings.
"""
