"""The parser of the command line and of each of its commands."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, instead of a screen of usage before it.

    Parsers of commands that are added to one are of its class.
    """

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (--help tells more)\n")
