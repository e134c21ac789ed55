"""Reads partitions: the sockets, tasks and timers around `kohort.client.core.fetch`."""
