"""Which rules of the linter foresaw that a start fails: what lint says of the config that ran, by DeepSpeed's words.

A finding explains a failure where the words name its key or value, where they are what the page of its rule quotes or
its `shows` has, or where both name the same thing of code. Any other finding is about something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking.handovers import known_release
from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.deepspeed.surface import Surface
from dsgen.linting.files import lint_one
from dsgen.linting.rules import RULES
from dsgen.linting.settings import PACKAGES, Settings
from dsgen.proving.adaptation import BATCH_KEYS
from dsgen.proving.prover import Foreseen, Proof
from dsgen.shapes.findings import Finding, Severity

__all__ = ["UNEXPLAINED", "Foresight", "explains", "foresight"]

_ALONE = "deepspeed"
_NO_WORDS = "(no message)"  # of the proof's, for an error without any
_ALLOWED = "fp16-on-cpu"  # a rule about what a proof lets a CPU do
_PACKAGES = tuple(name for name in PACKAGES if name != "libaio")  # an operator: it is built before the ranks start
_TYPE, _VALUE = "{type}", "{value}"
_NOTHING = "(?!)"  # the pattern that matches nothing
_LEAST_WORDS = 3  # of a quotation; fewer are a name, or say nothing
_LEAST_LETTERS = 3  # of a value that is looked for
UNEXPLAINED = 3  # what `explains` gives of a finding that is about something else
# What says nothing by itself: values that stand everywhere, and names that do.
_COMMON = frozenset({"auto", "bf16", "bfloat16", "cpu", "fp16", "fp32", "none", "nvme", "true"})
_SECTIONS = frozenset({"DeepSpeed", "offload_optimizer", "offload_param", "world_size", "zero_optimization"})
# What pydantic and Python say of any key.
_OF_ANY_KEY = ("extra inputs are not permitted", "not supported between instances of")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_CODE = re.compile(r"[A-Za-z0-9]+_[A-Za-z0-9_]+|[A-Z][a-z0-9]+(?:[A-Z]+[a-z0-9]+)+")  # snake_case or CamelCase
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")
_ERROR = re.compile(r"^\w*(?:Error|Exception): ")  # before DeepSpeed's own words, when a page quotes them


@attrs.frozen(kw_only=True)
class Foresight:
    """What lint says of a config whose start failed.

    Attributes:
        causes: What explains the failure, best first; empty where the linter has a hole.
        also: What it says of something else.
        lacking: What this machine lacks, where that alone explains it and no fault of the config: "a GPU" or "a package
            of Python"; "" where it does not.
    """

    causes: tuple[Foreseen, ...]
    also: tuple[Foreseen, ...]
    lacking: str = ""


def foresight(config: Mapping[str, Any], proof: Proof) -> Foresight:
    """What lint says of a config that failed, told the device, the ranks and the optimizer that the proof had.

    The batch fields are judged as the ranks read them: a proof makes them those of its own ranks, and leaves them as
    they are where they contradict each other. What lint says of this machine alone counts where DeepSpeed says it too.

    Args:
        config: As its program hands it over.
        proof: What came of it.
    """
    read = {**config, **{item.key: item.used for item in proof.adaptations if item.key in BATCH_KEYS}}
    anywhere = _findings(read, proof, "cuda")
    here = _findings(read, proof, proof.device) if proof.device != "cuda" else anywhere
    unequipped = _findings(read, proof, proof.device, _PACKAGES)
    known = surface.load(known_release(proof.versions.get("deepspeed", "")))
    words = f"{proof.error or ''} {' '.join(f'{one.name}: {one.observed}' for one in proof.failed_checks)}"
    if proof.error and _NO_WORDS in proof.error:
        words = f"{words} {proof.site or ''}"  # an assertion that says nothing: its place speaks
    least = Severity.ERROR if proof.error else Severity.WARNING
    worth = [(explains(item, read, words, known), item) for item in _once((*here, *unequipped))]
    # A warning is about what runs; it explains a stop only where its rule knows the words.
    worth = [(value if item.severity >= least or not value else UNEXPLAINED, item) for value, item in worth]
    causes = sorted((pair for pair in worth if pair[0] < UNEXPLAINED), key=lambda pair: (-pair[1].severity, pair[0]))
    others = [item for value, item in worth if value == UNEXPLAINED and item.severity >= least]
    also = [item for item in others if _is_among(item, anywhere)]
    lacking = ""
    if causes and not any(_is_among(item, anywhere) for _, item in causes):
        lacking = "a GPU" if any(_is_among(item, here) for _, item in causes) else "a package of Python"
    return Foresight(
        causes=tuple(Foreseen(item.rule, item.code, item.message) for _, item in causes),
        also=tuple(Foreseen(item.rule, item.code, item.message) for item in sorted(also, key=lambda i: -i.severity)),
        lacking=lacking,
    )


def _findings(
    config: Mapping[str, Any], proof: Proof, accelerator: str, missing: tuple[str, ...] = ()
) -> tuple[Finding, ...]:
    """Errors and warnings of a config for the proof's release and ranks, on some machine."""
    said = Settings(
        target=_ALONE,
        deepspeed=known_release(proof.versions.get("deepspeed", "")),
        severity=Severity.WARNING,
        world_size=proof.ranks,
        accelerator=accelerator,
        client_optimizer=_client_optimizer(config, proof),
        missing=missing,
    )
    return tuple(item for item in lint_one(config, said).findings if item.rule != _ALLOWED)


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each fault once, as it is said first."""
    first: dict[tuple[str, str], Finding] = {}
    for item in findings:
        first.setdefault((item.rule, item.path), item)
    return tuple(first.values())


def _is_among(item: Finding, findings: Iterable[Finding]) -> bool:
    return any((item.rule, item.path) == (one.rule, one.path) for one in findings)


def _client_optimizer(config: Mapping[str, Any], proof: Proof) -> str | None:
    """What the proof handed over beside the config, as it notes it; None where it did not come so far."""
    if "optimizer" in config:
        return "none"
    brought = [str(item.used) for item in proof.adaptations if item.key == "optimizer"]
    if not brought:
        return None
    return "deepspeed" if brought[0].startswith("DeepSpeed") else "torch"


def explains(item: Finding, config: Mapping[str, Any], words: str, known: Surface) -> int:
    """How well a finding explains DeepSpeed's words: 0 the rule knows them, 1 they name its key, 2 both name the same.

    Args:
        item: The finding.
        config: What was linted.
        words: What DeepSpeed said, or the names of the checks that do not hold and what they observed.
        known: What the release reads.

    Returns:
        UNEXPLAINED where it does not.
    """
    rule = next((rule for rule in RULES if rule.name == item.rule), None)
    if rule is None:
        return UNEXPLAINED
    there, value = lookup(config, item.path)
    kind, written = (re.escape(type(value).__name__), re.escape(repr(value))) if there else (_NOTHING, _NOTHING)
    flat = _flat(words)
    shows = [one for one in rule.shows if _TYPE not in one or not _is_strict(item.path, known)]
    shows = [one.replace(_TYPE, kind).replace(_VALUE, rf"(?<!\w){written}") for one in shows]
    if any(re.search(one, words) for one in shows):
        return 0
    if any(quote in flat for quote in _quotations(f"{rule.why} {item.message}")):
        return 0
    if _names_key(item.path, words) or (there and isinstance(value, str) and _names_value(value, words)):
        return 1
    shared = set(_OF_CODE.findall(words)) & set(_OF_CODE.findall(item.message)) - _SECTIONS
    return 2 if shared else UNEXPLAINED


def _is_strict(path: str, known: Surface) -> bool:
    """Whether pydantic reads a key, which names it whatever is wrong."""
    return known.sections.get(path.rpartition(".")[0]) == "strict"


def _names_key(path: str, words: str) -> bool:
    """Whether words name a key; one that is a word of English too must stand as a key does."""
    section, _, last = path.rpartition(".")
    key = last.partition("[")[0]
    if not key or (key == "enabled" and _bare(section.rpartition(".")[2]) not in _bare(words)):
        return False
    if "_" in key.strip("_"):
        spoken = re.escape(key).replace("_", "[_ ]")  # a check says "gradient clipping" of gradient_clipping
        return re.search(rf"(?<![A-Za-z0-9_]){spoken}(?![A-Za-z0-9_])", words, re.IGNORECASE) is not None
    return re.search(rf"(?:['\"`.]|Config |: ){re.escape(key)}(?![A-Za-z0-9_])", words) is not None


def _bare(text: str) -> str:
    """Without case and underscores: `comms_logger` is the CommsLoggerConfig of pydantic's words."""
    return text.replace("_", "").lower()


def _names_value(value: str, words: str) -> bool:
    """Whether words have a text of the config that is no common one."""
    if len(value) < _LEAST_LETTERS or value.lower() in _COMMON:
        return False
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", words) is not None


def _quotations(text: str) -> Iterator[str]:
    """What a text quotes of DeepSpeed's words."""
    for quote in _QUOTED.finditer(text):
        said = _flat(_ERROR.sub("", quote[1] or quote[2]))
        if len(said.split()) >= _LEAST_WORDS and not any(one in said for one in _OF_ANY_KEY):
            yield said


def _flat(text: str) -> str:
    return " ".join(text.split()).lower()
