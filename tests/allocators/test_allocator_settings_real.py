"""The settings of PyTorch's allocator as the installed torch takes or refuses them, beside dsgen's reading of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dsgen.allocators.allocator_settings import parse

TAKEN = {
    "max_split_size_mb:20": True,
    "max_split_size_mb:19": False,
    "max_split_size_mb:128,expandable_segments:True": True,
    "garbage_collection_threshold:0.8": True,
    "garbage_collection_threshold:0": False,
    "garbage_collection_threshold:1": False,
    "roundup_power2_divisions:1": True,
    "roundup_power2_divisions:4": True,
    "roundup_power2_divisions:0": False,
    "roundup_power2_divisions:3": False,
    "expandable_segments:False": True,
    "expandable_segments:true": False,
    "pinned_max_cached_size_mb:64": True,
    "pinned_max_cached_size_mb:many": False,
}
PROGRAM = """
import json, sys, torch
def taken(text):
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except (RuntimeError, ValueError):
        return False
    return True
print(json.dumps({text: taken(text) for text in sys.argv[1:]}))
"""


def read(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


@pytest.mark.proof
def test_torch_takes_and_refuses_what_dsgen_does() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *TAKEN], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == TAKEN
    assert {text: read(text) for text in TAKEN} == TAKEN
