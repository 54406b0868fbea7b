"""Public collections: the records of ``collections.toml``, which name the data sets of the Hugging Face hub that hold
each collection's files. A data set without a revision is read at its newest."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from vtkit.data.parts import PARTS, Part


@dataclass(frozen=True)
class Repository:
    """A data set of the hub, and the parts of a collection to read from it."""

    id: str
    revision: str | None = None
    parts: Sequence[Part] = PARTS
    files: Mapping[Part, str] = field(default_factory=dict)
    """Pattern of the files of each part, if no README's head names them; ``{config}`` stands for the configuration."""


@dataclass(frozen=True)
class PublicCollection:
    """A judged collection of the Hugging Face hub, or one subset of it: a language, or a member."""

    name: str  # as recipes write it: ``NAME:SUBSET``, or ``NAME`` if the collection has no subsets
    title: str  # as its authors write it, for messages
    splits: Sequence[str]  # the published judgements; the first are the default
    repositories: Sequence[Repository]  # together they have all parts
    config: str = ""  # the configuration in its repositories; "" if they have only one
    own_documents: bool = False  # whether queries are documents of the same ids (RetrievalSet.own_documents)
    sampled: str | None = None
    """Why its figures cannot be compared with those of the whole collection; None if it is whole."""


def _records() -> Iterator[PublicCollection]:
    tables = tomllib.loads(files("vtkit.data").joinpath("collections.toml").read_text("utf-8"))
    for name, table in tables.items():
        for subset, own in table.pop("subsets").items():
            facts = table | own
            facts["repositories"] = [Repository(**repository) for repository in facts["repositories"]]
            facts["config"] = facts.get("config", "").format(subset=subset)
            yield PublicCollection(f"{name}:{subset}" if subset else name, **facts)


PUBLIC: Mapping[str, PublicCollection] = {record.name: record for record in _records()}
"""All public collections by name. The READMEs of mteb's copies of BEIR and MS MARCO name their files."""

OWN_DOCUMENTS = frozenset(record.name.partition(":")[2] for record in PUBLIC.values() if record.own_documents)
"""Collections of BEIR whose queries are documents: BEIR and MTEB leave a query's own document out of its results."""
