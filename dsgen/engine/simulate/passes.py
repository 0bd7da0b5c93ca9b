"""Passes of accumulation that do the same: one of them in the record stands for those that are left out of a run.

No torch here, as in the ledger. A pass does the same as the one before when it makes equal storages in the same order
and frees, at the same moments, the same ones: its own and those of the pass before, none that is older. Where each is
gone by the end of the next pass, the next one begins as this one did, and can only do so again.
"""

from __future__ import annotations

from array import array

from dsgen.engine.simulate.ledger import Ledger

__all__ = ["Start", "alike", "repeat"]

_BIRTH, _EMPTIED = "birth", "emptied"


class Start:
    """Where a pass begins: how many storages, events and marks the record has by then."""

    __slots__ = ("events", "marks", "storages")

    def __init__(self, ledger: Ledger) -> None:
        self.storages, self.events, self.marks = len(ledger.sizes), len(ledger.events), len(ledger.marks)


def alike(ledger: Ledger, before: Start, last: Start) -> bool:
    """Whether the pass that ends now, begun at `last`, did what the one before it did, begun at `before`."""
    now = Start(ledger)
    made = now.storages - last.storages
    if last.storages - before.storages != made or _born(ledger, before, last) != _born(ledger, last, now):
        return False
    happened = _happened(ledger, last, now)
    if happened != _happened(ledger, before, last):
        return False
    freed = {number for number in happened if isinstance(number, int)}
    own = {number for number in freed if number >= 0}
    if {number + made for number in freed - own} != set(range(made)) - own:
        return False  # something stays for longer than a pass, or goes that is older than one
    kinds = ledger.kinds
    return all(kinds[before.storages + number] == kinds[last.storages + number] for number in own)


def repeat(ledger: Ledger, before: Start, last: Start, count: int) -> int:
    """Write the pass that ends now down `count` times more.

    Args:
        ledger: The record, whose two last passes are alike.
        before: Where the one before the last pass began.
        last: Where the last one began.
        count: How many passes more.

    Returns:
        What is added to the number of each storage that the last pass left alive: it now was made in the last of the
        passes written down.
    """
    now = Start(ledger)
    made, happened = now.storages - last.storages, now.events - last.events
    ledger.turns.append((now.events, happened, made, count))
    events, marks = ledger.events[last.events :], ledger.marks[last.marks :]
    pinned = [number for number in ledger.pinned if number >= last.storages]
    # A storage may get its kind in the pass after its own: that of the pass before is known, that of the last is not.
    latest = ledger.kinds[last.storages :]
    ledger.kinds[last.storages :] = ledger.kinds[before.storages : last.storages]
    for column in (*_columns(ledger), ledger.kinds):
        column.extend(column[last.storages : now.storages] * count)
    ledger.kinds[-made:] = latest
    for turn in range(1, count + 1):
        shift = turn * made
        ledger.events.extend(code and (code + shift if code > 0 else code - shift) for code in events)
        ledger.marks.extend((phase, step, batch + turn, until + turn * happened) for phase, step, batch, until in marks)
        ledger.pinned.update(number + shift for number in pinned)
    return count * made


def _columns(ledger: Ledger) -> tuple[array[int], ...]:
    """What is known of a storage from its birth on."""
    return ledger.sizes, ledger.places, ledger.streams, ledger.notes


def _born(ledger: Ledger, begin: Start, end: Start) -> list[object]:
    """The storages of a pass: what is known of each from its birth on, and which are page-locked."""
    numbers = range(begin.storages, end.storages)
    pinned = [number - begin.storages for number in numbers if number in ledger.pinned]
    return [*(column[begin.storages : end.storages] for column in _columns(ledger)), pinned]


def _happened(ledger: Ledger, begin: Start, end: Start) -> list[int | str]:
    """The events of a pass: a death is told by the storage's number from the pass's own first one, below 0 before."""
    return [
        _EMPTIED if code == 0 else _BIRTH if code > 0 else -code - 1 - begin.storages
        for code in ledger.events[begin.events : end.events]
    ]
