"""HJSON with a comment behind each key: it reads back as what was written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.documents.hjson import reader as hjson
from dsgen.documents.hjson.writer import commented
from dsgen.shapes.layers import leaves

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs", "Cc"))),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
TREES = st.dictionaries(
    st.from_regex(r"[a-z][a-z_0-9]{0,5}", fullmatch=True),
    PLAIN | st.dictionaries(st.from_regex(r"[a-z]{1,5}x", fullmatch=True), PLAIN, min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=100)
@given(
    TREES,
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=30),
)
def test_what_the_writer_writes_reads_back(tree: dict[str, Any], comment: str) -> None:
    text = commented(tree, {path: comment for path, _ in leaves(tree)})

    assert hjson.read(text, "x.hjson").config == hjson.read(json.dumps(tree), "x.json").config
    assert text.count("// ") >= (len(tree) if comment.split() else 0)
