"""Causes that are about the start: what DeepSpeed, transformers and a program refuse of a config and its arguments."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import Cause, Sign

__all__ = ["STARTS"]

# A frame after which the error stands: what DeepSpeed's readers of the config raise is about the config.
_LAST_FRAME = (
    r"\A[^\n]*\n(?:(?![^\n]*File \")[^\n]*\n){1,4}?[^\n]*\b(?:Assertion|Value|Type|Key|DeepSpeedConfig)Error\b"
)
# How Accelerate and transformers read a config's file; what is no file they give to json.loads, and say so afterwards.
_READERS = r"(?:accelerate[/\\]utils|transformers(?:[/\\]integrations)?)[/\\]deepspeed\.py\"[^\n]*\n[^\n]*json\.load\("
_ARGUMENTS = r"\b(?:\w*TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|RLOO)Config)"
_BUILT = r"\b(?:\w*Adam\w*|\w*Lamb|\w*Lion|\w*Adagrad|Muon\w*|SGD|Warmup\w*LR|OneCycle|LRRangeTest)"

STARTS = (
    Cause(
        code="batch-mismatch",
        words="the batch keys do not multiply",
        phase="init",
        signs=(
            Sign("Check batch related parameters"),
            Sign("train_batch_size is not equal"),
            Sign("has to be greater than 0", r"(?i)(?:batch size|accumulation)[^{\n]*: -?\d+ has to be greater"),
            Sign("train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
        ),
        why="train_batch_size must be micro-batch x accumulation x the ranks that really started.",
        changes=(
            'leave two of the three to DeepSpeed: write train_micro_batch_size_per_gpu and "auto" or nothing else',
            "check that all ranks started: a world size of 1 means that the launcher was not used",
        ),
        source="https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",
    ),
    Cause(
        code="argument-refused",
        words="the program does not know an argument",
        phase="launch",
        signs=(Sign("error: unrecognized arguments"), Sign("are not used by the HfArgumentParser")),
        why="It is misspelt, of another release, or the launcher's: deepspeed and older launchers add --local_rank.",
        changes=(
            "for --local_rank: parser.add_argument('--local_rank', '--local-rank', type=int), or torchrun, which adds "
            "none",
            "python PROGRAM --help names its arguments",
        ),
        source="https://github.com/deepspeedai/Megatron-DeepSpeed/issues/178",
    ),
    Cause(
        code="config-mismatch",
        words="the config and TrainingArguments say different things",
        phase="init",
        signs=(Sign("values that mismatch TrainingArguments"), Sign("Please correct the following DeepSpeed config")),
        why="transformers compares both and refuses where they differ.",
        changes=(
            'write "auto" for the keys that it lists, or the same value in both',
            "dsgen lint --target hf-trainer",
        ),
        source="https://huggingface.co/docs/transformers/deepspeed",
    ),
    Cause(
        code="auto-not-filled",
        words='"auto" reached DeepSpeed',
        phase="init",
        signs=(
            Sign("'auto'", r"could not convert string to float: 'auto'|invalid literal for int\(\) .*'auto'"),
            Sign("in _batch_assertion", r"not supported between instances of 'str' and 'int'"),
            Sign("input_value='auto'"),
        ),
        why='Only the Hugging Face Trainer and Accelerate fill in "auto"; deepspeed.initialize does not.',
        changes=("write numbers: dsgen render makes a config without auto", "dsgen lint --target deepspeed"),
        source="https://huggingface.co/docs/transformers/deepspeed",
    ),
    Cause(
        code="config-not-found",
        words="DeepSpeed does not find the config",
        phase="init",
        signs=(Sign("Expected a string path to an existing deepspeed config"),),
        why="The name that stands in the line is no file for the rank that read it: a relative path starts at the "
        "folder that the launcher was called in.",
        changes=("an absolute path, on a file system that every node sees",),
        source="https://www.deepspeed.ai/docs/config-json/",
    ),
    Cause(
        code="rank-variables-missing",
        words="no launcher told the program its rank",
        phase="launch",
        signs=(
            Sign("DeepSpeed requires the LOCAL_RANK environment"),
            Sign("expected, but not set", r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected"),
        ),
        why="RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set by deepspeed, torchrun and accelerate; "
        "python and srun alone set none of them.",
        changes=(
            "deepspeed PROGRAM or torchrun --nproc-per-node=N PROGRAM in the place of python PROGRAM",
            "dsgen launch --with slurm writes what srun must start",
        ),
        source="https://www.deepspeed.ai/getting-started/#launching-deepspeed-training",
    ),
    Cause(
        code="process-group-missing",
        words="ranks are asked for before torch.distributed was started",
        signs=(
            Sign("Default process group has not been initialized"),
            Sign("Default process group is not initialized"),
            Sign("DeepSpeed backend not set, please initialize"),
            Sign("Distributed backend is not initialized"),
            Sign("deepspeed/comm/comm.py", r"\A[^\n]*\n(?:[^\n]*\n){1,2}?[^\n]*'NoneType' object has no attribute"),
        ),
        why="get_rank, barrier, a gather or zero.Init came before init_process_group, which deepspeed.initialize, "
        "TrainingArguments(deepspeed=...) and Accelerator() call where a launcher started the program; or after it "
        "was ended.",
        changes=(
            "deepspeed PROGRAM, torchrun or accelerate launch in the place of python PROGRAM, for one GPU too",
            "deepspeed.init_distributed() as the first line of a program of your own",
            "around such calls: if torch.distributed.is_initialized()",
        ),
        source="https://deepspeed.readthedocs.io/en/latest/initialize.html",
    ),
    Cause(
        code="config-refused",
        words="DeepSpeed refuses the config",
        phase="init",
        signs=(
            Sign("DeepSpeedConfigError"),
            Sign("validation error", r"(?i)validation errors? for DeepSpeed|deepspeed"),
            Sign("modes cannot be simultaneously enabled"),
            *(Sign(f"deepspeed/runtime/{file}", _LAST_FRAME) for file in ("config", "zero/config", "config_utils")),
            Sign("Extra inputs are not permitted"),
            Sign("extra fields not permitted"),
        ),
        why="A key is unknown to this release, misspelt, or has a value that it cannot have.",
        changes=("dsgen lint ds_config.json names the key, its line and the mend",),
        source="https://www.deepspeed.ai/docs/config-json/",
    ),
    Cause(
        code="config-unreadable",
        words="the DeepSpeed config's file cannot be read",
        phase="init",
        signs=(
            Sign("HjsonDecodeError"),
            Sign("Duplicate keys in DeepSpeed config"),
            Sign("JSONDecodeError", below=_READERS),
        ),
        why="A bracket or a quotation mark is open, a comma is missing or too many, a key stands twice, or a value is "
        "Python's (True, None) and not JSON's (true, null).",
        changes=(
            "dsgen lint FILE --target hf-trainer, or accelerate, where these read it: it names the line; they take "
            "no comment and no comma behind the last entry, which DeepSpeed itself does",
            "dsgen lint FILE, where deepspeed.initialize reads it",
        ),
        source="https://www.deepspeed.ai/docs/config-json/",
    ),
    Cause(
        code="arguments-refused",
        words="an optimizer or a schedule does not take what the config hands to it",
        phase="init",
        signs=(
            Sign("__init__() got an unexpected keyword argument", rf"{_BUILT}\.__init__\(\)"),
            Sign("__init__() missing", rf"{_BUILT}\.__init__\(\)"),
        ),
        why="What stands in params is handed to the class as it is: one that it does not have, and one that is "
        "missing and has no default, as total_num_steps of WarmupDecayLR, end the start.",
        changes=("dsgen lint ds_config.json names the argument and what the class takes",),
        source="https://deepspeed.readthedocs.io/en/latest/schedulers.html",
    ),
    Cause(
        code="training-arguments-refused",
        words="the installed transformers or TRL has no such argument",
        signs=(Sign("__init__() got an unexpected keyword argument", rf"{_ARGUMENTS}\.__init__\(\)"),),
        why="The program was written for another release: transformers 5 has no evaluation_strategy (now "
        "eval_strategy), no warmup_ratio (now warmup_steps below 1) and no group_by_length (now "
        "train_sampling_strategy), TRL no max_seq_length (now max_length).",
        changes=(
            "write the argument as the installed release has it: dsgen plan --args train.py names those that are gone",
            "the release that the program was written for: pip show transformers trl says which is installed",
        ),
        source="https://github.com/yeyupiaoling/Whisper-Finetune/issues/112",
    ),
    Cause(
        code="optimizer-missing",
        words="DeepSpeed has no optimizer",
        phase="init",
        signs=(
            Sign("requires an optimizer", r"zero stage \d requires an optimizer"),
            Sign("must provide optimizer during init"),
        ),
        why="Stages 1 and 2 share an optimizer's states, and backward and step need one: neither the config nor the "
        "program gave it.",
        changes=(
            '"optimizer" in the config, or optimizer= and model_parameters= of deepspeed.initialize',
            "to evaluate alone: stage 0 or 3, which start without one",
        ),
        source="https://github.com/EleutherAI/gpt-neox/issues/987",
    ),
    Cause(
        code="no-sync-refused",
        words="gradients are to be accumulated in a way that ZeRO-2 and ZeRO-3 refuse",
        phase="forward",
        signs=(Sign("no_sync context manager is incompatible with gradient partitioning"),),
        why="These stages share gradients in each backward; DeepSpeed 0.16 and later stop at no_sync, which older "
        "releases of transformers and accelerate, and loops with accelerator.accumulate(), call where the batch is "
        "accumulated.",
        changes=(
            "newer releases of transformers and accelerate, which leave it out at these stages",
            "gradient_accumulation_steps=1 with a larger micro-batch, or stage 1, where it is allowed",
            "a loop of your own: no no_sync; engine.step() after each micro-batch counts them itself",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/6793",
    ),
    Cause(
        code="untested-optimizer",
        words="ZeRO refuses an optimizer that is not on its list",
        phase="init",
        signs=(Sign("untested ZeRO Optimizer"), Sign('Please add <"zero_allow_untested_optimizer')),
        why="ZeRO takes Adam, AdamW, Adagrad, Lion and Muon, torch's and its own; others (8-bit, SGD, Lamb, an own "
        "class) it takes when it is told to: it hands them flat slices of the parameters.",
        changes=(
            '"zero_allow_untested_optimizer": true, where it works element by element',
            "an optimizer of the list: AdamW in the config",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/281",
    ),
    Cause(
        code="optimizer-refused",
        words="DeepSpeed refuses the optimizer",
        phase="init",
        signs=(
            Sign('<"zero_force_ds_cpu_optimizer"'),
            Sign("ZeRO-Offload with a client provided optimizer"),
        ),
        why="With the optimizer on the CPU DeepSpeed takes its own CPU Adam; others must be allowed.",
        changes=(
            "name the optimizer in the config, so that DeepSpeed makes its CPU Adam",
            '"zero_force_ds_cpu_optimizer": false takes yours, which is several times slower on the CPU',
        ),
        source="https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training",
    ),
)
