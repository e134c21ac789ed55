"""Jobs that read the broker's group history over the wire and replay it through the pure core.

Reserved: nothing is here yet. The only room of the broker it may import is `broker.core.group`.
"""
