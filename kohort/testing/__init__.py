"""Stand-ins for what a broker or consumer has around it: time, an event loop, a disk, a socket.

They ship so that a project that embeds a part of Kohort can test it as Kohort's own tests do. Each
behaves as the real thing until it is told to fail; README.md says which to take.
"""
