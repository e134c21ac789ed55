"""``python -m kohort.cli``, the same as ``kohort``; and the file that spark-submit is given."""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # Started by its path, Python looks for modules beside it first: `pipeline` would be the
    # commands of that name here, and not the package.
    sys.path[:] = [place for place in sys.path if not place or Path(place).resolve() != here]

    from kohort.cli import main

    sys.exit(main())
