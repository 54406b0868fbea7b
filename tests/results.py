"""Results of stages as small as their classes allow, for tests of what keeps and reads them."""

import types
from collections import abc
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vtkit.system.results import Result

R = TypeVar("R")


def smallest(kind: type[R]) -> R:
    """A ``kind`` whose fields without a default are zero, empty or the first thing allowed; of a dictionary or list,
    one entry."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return kind({"collection": smallest(arguments[1])})  # type: ignore[call-arg]
    if origin is list:
        return kind([smallest(arguments[0])])  # type: ignore[call-arg]
    if not is_dataclass(kind):
        return kind()
    hints = get_type_hints(kind)
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return kind(**{name: _smallest(hints[name]) for name in needed})


def _smallest(hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return None if type(None) in get_args(hint) else _smallest(get_args(hint)[0])
    if origin is Literal:
        return get_args(hint)[0]
    if origin in (dict, abc.Mapping):
        return {}
    if origin is tuple and Ellipsis not in get_args(hint):
        return tuple(map(_smallest, get_args(hint)))
    if origin in (tuple, abc.Sequence):
        return ()
    return smallest(hint) if issubclass(hint, Result) else hint()
