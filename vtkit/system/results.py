"""Results and records: frozen dataclasses that are kept as plain JSON, in the manifest of a stage or a file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from vtkit.system.checksums import read_record
from vtkit.system.errors import DataError


@dataclass(frozen=True)
class Result:
    """A frozen dataclass of plain values and of other such classes, written as JSON and read back."""

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, nested classes as dictionaries."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The opposite of :meth:`to_json`; fields that the class does not have are ignored."""
        return adapter_of(cls).validate_python(dict(values))  # type: ignore[no-any-return]

    def to_file(self, path: Path) -> None:
        """Write it to ``path`` as JSON."""
        path.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def from_file(cls, path: Path, remedy: str) -> Self:
        """The opposite of :meth:`to_file`.

        Args:
            remedy: what to do about a file that cannot be used, for the message.
        """
        try:
            return cls.from_json(read_record(path, remedy))
        except (ValueError, TypeError) as error:  # pydantic's ValidationError is a ValueError
            raise DataError(f"{path} is damaged ({type(error).__name__}). {remedy}") from error


adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # one for each kind
