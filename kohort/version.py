"""The version of the distribution, read by the build as well: asking the installed metadata for it
would cost every start twenty milliseconds.
"""

VERSION = "0.1.0"
