"""Gloo's thread gives way to the ranks, and no other thread does."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from dsgen.engine.proof.cpu_stand_ins import let_ranks_go_first

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")

SET_NAME = 15  # PR_SET_NAME of linux/prctl.h


@pytest.fixture
def threads() -> Iterator[dict[str, int]]:
    """Two threads that wait, by their names: gloo's, and one of torch's."""
    ids: dict[str, int] = {}
    begun, over = threading.Barrier(3), threading.Event()

    def wait(name: str) -> None:
        ctypes.CDLL(None).prctl(SET_NAME, name.encode(), 0, 0, 0)
        ids[name] = threading.get_native_id()
        begun.wait()
        over.wait()

    both = [threading.Thread(target=wait, args=(name,)) for name in ("gloo_tcp_loop", "pt_gloo_runloop")]
    for one in both:
        one.start()
    begun.wait()
    yield ids
    over.set()
    for one in both:
        one.join()


def test_only_the_thread_that_spins_gives_way(threads: dict[str, int]) -> None:
    assert let_ranks_go_first() == 1
    nice = {name: os.getpriority(os.PRIO_PROCESS, thread) for name, thread in threads.items()}
    assert nice == {"gloo_tcp_loop": 19, "pt_gloo_runloop": os.getpriority(os.PRIO_PROCESS, threading.get_native_id())}


def test_where_threads_cannot_be_looked_at_nothing_is_done(tmp_path) -> None:
    assert let_ranks_go_first(tmp_path / "no-proc") == 0
    (tmp_path / "7").mkdir()  # a thread that has ended
    assert let_ranks_go_first(tmp_path) == 0
