"""Builds parts of the broker from the settings and other packages, for :mod:`kohort.broker.app`."""
