"""What a certificate answers, as text: whether it holds, what differs, and for what it was proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsgen.report.wrapping import wrapped

if TYPE_CHECKING:
    from dsgen.proving.certificates import Deviation, Verified

__all__ = ["text"]

_SAID = ("target", "model", "ranks", "device", "steps")  # beside the config
_SOURCE = "source of "  # a person's own function
_ENGINE = ("deepspeed", "torch", "transformers", "peft", "python", "dsgen")


def text(answer: Verified) -> str:
    """What a person reads after `dsgen prove --verify`; ends without a line break."""
    proven = answer.certificate
    lines = ["holds: the same config, the same versions" if answer.holds else "does not hold"]
    lines += [line for item in answer.differences for line in _difference(item)]
    versions = ", ".join(f"{name} {proven.versions[name]}" for name in _ENGINE if name in proven.versions)
    lines += wrapped(f"proven on {proven.made[:10]} for {versions}", "  ", 2)
    kind = "CPU" if proven.device == "cpu" else "GPU"
    card = f" ({proven.card})" if proven.card else ""
    ranks = f"{proven.ranks} {kind} rank{'s' if proven.ranks > 1 else ''}{card}"
    lines += wrapped(f"with {proven.model} on {ranks}, as {proven.target} hands it over", "  ", 2)
    lines += wrapped(f"{len(proven.checks)} checks held", "  ", 2)
    lines += [line for item in answer.remarks for line in wrapped(f"not counted: {_words(item)}", "  ", 2)]
    if not answer.holds:
        lines += ["  to do: prove it again: dsgen prove CONFIG --certificate FILE --force"]
    return "\n".join(lines)


def _difference(item: Deviation) -> list[str]:
    return wrapped(_words(item), "  ", 2)


def _words(item: Deviation) -> str:
    if item.name == "config":
        return f"the config is another: its hash is {item.now}..., {item.proven}... was proven"
    if item.name in _SAID:
        return f"{item.name}: {item.now} is said, {item.proven} was proven"
    if item.name.startswith(_SOURCE):
        if not item.proven:
            return f"the {item.name} was not recorded: nobody can tell whether it changed"
        if item.now is None:
            return f"the {item.name} cannot be read here: nobody can tell whether it changed"
        return f"the {item.name} changed: its hash is {item.now}..., {item.proven}... was proven"
    now = "is not installed here" if item.now is None else f"is {item.now} here"
    return f"{item.name} {now}, {item.proven} was proven"
