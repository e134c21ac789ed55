"""The causes of rebalances: a pure fold of a group's events into records,
and their presentation.
"""
