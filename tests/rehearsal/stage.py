"""The folder that rehearsals run in: recipes, and the cache of the hub."""

from pathlib import Path

from .cache import write_repository
from .datasets import DATASETS
from .models import MODELS
from .recipes import lay_out

HUB = "hub"


def build(folder: Path) -> None:
    """Fill ``folder`` with recipes and the cache; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    lay_out(folder)
    for kind, makers in (("model", MODELS), ("dataset", DATASETS)):
        for name, make in makers.items():
            if not (folder / HUB / f"{kind}s--{name.replace('/', '--')}").exists():
                write_repository(folder / HUB, kind, name, make())  # type: ignore[arg-type]
