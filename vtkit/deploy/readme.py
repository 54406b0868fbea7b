"""The README of an export: the commands that lead to the first result, with a part of its own for each engine
(``templates/TARGET.md``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vtkit.deploy.documents import PASSAGE_OF
from vtkit.deploy.filters import example_of
from vtkit.deploy.network import QUANTISED, TOLERANCE
from vtkit.deploy.result import LEAST_COSINE, Target
from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.query_tables import query_encoder_of
from vtkit.system.templates import templates_of
from vtkit.system.version import __version__

if TYPE_CHECKING:
    from vtkit.deploy.documents import Collection
    from vtkit.deploy.portable import Source
    from vtkit.deploy.result import Export

Facts = dict[str, Any]  # what an engine's part of the README says of this export


def readme(source: Source, texts: int, collection: Collection | None, exported: Export, facts: Facts) -> str:
    """``README.md``; the network was compared with the encoder on so many ``texts``."""
    template = templates_of("vtkit.deploy").get_template("README.md")
    text = template.render(
        version=__version__,
        source=source,
        texts=texts,
        exported=exported,
        indexed=collection is not None,
        left_out=0 if collection is None else len(collection) - exported.documents,
        query_encoder=query_encoder_of(source.encoder),
        table=query_table(source.encoder) is not None,
        quantised=QUANTISED,
        tolerance=TOLERANCE,
        least_cosine=LEAST_COSINE,
        number="{:,}".format,
        columns={} if collection is None else collection.columns,
        passages=collection is not None and collection.passages is not None,
        example=_example(exported.target, collection),
        **facts,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _example(target: Target, collection: Collection | None) -> str | None:
    """A condition that the first document meets that has fields."""
    if collection is None or not collection.kinds:
        return None
    columns = {name: kind for name, kind in collection.columns.items() if name != PASSAGE_OF}
    documents = (collection.document(number)["fields"] for number in range(len(collection)))
    own = ({name: value for name, value in fields.items() if name in columns} for fields in documents)
    return next(filter(None, (example_of(target, columns, fields) for fields in own)), None)
