"""A file that is there as a whole or not at all."""

from pathlib import Path


def write_whole(output: Path, text: str) -> None:
    """A file that was there is replaced as a whole or not at all; a pipe or a device is written to.

    Raises:
        OSError: it cannot be written.
    """
    if output.exists() and not output.is_file():
        output.write_text(text, encoding="utf-8")
        return
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(output)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
