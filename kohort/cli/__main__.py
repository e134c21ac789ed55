"""``python -m kohort.cli``, the same as ``kohort``; also the application file of spark-submit."""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # If this file is run by its path, Python searches its directory first, and modules here, such
    # as `pipeline`, would hide other packages of the same name.
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]

    from kohort.cli import main

    sys.exit(main())
