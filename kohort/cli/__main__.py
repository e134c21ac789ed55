"""``python -m kohort.cli``, the same as ``kohort``; also the application file of spark-submit."""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # Started by its path, Python searches this directory first, so `pipeline` would be the module
    # here instead of the package.
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]

    from kohort.cli import main

    sys.exit(main())
