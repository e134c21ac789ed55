"""``python -m kohort``, the same as ``kohort``."""

import sys

from kohort.cli import main

sys.exit(main())
