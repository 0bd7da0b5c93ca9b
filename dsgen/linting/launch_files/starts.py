"""The training programs that a launch file starts: by which launcher, on how many GPUs, with which arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from dsgen.linting.launch_files.commands import option_named
from dsgen.linting.launch_files.files import scan, script_commands
from dsgen.linting.launch_files.filled import FilledScript
from dsgen.linting.launch_files.slurm import slurm_variables
from dsgen.linting.launch_files.words import Word
from dsgen.shapes.findings import Span

__all__ = ["Passed", "Started", "starts"]

_NAMED = re.compile(r"\$\{?(\w+)\}?")  # NNODES=$SLURM_NNODES
_NODES = ("nnodes", "num_nodes", "num_machines")  # of torchrun, deepspeed and accelerate launch
_NUMBER = re.compile(r"-\.?[0-9]")
_MAIN = ("deepspeed", "deepspeed.pt", "accelerate", "torchrun", "llamafactory-cli", "lmf", "swift", "axolotl")
_PYTHON = re.compile(r"python[0-9.]*")
# Modules of `python -m` and `accelerate launch -m` that are one of the programs above.
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
}
# Commands of a program's own that start a training: llamafactory-cli train x.yaml, swift sft --model ...
_TRAINS = {"accelerate": ("launch",), "axolotl": ("train",), "llamafactory-cli": ("train",), "lmf": ("train",),
           "swift": ("sft", "pt", "rlhf", "grpo")}  # fmt: skip
_NOT_A_START = frozenset(
    ("pip", "pip3", "install", "which", "echo", "printf", "uninstall", "kill", "pkill", "ps", "grep")
)
# Options of launchers that no value follows: torch/distributed/run.py (2.13), accelerate/commands/launch.py (1.15.0).
_SWITCHES = {
    "torchrun": frozenset(("--standalone", "--no-python", "--no_python", "--run-path", "--run_path", "--use-env",
                           "--use_env", "--virtual-local-rank")),
    "accelerate": frozenset(("--cpu", "--multi_gpu", "--multi-gpu", "--tpu", "--use_deepspeed", "--use-deepspeed",
                             "--use_fsdp", "--use_megatron_lm", "--use_xpu", "--use_parallelism_config", "--quiet",
                             "-q", "--debug", "--no_python", "--no-python", "--same_network", "--same-network",
                             "--enable_cpu_affinity", "--use_mps_device", "--tpu_use_sudo", "--tpu_use_cluster")),
}  # fmt: skip
_MODULE = ("-m", "--module")
_SPREAD = ("--hostfile", "-H", "--include", "-i", "--exclude", "-e")  # of deepspeed: they say the GPUs otherwise


@attrs.frozen(kw_only=True)
class Passed:
    """One argument of a program as it was written.

    Attributes:
        name: Without dashes, `-` as `_`: "per_device_train_batch_size".
        word: As written: "--per_device_train_batch_size".
        value: The text behind it; None for a bare switch.
        span: From its name to its value.
    """

    name: str
    word: str
    value: str | None
    span: Span


@attrs.frozen(kw_only=True)
class Started:
    """One training that a launch file starts.

    Attributes:
        launcher: "deepspeed", "accelerate", "torchrun", "python", or a program that launches itself.
        options: Option of the launcher by its name without dashes -> as it was written.
        arguments: Those of the program itself, in order.
        files: Names of files given without an option: `train.py args.json`.
        ranks: GPUs in all, and the option that says it; None where the launcher asks the machine or a host file.
        program: The script that is started, as written; "" for a module and for a program that launches itself.
    """

    launcher: str
    options: Mapping[str, Passed]
    arguments: tuple[Passed, ...]
    files: tuple[Passed, ...]
    ranks: tuple[int, Passed] | None = None
    program: str = ""

    @property
    def nodes(self) -> int | None:
        """How many nodes the launcher is told; None where it is not, or a range of them."""
        said = next((self.options[name].value for name in _NODES if name in self.options), None)
        return int(said) if said is not None and _is_count(said) else None


def starts(text: str, name: str) -> tuple[Started, ...]:
    """The trainings of a launch file, variables that the file sets once and plainly put in; see `launch_files.read`."""
    launch = scan(text, name)
    counts: dict[str, int] = {}
    for setting in launch.settings:
        counts[setting.name] = counts.get(setting.name, 0) + 1
    plain = {one.name: (one.value, one.at) for one in launch.settings if counts[one.name] == 1}
    known = {name: said for name, said in plain.items() if "$" not in said[0] and "`" not in said[0]}
    slurm = {name: said for name, said in slurm_variables(text).items() if name not in counts}
    named = {name: _NAMED.fullmatch(value) for name, (value, _) in plain.items()}
    known |= {**slurm, **{name: slurm[match[1]] for name, match in named.items() if match and match[1] in slurm}}
    filled = FilledScript(text, known)
    started = [_program(filled.words_of(command)) for command in script_commands(text, name)]
    return tuple(one for one in started if one is not None)


def _program(words: list[Word]) -> Started | None:
    """The training that a command starts; None for any other command."""
    names = [word.text.rpartition("/")[2] for word in words]
    place = next((i for i, name in enumerate(names) if name in _MAIN or _PYTHON.fullmatch(name)), None)
    if place is None or _NOT_A_START & set(names[:place]):
        return None
    launcher, rest = names[place], words[place + 1 :]
    if _PYTHON.fullmatch(launcher):
        return _python(rest)
    return _launched(launcher, rest)


def _launched(launcher: str, rest: list[Word]) -> Started | None:
    """What follows the name of a launcher."""
    launcher = "deepspeed" if launcher == "deepspeed.pt" else launcher
    if launcher in _TRAINS:
        if not rest or rest[0].text not in _TRAINS[launcher]:
            return None
        rest = rest[1:]
        if launcher != "accelerate":
            return _made(launcher, {}, rest)
    options: dict[str, Passed] = {}
    while rest and rest[0].text.startswith("-") and rest[0].text != "-":
        word = rest.pop(0)
        name, equals, value = word.text.partition("=")
        if name in _MODULE:
            break
        end = word.span.end
        if not equals and _takes_value(launcher, name) and rest:
            follows = rest.pop(0)
            value, end = follows.text, max(end, follows.span.end)  # of a variable it stands further up
        key = name.lstrip("-").replace("-", "_")
        options[key] = Passed(name=key, word=name, value=value or None, span=Span(word.span.start, end))
    if not rest:
        return None
    if rest[0].text in _MODULES and not options:
        return _python([Word("-m", rest[0].span), *rest])
    return _made(launcher, options, rest[1:], rest[0].text)


def _python(rest: list[Word]) -> Started | None:
    """What follows `python`: a script, or a module that may be a launcher."""
    while rest and rest[0].text.startswith("-"):
        word = rest.pop(0)
        if word.text == "-m" and rest:
            module = _MODULES.get(rest[0].text)
            if module is not None:
                head, *more = module.split()
                return _launched(head, [*(Word(one, rest[0].span) for one in more), *rest[1:]])
            return _made("python", {}, rest[1:])
        if word.text == "-c":
            return None
    return _made("python", {}, rest[1:], rest[0].text) if rest else None


def _takes_value(launcher: str, name: str) -> bool:
    if launcher == "deepspeed":
        option = option_named(name)
        return option is not None and option.value
    return name not in _SWITCHES.get(launcher, ())


def _made(launcher: str, options: Mapping[str, Passed], rest: list[Word], program: str = "") -> Started:
    arguments, files = _arguments(rest)
    ranks = _ranks(launcher, options)
    return Started(launcher=launcher, options=options, arguments=arguments, files=files, ranks=ranks, program=program)


def _arguments(words: Iterable[Word]) -> tuple[tuple[Passed, ...], tuple[Passed, ...]]:
    """The arguments of a program, and the words before and between them that belong to none."""
    arguments: list[Passed] = []
    loose: list[Passed] = []
    for word in words:
        option = word.text.startswith("--") or (word.text.startswith("-") and not _NUMBER.match(word.text))
        name, equals, value = word.text.partition("=")
        key = name.lstrip("-").replace("-", "_")
        if option:
            made = Passed(name=key, word=name, value=value if equals else None, span=word.span)
            arguments.append(made)
        elif equals and not arguments and re.fullmatch(r"\w+", name):  # llamafactory-cli train x.yaml max_steps=5
            loose.append(Passed(name=key, word=name, value=value, span=word.span))
        elif arguments and arguments[-1].value is None:
            last = arguments[-1]
            end = max(last.span.end, word.span.end)
            arguments[-1] = attrs.evolve(last, value=word.text, span=Span(last.span.start, end))
        else:
            loose.append(Passed(name="", word=word.text, value=word.text, span=word.span))
    overrides = [one for one in loose if one.name]
    return (*arguments, *overrides), tuple(one for one in loose if not one.name)


def _ranks(launcher: str, options: Mapping[str, Passed]) -> tuple[int, Passed] | None:
    """GPUs in all, where the launcher is told."""
    if launcher == "deepspeed" and not any(name.lstrip("-") in options for name in _SPREAD):
        return _product(options, "num_gpus", "num_nodes")
    if launcher == "accelerate":
        return _product(options, "num_processes", "")
    if launcher == "torchrun":
        return _product(options, "nproc_per_node", "nnodes")
    return None


def _product(options: Mapping[str, Passed], each: str, times: str) -> tuple[int, Passed] | None:
    said, nodes = options.get(each), options.get(times)
    if said is None or not _is_count(said.value) or not (nodes is None or _is_count(nodes.value)):
        return None
    if nodes is None or int(nodes.value or 1) == 1:
        return int(said.value or 0), said
    return int(said.value or 0) * int(nodes.value or 1), attrs.evolve(said, word=f"{said.word} x {nodes.word}")


def _is_count(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"[0-9]{1,6}", text) is not None and int(text) > 0
