"""What would have happened with other settings: histories replayed through the broker's own rules.

Pure Python, no Spark: `reading` makes a `Trace` of a group's history, `replay` runs it through
`kohort.groups` in virtual time under a `Setting`, `advice` weighs the outcomes of a
grid.
"""
