"""Arguments of the library's functions: one that a function has not is refused by naming the one that was meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from dsgen.shapes.errors import DsgenError, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["WrongArgumentError", "named"]

P = ParamSpec("P")
R = TypeVar("R")

_MEANT = {"hw": "hardware", "gpus": "world_size"}  # as the command line and scenarios say it -> as Python does


class WrongArgumentError(DsgenError, TypeError):
    """An argument that a function of the library has not; a TypeError too, as any other function raises it."""


def named(said_in_dict: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that it names the right argument when it is called with a wrong one.

    Args:
        said_in_dict: Words that are no arguments but belong into the dict that is the function's first one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        known: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def checked(*positional: P.args, **keywords: P.kwargs) -> R:
            for name in keywords:
                if name not in known:
                    raise _wrong(f"dsgen.{function.__name__}", name, known, said_in_dict)
            return function(*positional, **keywords)

        return checked

    return decorate


def _wrong(function: str, name: str, known: tuple[str, ...], said_in_dict: Collection[str]) -> WrongArgumentError:
    meant = (_MEANT[name],) if _MEANT.get(name) in known else nearest(name, known)
    todo = offer(meant)
    if name in said_in_dict and name not in _MEANT.values():
        more = "" if name in ("hw", "model") else f', "{name}": ...'
        todo = f'Say it in a dict: {function}({{"hw": "a100-40g", "model": "7b"{more}}}).'
    return WrongArgumentError(
        f"{function} has no argument {name}", must=f"it takes {', '.join(known)}", todo=todo, code="unknown-name"
    )
