"""Why DeepSpeed refuses a config, in one plain sentence, and which key was meant by one that nobody reads."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.deepspeed import surface
from dsgen.documents.document import unwritten
from dsgen.effective.refusals import in_words, nearest_key
from dsgen.linting.rules.unknown import unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.targets import find

KNOWN = surface.load("0.19")


@pytest.mark.parametrize(
    ("refused", "written", "ranks", "said"),
    [
        (
            {"kind": "ValidationError", "message": "...", "model": "DeepSpeedZeroConfig",
             "faults": [{"at": ["overlap_com"], "message": "Extra inputs are not permitted"}]},
            {"zero_optimization": {"overlap_com": True}}, 1,
            "DeepSpeed knows no zero_optimization.overlap_com (did you mean zero_optimization.overlap_comm?)",
        ),
        (
            {"kind": "ValidationError", "message": "...", "model": "DeepSpeedZeroConfig",
             "faults": [{"at": ["stage"], "message": "Input should be 0, 1, 2, 3 or 3"}] * 5},
            {"zero_optimization": {"stage": 4}}, 1,
            "; ".join(["zero_optimization.stage is 4; it must be 0, 1, 2 or 3"] * 3) + "; and 2 more",
        ),
        (
            {"kind": "ValidationError", "message": "...", "model": "DeepSpeedFP16Config",
             "faults": [{"at": [], "message": "Value error, it is so"}]},
            {"fp16": {}}, 1, "it is so",
        ),
        (
            {"kind": "TypeError", "message": "'>' not supported between instances of 'str' and 'int'", "faults": [],
             "functions": ["__init__", "_batch_assertion"]},
            {"train_batch_size": "auto"}, 1,
            'train_batch_size is "auto"; it must be a number ("auto" is for the Hugging Face Trainer: '
            "--target hf-trainer)",
        ),
        (
            {"kind": "TypeError", "message": "unsupported operand type(s) for |: 'str' and 'bool'", "faults": [],
             "functions": ["__init__", "_initialize_params"]},
            {"train_micro_batch_size_per_gpu": "8", "wall_clock_breakdown": "auto"}, 1,
            'wall_clock_breakdown is "auto"; it must be true or false',
        ),
        (
            {"kind": "TypeError", "message": "'>' not supported between instances of 'list' and 'int'", "faults": [],
             "functions": ["__init__", "_batch_assertion"]},
            {"train_micro_batch_size_per_gpu": []}, 1,
            "train_micro_batch_size_per_gpu is []; it must be a number",
        ),
        (
            {"kind": "AssertionError", "message": "Check batch related parameters. x 32 != 4 * 2 * 1", "faults": []},
            {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, 1,
            "train_batch_size 32 is not micro-batch 4 x 2 steps x 1 GPU; the three keys need 4 GPUs",
        ),
        (
            {"kind": "AssertionError", "message": "Micro batch size per gpu: 0 has to be greater than 0", "faults": []},
            {"train_batch_size": 2}, 4, "train_batch_size 2 is less than 4 GPUs",
        ),
        (
            {"kind": "TypeError", "message": "X() argument after ** must be a mapping, not bool", "faults": []},
            {"dump_state": True, "bf16": True}, 1, "bf16 is true; it must be a section",
        ),
        (
            {"kind": "ValueError", "message": "Duplicate keys in DeepSpeed config: ['a', 'b']", "faults": []},
            None, 1, "a key stands twice in one section: a, b",
        ),
        (
            {"kind": "TypeError", "message": "A.__init__() missing 1 required positional argument: 'n'", "faults": []},
            {}, 1, "A needs n, and its params do not give it",
        ),
        ({"kind": "HjsonDecodeError", "message": "bad at line 3", "faults": []}, None, 1,
         "the file is not HJSON: bad at line 3"),
        ({"kind": "AttributeError", "message": "x", "faults": []}, [1], 1, "the top level is [1]; it must be a map"),
        ({"kind": "E", "message": "It is gone. See https://example.org/1.", "faults": []}, {}, 1, "It is gone."),
        ({"kind": "E", "message": "word " * 100, "faults": []}, {}, 1, ("word " * 100)[:297] + "..."),
    ],
)  # fmt: skip
def test_a_refusal_is_one_plain_sentence(refused: Any, written: Any, ranks: int, said: str) -> None:
    assert in_words(refused, written, ranks, KNOWN) == said


def test_a_suggestion_is_given_only_where_it_helps() -> None:
    assert nearest_key("tensor_parallel.tp_size", KNOWN) == "tensor_parallel.autotp_size"
    assert nearest_key("compile.enabled", KNOWN) is None  # "enabled" stands in many sections
    assert nearest_key("zero_optimization._comment", KNOWN) is None
    assert nearest_key("optimizer.foo", KNOWN) is None


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("gradient_clip", "gradient_clipping"),
        ("fp16.loss_scale_windo", "fp16.loss_scale_window"),
        ("stage3_prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"),
        ("model_parallel_size", None),  # as like as gradient_clip, but one word is another
        ("opt_level", None),
        ("grad_clip", None),  # 0.69
        ("learning_rate", None),
    ],
)
def test_lint_and_effective_offer_the_same_key(path: str, meant: str | None) -> None:
    config: dict[str, Any] = {}
    *sections, name = path.split(".")
    inside = config
    for section in sections:
        inside = inside.setdefault(section, {})
    inside[name] = 1
    [unknown] = unknown_keys(
        Subject(config=config, surface=KNOWN, target=find("deepspeed"), document=unwritten(config))
    )

    assert nearest_key(path, KNOWN) == meant
    assert unknown.meant[:1] == ((meant,) if meant else ())
