"""Kohort's own consumer: pure rules in `kohort.client.core`, sockets and threads around them.

Loggers are named `kohort.client.<module>`, so `logging.getLogger("kohort")` controls all of them.

Users import from `kohort`, never from here. `consumer` is the public interface, `engine` the
implementation behind it, `group` the group membership, `fetch` the read-ahead.
"""
