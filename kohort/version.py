"""The version of the distribution, also for the build. Looking it up with importlib.metadata would
cost every start twenty milliseconds.
"""

VERSION = "0.1.0"
