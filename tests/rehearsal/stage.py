"""The folder that rehearsals run in: recipes, and the cache of the hub."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from .cache import write_repository
from .datasets import DATASETS
from .models import BERT_BASE, MODELS, bge_m3, multilingual_e5, splade_v3
from .recipes import lay_out
from .tokenizer_files import Files

HUB = "hub"


def build(
    folder: Path,
    models: Iterable[str] = MODELS,
    datasets: Iterable[str] = DATASETS,
    *,
    real: bool = False,
    embedder: Path | None = None,
) -> None:
    """Fill ``folder`` with recipes and the cache; what is there already stays.

    Args:
        models: repositories of models to write.
        datasets: repositories of data sets to write.
        real: give naver/splade-v3 the shape of BERT-base.
        embedder: a real multilingual embedder, as of :func:`tests.rehearsal.models.bge_m3`.
    """
    makers: dict[str, Callable[[], Files]] = dict(MODELS)
    if real:
        makers["naver/splade-v3"] = lambda: splade_v3(BERT_BASE)
    if embedder is not None:
        makers["BAAI/bge-m3"] = lambda: bge_m3(embedder)
        makers["intfloat/multilingual-e5-small"] = lambda: multilingual_e5(embedder)
    folder.mkdir(parents=True, exist_ok=True)
    lay_out(folder)
    wanted: list[tuple[str, str, Mapping[str, Callable[[], Files]]]] = [
        *(("model", name, makers) for name in models),
        *(("dataset", name, DATASETS) for name in datasets),
    ]
    for kind, name, source in wanted:
        if not (folder / HUB / f"{kind}s--{name.replace('/', '--')}").exists():
            write_repository(folder / HUB, kind, name, source[name]())  # type: ignore[arg-type]
