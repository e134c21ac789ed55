"""The rules of a group member: when to join, what responses mean,
and how partitions are assigned.
"""
