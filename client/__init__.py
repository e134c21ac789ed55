"""Kohort's own consumer: pure rules in `client.core`, sockets and threads around them.

Reserved: nothing is here yet. Any Kafka client works with the broker meanwhile. Users will import
from `kohort`, never from `client`.
"""
