"""Settings of ``vtkit encode``: how texts become vectors, and which part of them; a recipe's are in ``[index]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.index import PassagesSection
from vtkit.settings.types import PositiveInt, Section


class EncodeSettings(Section):
    """How texts are encoded. A setting that is not given is that of ``[index]``: of the run that the encoder comes
    from, else its default."""

    side: Literal["query", "document"] = "document"
    """The prompt, and the half of an asymmetric encoder, that encodes the texts."""

    max_length: Annotated[int, Field(ge=3, le=1_000_000)] | None = None
    """Cut texts at this many tokens. Default: 256, for queries 64; or the run's."""

    top_dimensions: PositiveInt | None = None
    """Largest weights to keep per text. Default: all, or as the run needs them."""

    mass: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the sum of a document's weights to keep, the largest first. Default: 0.85 for units of an embedder, all
    for other encoders (docs/evaluation.md); or the run's."""

    precision: Literal["float32", "bf16"] | None = None
    """Precision of the encoder's matrix products. ``bf16`` is several times faster on GPUs and processors that support
    it, and several times slower on others; it changes weights by about 1 %. Default: float32, or the run's."""

    passages: PassagesSection | None = None
    """Passages that documents are cut into."""

    part: str | None = None
    """Encode only this part, e.g. 3/16; ``join`` puts the parts together."""

    join: PositiveInt | None = None
    """Encode nothing; put together so many parts that ``part`` encoded."""

    def _faults(self) -> Iterator[str]:
        if self.part is not None and self.join is not None:
            yield "part and join cannot be combined: first encode each part, then join them"
        documents = [name for name in ("mass", "passages") if getattr(self, name) is not None]
        if documents and self.side == "query":
            yield f"{' and '.join(documents)}: these are for documents. Leave them out for queries"
