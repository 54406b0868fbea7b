"""Variables of a module that have another value for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def changed(variables: dict[str, Any], **values: Any) -> Iterator[None]:
    """Give ``variables``, such as the ``globals()`` of a module, other values while the block runs."""
    before = {name: variables[name] for name in values}
    variables.update(values)
    try:
        yield
    finally:
        variables.update(before)
