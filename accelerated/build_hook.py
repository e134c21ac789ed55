"""Compiles the hottest modules with Cython when the package is built (a hook of hatchling).

A module is compiled if it has a `.pxd` file, which gives Cython the types of its hottest functions;
the source stays ordinary Python, and runs without a compiler. The extension module is placed next
to its source, where Python prefers it.

The codecs of the messages that brokers read and write most are compiled as well, from a source that
`accelerated/codecs` writes from the messages' declarations.

KOHORT_COMPILE=0 compiles nothing; KOHORT_COMPILE=1 makes a failure an error, for builds of wheels,
which must not silently lack the compiled modules.
"""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "kohort"

_SMALL = ["-g0", "-O2", "-fno-asynchronous-unwind-tables"]
"""Most compiled code runs once but stays resident, so its size is the cost: -O3 only
enlarges it, -Os loses half of the speedup."""

_COMPILERS_MAX = 4
"""Modules compiled in parallel: each compilation takes up to 250 MB, and the largest module a
seventh of the total time."""


class CompileHook(BuildHookInterface):  # type: ignore[misc]  # Any, where it is not installed.
    """Found by hatchling because it is the only hook in this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel with the platform."""
        del version
        wanted = os.environ.get("KOHORT_COMPILE", "")
        if wanted == "0":
            return
        root = Path(self.root)
        try:
            made = compile_modules(root)
        except Exception as error:
            if wanted == "1":
                raise
            self.app.display_warning(f"Not compiled, so slower than it could be: {error}")
            return
        build_data["artifacts"] += [f"/{path.relative_to(root)}" for path in made]
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_modules(root: Path) -> list[Path]:
    """The extension modules, each beside its source.

    Raises:
        Exception: Cython or a C compiler is missing, or the compilation fails.
    """
    # If Cython is missing, nothing is compiled.
    from Cython.Build import cythonize  # noqa: PLC0415
    from setuptools import Distribution, Extension  # noqa: PLC0415

    hot_codecs = _written_codecs(root)
    types = sorted((root / PACKAGE).rglob("*.pxd"))
    sources = [path.with_suffix(".py").relative_to(root) for path in types]
    before = Path.cwd()
    os.chdir(root)  # Cython and setuptools both name modules by their paths from here.
    try:
        extensions = cythonize(
            [
                # Largest first, because the others are compiled in parallel with it.
                Extension(
                    "kohort.protocol.hot_codecs", [str(hot_codecs)], extra_compile_args=["-g0"]
                ),
                # The platform's flags for release builds, without assertions.
                *(
                    Extension(
                        ".".join(source.with_suffix("").parts),
                        [str(source)],
                        extra_compile_args=_SMALL,
                    )
                    for source in sources
                ),
            ],
            build_dir=".cache/cython",
            # The .pxd declares machine integers; annotations mean Python's own.
            compiler_directives={
                "language_level": 3,
                "annotation_typing": False,
                # Instances are never pickled; support for it would be a third of the code.
                "auto_pickle": False,
            },
            quiet=True,
        )
        distribution = Distribution({"name": "kohort-compiled", "ext_modules": extensions})
        command: Any = distribution.get_command_obj("build_ext")
        command.inplace = True
        # Build artefacts stay out of the repository's top directory.
        command.build_temp = command.build_lib = ".cache/cython"
        command.parallel = min(os.cpu_count() or 1, _COMPILERS_MAX)
        command.ensure_finalized()
        command.run()
        made = [Path(command.get_ext_fullpath(module.name)).resolve() for module in extensions]
    finally:
        os.chdir(before)
    _remove_leftovers(root, made)
    return made


def _remove_leftovers(root: Path, made: list[Path]) -> None:
    """Delete outdated compiled modules: Python would still import them."""
    for path in (root / PACKAGE).rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
        if path.resolve() not in made:
            path.unlink()


def _written_codecs(root: Path) -> Path:
    """The generated source of the hot codecs, relative to the root."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    from accelerated.codecs.generator import source  # noqa: PLC0415

    path = Path(".cache/cython/hot_codecs.pyx")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(source(), encoding="utf-8")
    return path
