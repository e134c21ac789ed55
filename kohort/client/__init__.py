"""Kohort's own consumer: pure rules in `kohort.client.core`, sockets and threads around them.

Loggers are `kohort.client.<module>`, so that `logging.getLogger("kohort")` is all of them.

Users import it from `kohort`, never from here. `consumer` is what they see, `engine` what goes on
behind it, `group` the consumer's place in its group, `fetcher` what reads ahead.
"""
