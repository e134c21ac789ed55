"""What is compiled: see README.md.

Used while the package is built, and by tests; never at run time.
"""
