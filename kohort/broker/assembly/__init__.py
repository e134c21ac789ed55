"""Parts of the broker made from its settings or from two rooms, for :mod:`kohort.broker.app`."""
