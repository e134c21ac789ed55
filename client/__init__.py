"""Kohort's own consumer: pure rules in `client.core`, sockets and threads around them.

In the making: the rules (membership, heartbeats, assignors) and the connections are here, the
consumer that users will import from `kohort`, never from `client`, is not. Any Kafka client works
with the broker meanwhile.
"""
