"""JSON values as dataclasses: the type hints are the schema. Knows nothing of runs or cells."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any


class DecodeError(ValueError):
    """A value that doesn't fit its type hint; the text names the place in the document."""


def decode(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`: a scalar, `X | None`, `tuple[X, ...]`, `dict[str, X]`, a dataclass, or `object` for anything.

    Unknown keys are ignored, so that a later writer may add some. `where` names the place in messages. Raises DecodeError.
    """
    origin = typing.get_origin(hint)
    if hint is object or hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _union(typing.get_args(hint), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise DecodeError(f"{where} should be a list")
        return tuple(decode(typing.get_args(hint)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        return {key: decode(typing.get_args(hint)[1], item, f"{where}.{key}") for key, item in _mapping(value, where).items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, _mapping(value, where), where)
    return _scalar(hint, value, where)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError(f"{where} should be an object")
    return value


def _union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and types.NoneType in choices:
        return None
    problems = []
    for choice in choices:
        if choice is types.NoneType:
            continue
        try:
            return decode(choice, value, where)
        except DecodeError as problem:
            problems.append(problem)
    raise problems[0]


def _dataclass(cls: Any, source: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        place = f"{where}.{field.name}" if where else field.name
        if source.get(field.name) is not None:
            values[field.name] = decode(hints[field.name], source[field.name], place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DecodeError(f"{place} is missing")
    return cls(**values)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    # bool is an int to Python, not to a reader of the file.
    if hint is not float and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise DecodeError(f"{where} should be {({float: 'a number', int: 'a whole number', str: 'text', bool: 'true or false'})[hint]}")
