"""What only the garbage collector finds."""


class Knot:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.myself = self
