"""Starts the broker: ``python -m kohort``."""

import sys

from kohort.broker.__main__ import main

sys.exit(main())
