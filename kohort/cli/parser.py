"""The argument parser of the command line and of its commands."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Prints errors in one line, without the usage text before it.

    Parsers of subcommands are created with the same class.
    """

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (--help tells more)\n")
