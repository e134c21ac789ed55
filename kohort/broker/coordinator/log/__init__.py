"""Persistence of groups: the __consumer_offsets topic, and the assignment of groups to
partitions.
"""
