"""Arguments of the library's functions: one that a function has not, or of a type that it does not take, is refused."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["WrongArgumentError", "names_arguments", "path_of", "text_of"]

P = ParamSpec("P")
R = TypeVar("R")

_MEANT = {"hw": "hardware", "gpus": "world_size"}  # as the command line and scenarios say it -> as Python does


class WrongArgumentError(DsgenError, TypeError):
    """An argument that a function of the library has not; a TypeError too, as any other function raises it."""


def names_arguments(said_in_dict: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
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


def path_of(given: object, must: str = "it must be a dict, or the path of a file") -> str:
    """The path that an argument is, where it is no dict.

    Raises:
        DsgenError: Neither text nor a path of text.
    """
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        if isinstance(path, str):
            return path
    raise mistake(f"{given!r} names no file", must=must)


def text_of(given: object, argument: str, example: str) -> str:
    """An argument that is text, as it is.

    Args:
        given: The argument.
        argument: Its name.
        example: A right one.

    Raises:
        DsgenError: It is no text.
    """
    if isinstance(given, str):
        return given
    raise mistake(f"{argument} is {given!r}", must="it must be text", todo=f'Such as "{example}".')


def _wrong(function: str, name: str, known: tuple[str, ...], said_in_dict: Collection[str]) -> WrongArgumentError:
    meant = (_MEANT[name],) if _MEANT.get(name) in known else nearest(name, known)
    todo = offer(meant)
    field = next((said for said, python in _MEANT.items() if python == name), name)
    if field in said_in_dict:
        more = "" if field in ("hw", "model") else f', "{field}": ...'
        todo = f'Say it in a dict: {function}({{"hw": "a100-40g", "model": "7b"{more}}}).'
    return WrongArgumentError(
        f"{function} has no argument {name}", must=f"it takes {', '.join(known)}", todo=todo, code="unknown-name"
    )
