"""The releases of packages that a person may say: what is refused, what is taken as the newest known, and their order.

DeepSpeed's are those of the surfaces (dsgen.deepspeed.surface), which has each patch: its keys hang on it, and one that
it does not know is refused. Of the others dsgen knows what changed and when, so that a newer one counts as the newest.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Provenance

__all__ = ["before", "checked", "line_of", "newer_than_known"]

_VERSION = re.compile(r"\d+(?:\.\d+)*")
_NEWEST = 99  # a part of a release above all that are known


class _Package(NamedTuple):
    """What is known of a package.

    Attributes:
        oldest: The first release that is counted.
        newest: The line that everything was last looked up in, simulated or measured.
        lasts: Major release -> the minor one that it ended with.
        such_as: Two that there are.
    """

    oldest: tuple[int, ...]
    newest: tuple[int, int]
    lasts: dict[int, int]
    such_as: str


_KNOWN = {
    "torch": _Package((2,), (2, 13), {}, "2.8 or 2.13.0"),
    "liger": _Package((0, 3), (0, 8), {}, "0.5.10 or 0.8.5"),  # before 0.3 it made the gradient of a frozen head too
    "transformers": _Package((4,), (5, 23), {4: 57}, "4.57 or 5.23.0"),
}


def checked(package: str, release: str | None, provenance: Provenance) -> str | None:
    """A release that somebody said; None where nobody did.

    Raises:
        DsgenError: It is none, is older than what is counted, or cannot be: of a major release that ended before it,
            or of one that is further than the next.
    """
    if release is None:
        return None
    known = _KNOWN[package]
    must = ""
    if _VERSION.fullmatch(release) is None or before(release, known.oldest):
        must = f"it must be a release from {_written(known.oldest)} on, such as {known.such_as}"
    else:
        major, minor = line_of(release)
        last = known.lasts.get(major)
        if last is not None and "." in release and minor > last:
            must = f"the last of {package} {major} is {major}.{last}; it must be a release, such as {known.such_as}"
        elif major > known.newest[0] + 1:
            must = (
                f"it must be a release, such as {known.such_as}; the newest that is known is {_written(known.newest)}"
            )
    if must:
        where = provenance.where(f"training.{package}")
        raise mistake(f"{package} is {release!r}", must=must, where=where, code="bad-value")
    return release


def newer_than_known(training: Any, provenance: Provenance) -> Iterator[str]:
    """Releases that somebody said and that came after all that is known here.

    Args:
        training: Anything with torch, liger and transformers, each as `checked` takes it.
        provenance: Who said it.
    """
    for package, known in _KNOWN.items():
        release = getattr(training, package)
        if release is not None and known.newest < line_of(release) and release != str(known.newest[0]):
            where, newest = provenance.where(f"training.{package}"), _written(known.newest)
            yield f"{where}: {package} {release} is newer than {newest}, the newest that is known: it is taken for that"


def before(release: str | None, first: tuple[int, ...]) -> bool:
    """Whether a release is older than a line; `4` is the last of it, and one that nobody said the newest."""
    return release is not None and line_of(release, len(first)) < first


def line_of(release: str, parts: int = 2) -> tuple[int, ...]:
    """So many parts of a release; those that it leaves out are above all that are known."""
    said = [int(part) for part in release.split(".")]
    return tuple((said + [_NEWEST] * parts)[:parts])


def _written(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
