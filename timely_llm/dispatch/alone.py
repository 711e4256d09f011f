"""Methods of an object that run one at a time, whatever threads call them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner", bound="Alone")
Arguments = ParamSpec("Arguments")
AnyReturn = TypeVar("AnyReturn")


class Alone:
    """An object with methods that run one at a time; one of them may call another."""

    def __init__(self) -> None:
        self._running = RLock()


def alone(
    method: Callable[Concatenate[Owner, Arguments], AnyReturn],
) -> Callable[Concatenate[Owner, Arguments], AnyReturn]:
    """Return a method that waits while another thread runs such a method of its object."""

    @wraps(method)
    def waiting(self: Owner, /, *arguments: Any, **options: Any) -> AnyReturn:
        with self._running:
            return method(self, *arguments, **options)

    return waiting
