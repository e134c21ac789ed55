"""``python -m kohort.cli``, the same as ``kohort``."""

import sys

from kohort.cli import main

if __name__ == "__main__":
    sys.exit(main())
