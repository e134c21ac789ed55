"""CRC-32C in C, from the crc32c package but without running the package's ``__init__``.

The package's ``__init__`` reads its own version from the installed metadata, for which Python
imports parsers of mail and zip files: 20 ms, a twentieth of the broker's startup time.
"""

import importlib.util
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _extension() -> ModuleType:
    package = importlib.util.find_spec("crc32c")
    assert package is not None, "crc32c is not installed"
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    assert spec is not None
    assert spec.loader is not None, "crc32c has no module in C"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension().crc32c
