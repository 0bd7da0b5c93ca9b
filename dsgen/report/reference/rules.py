"""A page per rule of the linter and the index of all, with what lint prints for each example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import launch_files, linter, wrapped_configs
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.subjects import Facts
from dsgen.report.findings import block
from dsgen.report.reference.markdown import cell, code, fence, md_table
from dsgen.report.rules import releases, said_with
from dsgen.shapes.findings import Finding
from dsgen.targets import TARGETS

__all__ = ["index", "page", "rule_pages"]

_WIDTH = 100  # columns of the shown findings; GitHub cuts a code block at about 120
_NOT_FACTS = ("target", "deepspeed")
_LEVELS = {
    "error": "DeepSpeed of that release, loaded by that program, refuses it at parse, initialize or the first step.",
    "warning": "It runs, but otherwise than written, or it is fragile or clearly slow.",
    "info": "Worth knowing; shown with `--severity info`.",
}
_OPENING = """# Rules of dsgen lint

A finding names its rule and its code; `dsgen rule NAME` prints the page of a rule in the terminal.
"""
_BROKE = """## DSG000: rule-broke

A rule of the linter itself broke on this config. The finding names it and what happened; every other rule still spoke,
so the rest of the report holds. It is a fault of dsgen, not of the config: please report it.
"""
_SETTINGS = """## Settings

The nearest `pyproject.toml` of a linted file, in its folder or above, that has a table `[tool.dsgen.lint]`. The command
line wins over it. A rule is named by its name, its code, or the start of codes.

```toml
[tool.dsgen.lint]
select = ["DSG1", "DSG3"]        # only these; all without it
ignore = ["unread-key"]
severity = "warning"             # the lowest that is shown: info, warning, error
target = "hf-trainer"            # who loads the configs: deepspeed, hf-trainer, accelerate, lightning
deepspeed = "0.18"
world-size = 16
hw = "a100-80g"                  # a profile's name, or a file beside this one; so are model and network
exclude = ["third_party", "*_template.json"]
per-file-ignores = { "tests/*" = ["DSG7"] }

[tool.dsgen.lint.severities]
deprecated-key = "error"         # or warning, info, off
```

`seq-len`, `accelerator`, `client-optimizer`, `missing`, `calls` and `parameters` mean what the options of these names
do.

## Fixes

A fix is safe when the run stays the same: for the program that loads the config, every value in force is equal
before and after, but for the finding's own key. What DeepSpeed refuses has no run to keep; there a fix is safe
when the key has only one reading. What a person seems to have meant is an offer: its fix is unsafe and says
both runs ("today ZeRO 0, with it ZeRO 3"). A misplaced key is moved and not deleted, and a section that a fix
empties goes, unless it means something empty.

## Silence a finding

- In HJSON and YAML a comment at the end of the line, or alone on the line above: `# dsgen: ignore[unread-key]`.
- JSON has no comments. A file beside the config, of its name and `.dsgen.toml`, says it: `ds_config.json.dsgen.toml`.

```toml
ignore = ["unread-key"]          # anywhere in ds_config.json

[[ignore-at]]
rule = "rejected-key"
path = "zero_optimization.our_key"
reason = "our fork of DeepSpeed reads it"
```

A suppression that suppresses nothing is said below the findings.
"""


def rule_pages() -> dict[str, str]:
    """File name below docs/ -> text, of every rule and of their index."""
    return {"rules/index.md": index(), **{f"rules/{rule.name}.md": page(rule) for rule in RULES}}


def index() -> str:
    """The page of all rules, and how to choose among them."""
    rows = [
        [rule.code, f"[{rule.name}]({rule.name}.md)", str(rule.severity), cell(rule.what), cell(releases(rule))]
        for rule in RULES
    ]
    levels = md_table(["severity", "meaning"], [[name, meaning] for name, meaning in _LEVELS.items()])
    every = md_table(["code", "rule", "severity", "what is wrong", "DeepSpeed"], rows)
    return "\n".join([_OPENING, levels, every, _BROKE, _SETTINGS])


def page(rule: Rule) -> str:
    """Everything about one rule as Markdown."""
    parts = [
        f"# {rule.name} ({rule.code})\n",
        f"{rule.severity}; DeepSpeed: {releases(rule)}; dsgen: from {rule.added} on.\n",
        f"{cell(rule.what)}\n",
        f"## Why\n\n{cell(rule.why)}\n",
    ]
    if rule.example:
        given = said_with(rule)
        title = f"Linted{f' with {code(given)}' if given else ''}, it says:"
        parts += [
            f"## Example\n\n{fence(_visible(rule.example), _language(rule))}",
            f"{title}\n\n{fence(_said(rule))}",
            *_by_program(rule),
            f"## Instead\n\n{fence(_visible(rule.instead), _language(rule))}",
        ]
    parts.append("## Evidence\n\n" + "".join(f"- {cell(item)}\n" for item in rule.evidence))
    silent = code(f"--ignore {rule.name}")
    parts.append(f"Silence it with {silent}, or see [how to silence a finding](index.md#silence-a-finding).\n")
    return "\n".join(parts)


def _said(rule: Rule) -> str:
    """What lint prints for the example, of this rule alone."""
    document = _document(rule, rule.example)
    return "\n".join(line for item in _findings(rule, document) for line in block(item, document, _WIDTH))


def _findings(rule: Rule, document: Document, target: str | None = None) -> list[Finding]:
    """What a rule says of its example, by the program it is for or another one."""
    known: dict[str, Any] = {name: rule.given.get(name) for name in _NOT_FACTS}
    facts = Facts(**{name: value for name, value in rule.given.items() if name not in _NOT_FACTS})
    known["target"] = target or known["target"]
    return [item for item in linter.lint(document, facts=facts, **known) if item.rule == rule.name]


def _by_program(rule: Rule) -> Iterator[str]:
    """How grave it is for each program that loads the example, and how it is fixed; nothing of other files."""
    document = _document(rule, rule.example)
    if rule.reads not in ("config", "text") or _is_yaml(rule.example):
        return
    rows = []
    for target in TARGETS:
        said = _findings(rule, document, target.name)
        grave = ", ".join(dict.fromkeys(str(item.severity) for item in said)) or "nothing to say"
        rows.append([cell(target.title), grave, ", ".join(dict.fromkeys(map(_mended, said))) or ""])
    yield "The same file, by the program that loads it:\n\n" + md_table(["program", "severity", "fix"], rows)


def _mended(finding: Finding) -> str:
    return "no" if finding.fix is None else "safe" if finding.fix.safe else "unsafe"


def _document(rule: Rule, text: str) -> Document:
    """An example as the reader of its kind of file reads it."""
    if rule.reads == "launch":
        return launch_files.read(text, "train.sh")
    if _is_yaml(text):
        return wrapped_configs.read(text, "config.yaml").document
    return reader.read(text, "ds_config.json")


def _is_yaml(text: str) -> bool:
    """Whether an example is YAML: its keys stand on lines of their own, without a brace around them."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and re.match(r"[a-z_]+:(\s|$)", lines[0]) is not None


def _language(rule: Rule) -> str:
    if rule.reads == "launch":
        return "sh"
    return "yaml" if _is_yaml(rule.example) else "json5"  # the highlighter that takes comments and commas


def _visible(text: str) -> str:
    """An example as a page can show it: a mark that nobody sees is spelled out."""
    return text.replace("\ufeff", "<U+FEFF>")
