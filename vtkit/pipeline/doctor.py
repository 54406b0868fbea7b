"""The state of this machine and of the installation: versions, device, the hub, disk, extras, and what is amiss."""

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from vtkit.data import hub
from vtkit.system.console import size
from vtkit.system.errors import free_bytes
from vtkit.system.runtime import bf16_is_fast, threads, user_cache
from vtkit.system.version import __version__

FOR_AUTHORS = {"dev", "docs", "test"}  # extras that only developers of vtkit need
LITTLE_DISK = 5 * 10**9  # bytes free, below which usual runs are likely to fail


@dataclass(frozen=True)
class Finding:
    """One property of the machine or the installation."""

    about: str
    found: str
    state: Literal["ok", "note", "amiss"] = "ok"  # `note`: a limit; `amiss`: vtkit cannot work
    remedy: str = ""


def examine(runs: Path) -> Iterator[Finding]:
    """Examine this machine, without the network."""
    import torch

    yield Finding("vtkit", f"{__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    try:
        requirements = [Requirement(line) for line in importlib.metadata.requires("vtkit") or ()]
    except importlib.metadata.PackageNotFoundError:  # run from its folder, not installed
        requirements = []
    needed = [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    wrong = [problem for each in needed if (problem := _wrong(each)) is not None]
    shown = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")
        if name not in [problem.split()[0] for problem in wrong]
    )
    install = "pip install -c constraints.txt -e ."
    if not needed:
        yield Finding("packages", shown, "note", f"vtkit is not installed here; {install}")
    elif wrong:
        yield Finding("packages", "; ".join(wrong), "amiss", install)
    else:
        yield Finding("packages", f"{shown}; all {len(needed)} meet the requirements")

    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        yield Finding("accelerator", f"{card.name}, {size(card.total_memory)}, CUDA {torch.version.cuda}")
    if torch.version.cuda is not None and not torch.cuda.is_available():
        remedy = "check the driver with nvidia-smi, or install torch without CUDA: it is several gigabytes smaller"
        yield Finding("accelerator", f"none that torch (built for CUDA {torch.version.cuda}) can use", "note", remedy)
    elif not torch.cuda.is_available():
        yield Finding("accelerator", "none: everything runs on the processor")
    fast = "in hardware; training uses it, and --precision bf16 encodes with it"
    yield Finding("bf16", fast if bf16_is_fast() else "not in hardware, or off by VTKIT_BF16")

    passive = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    waiting = "they sleep while they wait, since other programs use the cores" if passive else "a core is free for each"
    yield Finding("threads", f"{threads()} on {os.cpu_count()} cores: {waiting}")

    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    offline = " and ".join(name for name in names if os.environ.get(name) not in (None, "", "0"))
    if offline:
        yield Finding("hub", f"{hub.cache_folder()}; {offline} keep it offline", "note", "unset to use --download")
    else:
        yield Finding("hub", str(hub.cache_folder()))

    places = {
        "runs": runs.absolute(),
        "hub's cache": hub.cache_folder(),
        "vtkit's cache": user_cache("").absolute(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    for name, place in places.items():
        there, free = next(each for each in (place, *place.parents) if each.exists()), free_bytes(place)
        room = f"{place}: {size(free)} free of {size(shutil.disk_usage(there).total)}"
        if not os.access(there, os.W_OK):
            yield Finding(f"disk, {name}", f"{room}; it cannot be written to", "note", "name another place")
        elif free < LITTLE_DISK:
            yield Finding(f"disk, {name}", room, "note", "free some space; `vtkit clean` shows unused outputs")
        else:
            yield Finding(f"disk, {name}", room)

    by_extra: dict[str, list[Requirement]] = {}
    for each in requirements:
        for extra in set(re.findall(r"extra == .([\w-]+).", str(each.marker))) - FOR_AUTHORS:
            by_extra.setdefault(extra, []).append(each)
    for extra, packages in sorted(by_extra.items()):
        if wrong := [problem for each in packages if (problem := _wrong(each)) is not None]:
            yield Finding(f"extra {extra}", "; ".join(wrong), "note", f"pip install 'vtkit[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "installed")


def _wrong(requirement: Requirement) -> str | None:
    """The reason why a package does not satisfy its requirement; None if it does."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} is not {requirement.specifier}"
