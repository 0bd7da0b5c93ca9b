"""Every written key beside what DeepSpeed holds, and the defaults that nobody wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dsgen.deepspeed.keys import lookup, say
from dsgen.deepspeed.surface import Surface
from dsgen.effective.outcomes import CHANGED, COERCED, DROPPED, FILLED, GIVEN, KEPT, MOVED, NOT_READ, WrittenKey
from dsgen.effective.refusals import nearest_key
from dsgen.shapes.layers import leaves
from dsgen.shapes.near_misses import offer
from dsgen.targets import Target

__all__ = ["defaults", "in_force", "rows"]

_CLASSES = ("optimizer", "scheduler")
# DeepSpeed holds the dtypes that a config names as torch's own.
_DTYPES = {
    "torch.float32": ("fp32", "float32", "float"),
    "torch.float16": ("fp16", "float16", "half"),
    "torch.bfloat16": ("bf16", "bfloat16"),
    "torch.int8": ("int8",),
}
_WHOLE = "pipeline"  # a section that DeepSpeed holds as it is written, with the keys that nothing reads
_OLD_BF16 = "bfloat16"  # DeepSpeed's old name of the section bf16
_DOTS = "its name has dots; DeepSpeed reads the key in its section"
_UNTOLD = ("last_batch_iteration",)  # arguments of a constructor that no config sets


def in_force(report: Mapping[str, Any], stand_in: Collection[str]) -> dict[str, Any]:
    """Dotted key -> value in force: what DeepSpeedConfig holds, and the arguments of what the engine builds of it."""
    values = {path: value for path, value in report["held"].items() if path not in stand_in}
    for section, chosen in zip(_CLASSES, (report.get("optimizer"), report.get("schedule")), strict=True):
        for name, value in (chosen or {}).get("arguments", {}).items():
            if name not in _UNTOLD:
                values.setdefault(f"{section}.params.{name}", value)
    return values


def rows(
    written: Mapping[str, Any],
    report: Mapping[str, Any],
    values: Mapping[str, Any],
    open_: Collection[str],
    target: Target,
    known: Surface,
    filled: Collection[str] = (),
) -> tuple[WrittenKey, ...]:
    """A row for every written key, in the order of the file; a section that nobody reads is one row."""
    reader = _Rows(written, report, values, open_, target, known, filled)
    return tuple(reader.below(written, ""))


def defaults(
    written: Mapping[str, Any],
    report: Mapping[str, Any],
    values: Mapping[str, Any],
    open_: Collection[str],
    known: Surface,
) -> dict[str, Any]:
    """The values in force that nobody wrote, of keys that do something in this config."""
    said = {_canonical(path, report) for path, _ in leaves(written) if lookup(written, path)[0]} | set(open_)
    taken = tuple(f"{report['moved'][path]}." for path in said if path in report["moved"])  # by a deprecated key
    return {
        path: value
        for path, value in values.items()
        if path not in said and not f"{path}.".startswith(taken) and value is not None and value != {}
        if known.key(path) is not None and known.has_effect(path, written) is None
    }


class _Rows:
    """The walk over one written config."""

    def __init__(
        self,
        written: Mapping[str, Any],
        report: Mapping[str, Any],
        values: Mapping[str, Any],
        open_: Collection[str],
        target: Target,
        known: Surface,
        filled: Collection[str],
    ) -> None:
        self.written, self.report, self.values = written, report, values
        self.open, self.target, self.known, self.filled = open_, target, known, filled
        self.seen = set(report["seen"])

    def below(self, section: Mapping[str, Any], before: str) -> Iterator[WrittenKey]:
        """The rows of one section."""
        for key, value in section.items():
            path = f"{before}{key}"
            if "." in key and self.known.key(path, self.written) is not None:
                yield WrittenKey(path=path, written=value, in_force=None, happened=NOT_READ, note=_DOTS)
            elif isinstance(value, Mapping) and value and self._enters(path):
                yield from self.below(value, f"{path}.")
            else:
                yield self._row(path, value)

    def _enters(self, path: str) -> bool:
        """Whether anything in a section is read, so that its keys are told one by one."""
        canonical = _canonical(path, self.report)
        held = canonical in self.values or any(name.startswith(f"{canonical}.") for name in self.values)
        unread = path == _OLD_BF16 and path not in self.seen
        return (held or path in self.seen or self.known.key(path, self.written) is not None) and not unread

    def _row(self, path: str, value: Any) -> WrittenKey:
        canonical = _canonical(path, self.report)
        if path in self.open:
            note = f"filled in by {self.target.title}"
            return WrittenKey(path=path, written=value, in_force=None, happened=FILLED, note=note)
        if path in self.target.overwritten:
            note = f"{self.target.title} sets it, whatever it says"
            return WrittenKey(path=path, written=value, in_force=self._held(canonical), happened=CHANGED, note=note)
        if canonical in self.report["moved"]:
            to = self.report["moved"][canonical]
            return WrittenKey(path=path, written=value, in_force=self._held(to), happened=MOVED, note=f"to {to}")
        held = self._held(canonical)
        unread = path.startswith(f"{_WHOLE}.") and self.known.key(path, self.written) is None
        if held is not _NOTHING and not unread:
            happened = GIVEN if path in self.filled else _compared(path, value, held)
            return WrittenKey(path=path, written=value, in_force=held, happened=happened, note=self._note(path))
        if (not unread and path in self.seen) or (
            self.known.key(path, self.written) is not None and not path.startswith(_OLD_BF16)
        ):
            return WrittenKey(path=path, written=value, in_force=value, happened=KEPT, note=self._note(path))
        close = nearest_key(path, self.known)
        hint = offer([close] if close else [])
        return WrittenKey(path=path, written=value, in_force=None, happened=NOT_READ, note=hint)

    def _held(self, path: str) -> Any:
        """The value in force at a path, a section as a map; _NOTHING where DeepSpeed holds none."""
        if path in self.values:
            return self.values[path]
        inside = {name[len(path) + 1 :]: v for name, v in self.values.items() if name.startswith(f"{path}.")}
        return inside or _NOTHING

    def _note(self, path: str) -> str | None:
        """Why a key that DeepSpeed holds does nothing here."""
        key = self.known.key(path, self.written)
        idle = self.known.has_effect(path, self.written) if key is not None else None
        return idle.removeprefix(f"{path} ").rstrip(".") if idle else None


class _Nothing:
    """Where DeepSpeed holds no value."""


_NOTHING = _Nothing()


def _canonical(path: str, report: Mapping[str, Any]) -> str:
    """The name under which DeepSpeed holds a key: aliases, and the old section bfloat16."""
    for alias, name in report["aliases"].items():
        if path == alias or path.startswith(f"{alias}."):
            return str(name) + path[len(alias) :]
    if path.partition(".")[0] == _OLD_BF16 and _OLD_BF16 in report["seen"]:
        return f"bf16{path[len(_OLD_BF16) :]}"
    return path


def _compared(path: str, written: Any, held: Any) -> str:
    """What became of a value that DeepSpeed holds."""
    if _same(written, held):
        return KEPT
    if written == "auto":
        return DROPPED
    if isinstance(written, str) and written.lower() in _DTYPES.get(str(held), ()):
        return KEPT
    if path == "optimizer.type" and isinstance(written, str) and written.lower() == held:
        return KEPT  # DeepSpeed lowers the names of its own optimizers
    alike = str(written).strip().lower() == str(held).lower() or _numbers_agree(written, held)
    return COERCED if alike or isinstance(held, Mapping) else CHANGED


def _same(written: Any, held: Any) -> bool:
    """Equal as JSON sees it: 1 is 1.0, and true is not 1."""
    if isinstance(written, bool) or isinstance(held, bool):
        return written is held
    return bool(written == held) or say(written) == say(held)


def _numbers_agree(written: Any, held: Any) -> bool:
    """Whether two values are one number or truth value: "2" and 2, "yes" and true, 1 and true."""
    if isinstance(held, bool):
        return isinstance(written, (str, int, float)) and not isinstance(written, bool)
    try:
        return isinstance(held, (int, float)) and float(written) == float(held)
    except (TypeError, ValueError, OverflowError):
        return False
