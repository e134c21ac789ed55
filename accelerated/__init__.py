"""The compiled modules, listed in README.md.

Used while the package is built, and by tests; never at run time.
"""
