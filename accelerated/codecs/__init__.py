"""Codecs of messages as a source of Cython, written from the declarations."""
