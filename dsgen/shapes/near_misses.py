"""What someone may have meant by a name that is none, and the one sentence that asks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dsgen.shapes.errors import nearest

__all__ = ["NARROWER", "OFFERED", "alike", "find", "is_remark", "offer", "same_words"]

# difflib ratio of two names (0 to 1) from which one is offered for the other. Of the 369 names of keys in 0.19.8 with
# letters changed at random, 99 % lie above it after one change and 93 % after two; of 51 names that public configs take
# from Megatron, Accelerate and amp, 4 do (0.75: 13, 0.6: 32). tests/linting/test_quiet.py counts it again.
OFFERED = 0.8
# The same of each word in names of as many words: model_parallel_size, pipe_parallel_size are no data_parallel_size.
_WORD = 0.5
# Numbers in fewer bits, which are near to a dtype's name in letters alone -> what there is of them.
NARROWER = {
    **dict.fromkeys(("fp8", "float8", "mxfp8"), "products in 8 bits are not counted: --precision bf16 counts all else"),
    **dict.fromkeys(("int4", "fp4", "nf4", "4bit", "int8", "8bit"), "a base in 4 bits is --method qlora"),
}
_INDEX = r"\.?\[\d*\]|\.\d+(?=\.|$)"  # layer_specs.0.shape, layer_specs[0].shape
_SUGGESTIONS = 3
_LONGEST = 100  # letters of a name that are compared
_COMMON = 4  # a name that stands on more keys than this (enabled, device) does not say where it belongs


def is_remark(name: str) -> bool:
    """Whether the name of a key says that it is no key: "_read_the_docs", "//", "comment"."""
    return name.startswith(("_", "//")) or name.lower() in ("comment", "comments")


def offer(names: Iterable[str], otherwise: str | None = None) -> str | None:
    """The sentence that offers names in the place of one that is none; `otherwise` where there are none to offer."""
    return f"did you mean {' or '.join(offered)}?" if (offered := tuple(names)) else otherwise


def alike(name: str, choices: Iterable[str]) -> tuple[str, ...]:
    """The choices that a name is almost, best first, at most three; letters' case, "-" and "_" make no difference."""
    import difflib  # most names are right

    matcher = difflib.SequenceMatcher(b=_plain(name[:_LONGEST]))
    ranked = []
    for choice in dict.fromkeys(choices):
        matcher.set_seq1(_plain(choice))
        if matcher.quick_ratio() >= OFFERED and (ratio := matcher.ratio()) >= OFFERED:
            ranked.append((-ratio, choice))
    return tuple(choice for _, choice in sorted(ranked))[:_SUGGESTIONS]


def _plain(name: str) -> str:
    return re.sub(r"[-_]", "", name.casefold())


def find(path: str, names: Mapping[str, str], sections: Iterable[str], mistaken: Mapping[str, str]) -> tuple[str, ...]:
    """Keys for an unknown path, best first, at most three.

    Args:
        path: The dotted path as written.
        names: Every name that does something -> the key it stands for.
        sections: The paths of all sections.
        mistaken: Names that people write for others, with or without their section.
    """
    general, last = re.sub(_INDEX, "[]", path), path.rpartition(".")[2]
    meant = [mistaken[name] for name in (general, last) if name in mistaken][:1]
    if meant:
        return tuple(meant)
    others = [name for name in names if name != path]
    parent = _parent(path)
    near = [parent] if parent in sections or not parent else nearest(parent, sections)
    same = [name for name in others if name.rpartition(".")[2] == last]
    order = [name for name in same if _parent(name) in near]
    order = order or list(_slips(last, parent, others))
    order += sorted(same, key=lambda name: name.count(".")) if len(same) <= _COMMON else nearest(path, same)
    order = order or [name for section in near for name in _beside(last, section, others)] or [*nearest(path, others)]
    return tuple(dict.fromkeys(names[name] for name in order))[:_SUGGESTIONS]


def same_words(written: str, name: str) -> bool:
    """Whether names of as many words have no word in which they differ: model_parallel_size, data_parallel_size."""
    if written.count("_") != name.count("_"):
        return True
    import difflib

    pairs = zip(written.split("_"), name.split("_"), strict=True)
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= _WORD for pair in pairs)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _slips(last: str, section: str, names: Iterable[str]) -> Iterator[str]:
    """The keys of one section whose own name a name is almost."""
    own = {name.rpartition(".")[2]: name for name in names if _parent(name) == section}
    return (own[name] for name in alike(last, own))


def _beside(last: str, section: str, names: Iterable[str]) -> Iterator[str]:
    """The keys of one section whose own name is most like a name."""
    own = {name.rpartition(".")[2]: name for name in names if _parent(name) == section}
    return (own[name] for name in nearest(last, own))
