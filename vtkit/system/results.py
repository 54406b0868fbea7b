"""What a stage found, as a frozen class of its own that is plain JSON in the stage's manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Self

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Result:
    """A frozen dataclass of plain values and of other such classes, written as JSON and read back."""

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, nested classes as dictionaries."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The opposite of :meth:`to_json`; what a class does not know is passed over.

        Raises:
            pydantic.ValidationError: a field without a default is missing, or a value is of another type.
        """
        made: Self = _adapter(cls).validate_python(dict(values))
        return made


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Made once for each class."""
