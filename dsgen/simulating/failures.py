"""Why a simulation did not run, in the engine's words and in ours: what is, what must be, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dsgen.deepspeed import surface
from dsgen.effective.refusals import in_words
from dsgen.families import FAMILIES
from dsgen.linting import linter
from dsgen.linting.subjects import Facts
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.findings import Severity
from dsgen.shapes.near_misses import offer
from dsgen.simulating.reasons import known
from dsgen.simulating.requests import Request

__all__ = ["INSTALL", "failure", "missing"]

INSTALL = 'pip install "dsgen[simulate]", or name an interpreter that has it: --python ENV/bin/python'
_LONGEST = 400  # characters of the engine's message
_MOST_FINDINGS = 2
_MACHINE = ("MemoryError", "DefaultCPUAllocator: can't allocate memory")
_TAKE_ANOTHER = "Take the config.json of a causal language model: of llama, qwen3, gpt2 ..."
_WHO = {
    "deepspeed": "DeepSpeed",
    "transformers": "the model",
    "peft": "peft",
    "torch": "torch",
}  # by package of the site
_CONFIG_CLASS = "StrictDataclass"  # what transformers 5 raises where a config.json cannot be
_OURS = "dsgen/engine/"  # a refusal of the engine's own, in words for a person
_NOISE = re.compile(r"\s*\[type=.*?\](?=\s|$)|\s*For further information visit \S+")  # of pydantic


def missing(package: str, python: str) -> DsgenError:
    """The error of a package that the child's interpreter lacks."""
    return mistake(f"a simulation needs {package}, which {python} has not", todo=INSTALL, code="missing-package")


def failure(answer: Mapping[str, Any], request: Request, python: str) -> DsgenError:
    """The error for the child's own: `{"versions", "error": {"type", "message", "site", "phase"}}`."""
    error, versions = answer["error"], answer.get("versions", {})
    message = _NOISE.sub("", " ".join(str(error["message"]).split()))
    if error["type"] in ("ModuleNotFoundError", "ImportError") and (name := _package(message)):
        return missing(name, python)
    if error["type"] == "UntestedVersionsError":
        return mistake(
            message,
            todo=f"Install that set ({INSTALL}), or run all the same with --force: the numbers may then be off.",
            code="refused",
        )
    if any(words in message or words == error["type"] for words in _MACHINE):
        return mistake(
            "this machine's own memory is too small for the simulation",
            must="it takes 0.5 to 2 GB: tensors are never made, but their records are",
            todo="Free memory, or simulate where there is more.",
            code="lost",
        )
    if error["type"] == "UnknownModelError":
        return _unknown_model(request, versions)
    if error["type"] == "NoLanguageModelError":
        return mistake(
            message, must="a simulation trains models that predict the next token", todo=_TAKE_ANOTHER, code="refused"
        )
    if str(error["type"]).startswith(_CONFIG_CLASS):
        own = re.split(r"\w*Error: ", message)[-1]
        return mistake(
            f"transformers refuses the model's config.json: {own}", todo="Mend the model's config.json.", code="refused"
        )
    if _OURS in str(error.get("site")) and error["type"] == "NotImplementedError":
        return mistake(message, todo="Leave out the optimizer or the key that asks for it.", code="refused")
    if _OURS in str(error.get("site")) and error["type"] == "ValueError":
        return mistake(message, code="refused")
    return _by_deepspeed(error, message, request, versions)


def _package(message: str) -> str | None:
    """The package that a failed import names, where it is one that the extra brings."""
    named = re.search(r"No module named '(\w+)|requires (\w+)", message)
    name = (named[1] or named[2]).lower() if named else ""
    return name if name in ("torch", "deepspeed", "transformers", "peft", "accelerate", "bitsandbytes") else None


def _unknown_model(request: Request, versions: Mapping[str, str]) -> DsgenError:
    name = str(request.model.get("model_type"))
    if "auto_map" in request.model:
        return mistake(
            f"model_type {name} lives outside transformers (auto_map)",
            must="a simulation runs no code from a hub",
            todo="Take a config.json of a class that transformers has, of the same sizes.",
            code="refused",
        )
    close = nearest(name, FAMILIES)
    return mistake(
        f"transformers {versions.get('transformers', '')} has no model_type {name}",
        todo=offer(close, "A newer transformers may have it."),
        code="unknown-name",
    )


def _by_deepspeed(error: Mapping[str, Any], message: str, request: Request, versions: Mapping[str, str]) -> DsgenError:
    """The engine's own refusal: a plain sentence where there is one, its words with phase and place, our linter's."""
    site = str(error.get("site", ""))
    who = _WHO.get(site.partition("/")[0], "the run")
    release = versions.get("deepspeed", "").partition("+")[0]
    said = {
        "kind": error["type"], "message": message, "faults": error.get("faults", []), "model": error.get("model")
    }  # fmt: skip
    plain, advice = known(error, message) or (in_words(said, request.config, request.world_size, _surface(release)), "")
    own = f"{error['type']}: {message if len(message) <= _LONGEST else message[:_LONGEST] + '...'} ({site})"
    lines = [advice] if advice else []
    lines += [] if plain == message else [f"its words: {own}"]
    lines += [f"dsgen lint: {finding.message} ({finding.code})" for finding in _findings(request, release)]
    head = plain if plain != message else own
    verb = "fails" if who == "the run" else "refuses it"
    return mistake(f"{who} {verb} in {error['phase']}: {head}", todo="\n  ".join(lines) or None, code="refused")


def _surface(release: str) -> surface.Surface:
    try:
        return surface.load(release)
    except DsgenError:  # a release that is not known
        return surface.load()


def _findings(request: Request, release: str) -> list[Any]:
    """The errors that our linter finds in the config at this world size."""
    facts = Facts(world_size=request.world_size, seq_len=request.run.seq_len)
    findings = linter.lint_config(request.config, target="deepspeed", deepspeed=_surface(release).version, facts=facts)
    return [finding for finding in findings if finding.severity is Severity.ERROR][:_MOST_FINDINGS]
