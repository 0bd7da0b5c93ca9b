"""`--args` of a Python program: what stands in its calls as plain values is read, and nothing of it is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused, run

from dsgen.asking.training_arguments import read_arguments
from dsgen.linting.python_programs import document, keywords_in, told_by
from dsgen.shapes.errors import DsgenError

TRAINER = """
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments

raise SystemExit("it must not be run")
BASE = "Qwen/Qwen2.5-7B"
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8, learning_rate=2e-5, bf16=True,
    gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}, deepspeed="ds.json",
    warmup_steps=compute(),
)
tokenizer = AutoTokenizer.from_pretrained("another/name")
model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="sdpa")
"""
QLORA = """
import torch, peft
from transformers import BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
trainer = SFTTrainer(
    model="mistralai/Mistral-7B-v0.3",
    args=SFTConfig(
        per_device_train_batch_size=2, max_length=2048, bf16=True, model_init_kwargs=dict(dtype=torch.bfloat16)
    ),
    peft_config=peft.LoraConfig(r=64, lora_dropout=0.1, target_modules=("q_proj", "v_proj")),
)
"""
CARD = ("--hw", "a100-80g", "--gpus", "8")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINER)


def test_the_arguments_of_the_trainer_and_the_model_are_read() -> None:
    told = read_arguments("train.py")

    assert told.model == "Qwen/Qwen2.5-7B"
    assert told.fields == {
        "micro_batch": 4,
        "accumulation": 8,
        "precision": "bf16",
        "checkpointing": "full",
        "reentrant": True,
        "attention": "sdpa",
    }
    assert "warmup_steps" not in told.values  # it is computed


def test_adapters_over_4_bits_of_trl_are_read_with_what_it_does_by_itself() -> None:
    Path("sft.py").write_text(QLORA)
    told = read_arguments("sft.py")

    assert told.model == "mistralai/Mistral-7B-v0.3"
    wanted = {"method": "qlora", "lora_rank": 64, "lora_dropout": 0.1, "lora_targets": ["q_proj", "v_proj"]}
    of_trl = {"double_quantization": False, "kbit_fp32": "never", "loading": "mapped", "checkpointing": "full"}
    assert {name: told.fields[name] for name in wanted | of_trl} == wanted | of_trl
    assert (told.fields["micro_batch"], told.fields["seq_len"]) == (2, 2048)


def test_a_plan_follows_it_and_says_of_which_config_it_is_not() -> None:
    done = run("plan", "--args", "train.py", *CARD)

    assert done.code == 0
    assert "pinned: training.micro_batch = 4 (train.py)" in done.out
    assert "--config ds.json --args train.py takes both" in done.err


def test_beside_a_config_it_fills_in_the_auto() -> None:
    Path("ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}'
    )

    out = run("memory", "--config", "ds.json", "--args", "train.py", *CARD).out

    assert "micro-batch 4 x 8 GPUs x accumulation 8 = 256, 4096 tokens, bf16" in " ".join(out.split())


def test_a_launch_script_says_what_it_tells_its_program() -> None:
    Path("run.sh").write_text(
        "deepspeed --num_gpus 8 t.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 True\n"
    )

    assert read_arguments("run.sh").fields["micro_batch"] == 2


def test_what_a_plan_follows_and_the_program_computes_is_named() -> None:
    Path("train.py").write_text(TRAINER.replace("batch_size=4", "batch_size=N").replace('"out"', "folder"))

    assert read_arguments("train.py").uncounted == (
        "train.py computes per_device_train_batch_size, which only running it would tell: left to dsgen",
    )
    Path("train.py").write_text(TRAINER)
    assert read_arguments("train.py").uncounted == ()


def test_what_is_assigned_twice_or_computed_is_not_guessed() -> None:
    text = "N = 1\nN = 2\nTrainingArguments(per_device_train_batch_size=N, max_steps=M * 2, bf16=True)\n"

    assert told_by(text, "x.py") == {"bf16": True}


def test_of_two_models_the_first_that_is_named_is_trained() -> None:
    text = (
        "policy = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "policy = AutoModelForCausalLM.from_pretrained('a/policy')\n"
        "reference = AutoModelForCausalLM.from_pretrained('a/reference')\n"
    )

    assert told_by(text, "x.py")["model_name_or_path"] == "a/policy"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = (\n", "bad.py:1: it is no Python"),
        ("print(1)\n", "it has no argument that a plan follows"),
        (
            "TrainingArguments(bf16=True)\nTrainingArguments(fp16=True)\n",
            "it makes 2 trainings that are told different",
        ),
    ],
)
def test_a_program_that_says_nothing_is_a_mistake(text: str, says: str) -> None:
    Path("bad.py").write_text(text)

    assert says in refused("plan", "--args", "bad.py", *CARD, "--model", "7b")


def test_a_program_of_which_all_trainings_are_told_the_same_is_one() -> None:
    assert told_by("A(x=1)\nTrainingArguments(bf16=True)\nTrainingArguments(bf16=True)\n", "x.py") == {"bf16": True}


def test_a_file_that_is_not_there_is_said_to_be_missing() -> None:
    for name in ("nothing.py", "nothing.sh"):
        with pytest.raises(DsgenError, match="no such file"):
            read_arguments(name)


LORA = "TrainingArguments(per_device_train_batch_size=1)\nget_peft_model(model, LoraConfig(r=8))\n"


@pytest.mark.parametrize(
    ("model", "matrices"),
    [
        ("llama-3.1-8b", ["q_proj", "v_proj"]),
        ("phi-2", ["q_proj", "v_proj", "fc1", "fc2"]),
        ("gpt2-124m", ["c_attn"]),
        ("phi-3-mini", None),
        (None, None),
    ],
)
def test_a_lora_config_that_names_no_matrices_has_peft_s(model: str | None, matrices: list[str] | None) -> None:
    Path("lora.py").write_text(LORA)

    told = read_arguments("lora.py", model)

    assert told.fields["method"] == "lora"
    assert told.fields.get("lora_targets") == matrices
    stops = "peft has none for phi3: it stops there; all linear layers are counted"
    assert any(stops in words for words in told.uncounted) == (model == "phi-3-mini")


def test_a_lora_config_drops_nothing_unless_it_says_so() -> None:
    Path("sft.py").write_text("SFTTrainer(model='Qwen/Qwen3-8B', args=SFTConfig(), peft_config=LoraConfig())\n")

    assert "lora_dropout" not in read_arguments("sft.py").fields  # the 0.05 of TRL's is of its own command's arguments


def test_the_model_that_an_option_names_decides_what_peft_adapts() -> None:
    Path("lora.py").write_text(LORA)

    done = run("why", "lora_targets", "--args", "lora.py", *CARD, "--model", "llama-3.1-8b")

    assert "training.lora_targets = [q_proj, v_proj]" in done.out


def test_a_program_of_unsloth_s_has_its_adapters_and_its_base_in_4_bits() -> None:
    """Its classes take what others say in LoraConfig and BitsAndBytesConfig."""
    text = (
        "model, tokenizer = FastLanguageModel.from_pretrained(model_name='unsloth/Qwen3-8B', max_seq_length=2048{})\n"
        "model = FastLanguageModel.get_peft_model(model, r=32, use_gradient_checkpointing='unsloth')\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2))\n"
    )
    Path("u.py").write_text(text.format(""))
    told = read_arguments("u.py")

    assert told.model == "unsloth/Qwen3-8B"
    wanted = {"method": "qlora", "lora_rank": 32, "lora_targets": ["all-linear"], "seq_len": 2048, "micro_batch": 2}
    assert {name: told.fields[name] for name in wanted} == wanted
    assert told.fields["checkpointing"] == "full"
    assert "Unsloth's kernels are not counted" in told.uncounted[0]
    Path("u.py").write_text(text.format(", dtype=None, load_in_4bit=False"))
    assert (read_arguments("u.py").fields["method"], read_arguments("u.py").fields["loading"]) == ("lora", "mapped")


LOADED = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B"'
REFERENCE = 'reference = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B"'


@pytest.mark.parametrize(
    ("lines", "attention"),
    [
        ([f"{LOADED})"], "sdpa"),
        ([f"{LOADED}, attn_implementation=None)"], "sdpa"),
        ([f'{LOADED}, attn_implementation="eager")'], "eager"),
        ([f"{LOADED}, **more)"], None),
        (['model = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen3-8B")'], "sdpa"),
        (['tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")'], None),
        (['processor = AutoProcessor.from_pretrained("Qwen/Qwen3-8B")'], None),
        # Of two models the first is trained, whatever only running the program would tell of it.
        ([f'{LOADED}, attn_implementation="flash_attention_2")', f"{REFERENCE})"], "flash_attention_2"),
        ([f"{LOADED})", f'{REFERENCE}, attn_implementation="flash_attention_2")'], "sdpa"),
        ([f"{LOADED}, attn_implementation=asked.attention)", f"{REFERENCE})"], None),
        ([f"{LOADED}, attn_implementation=asked.attention)", 'model = PeftModel.from_pretrained(model, "own")'], None),
        # What names one elsewhere may be meant for the model.
        ([f"{LOADED}, use_flash_attention_2=True)"], None),
        (['config._attn_implementation = "flash_attention_2"', f"{LOADED}, config=config)"], None),
        (
            [
                'config = AutoConfig.from_pretrained("Qwen/Qwen3-8B", attn_implementation="flash_attention_2")',
                f"{LOADED}, config=config)",
            ],
            None,
        ),
        (['more = {"dtype": "auto"}', 'more["attn_implementation"] = "flash_attention_2"', f"{LOADED}, **more)"], None),
        ([f"{LOADED})", 'model.set_attn_implementation("flash_attention_2")'], None),
        (["from patches import replace_llama_attn_with_flash_attn", f"{LOADED})"], None),
        (['model, _ = FastLanguageModel.from_pretrained("unsloth/Qwen3-8B")', f"{REFERENCE})"], None),
        (["model = AutoModelForCausalLM.from_config(config)"], "sdpa"),
        (["model = transformers.LlamaForCausalLM(config)"], "sdpa"),
        (['model = AutoModelForSeq2SeqLM.from_pretrained("google/t5-v1_1-xl")'], None),  # no plan counts an encoder's
        # What TRL loads by its name is trained, whatever is loaded beside it.
        (['trainer = SFTTrainer(model="Qwen/Qwen3-8B")'], "sdpa"),
        (['NAME = "Qwen/Qwen3-8B"', "trainer = DPOTrainer(NAME)"], "sdpa"),
        ([f'{REFERENCE}, attn_implementation="eager")', 'trainer = SFTTrainer(model="Qwen/Qwen3-8B")'], "sdpa"),
        (["trainer = SFTTrainer(model=asked.model)"], None),
        (['args = TrainingArguments(model_init_kwargs=more(), output_dir="out")', 'SFTTrainer("Qwen/Qwen3-8B")'], None),
    ],
)
def test_transformers_takes_sdpa_where_a_program_asks_for_no_attention(lines: list[str], attention: str | None) -> None:
    own = [] if any("TrainingArguments" in line for line in lines) else ["args = TrainingArguments(output_dir='out')"]
    told = told_by("\n".join([*lines, *own]), "train.py")

    assert told.get("attn_implementation") == attention


@pytest.mark.parametrize("told", ["model=NAME", "NAME", '"Qwen/Qwen3-8B"'])
def test_a_model_that_trl_s_trainer_is_given_by_its_name_is_the_base(told: str) -> None:
    text = f'NAME = "Qwen/Qwen3-8B"\ntrainer = SFTTrainer({told}, args=SFTConfig(output_dir="out"))\n'

    assert told_by(text, "train.py")["model_name_or_path"] == "Qwen/Qwen3-8B"


def test_a_reward_model_is_not_what_a_trainer_s_own_arguments_load() -> None:
    text = """
reward = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen3-0.6B")
args = GRPOConfig(model_init_kwargs={"attn_implementation": "flash_attention_2"})
trainer = GRPOTrainer(model="Qwen/Qwen3-8B", args=args, reward_funcs=reward)
"""
    assert told_by(text, "train.py")["attn_implementation"] == "flash_attention_2"


OWN = """from transformers import Seq2SeqTrainingArguments, TrainingArguments as Plain
class Base(Seq2SeqTrainingArguments):
    no_cuda: bool = False
class TrainingArguments(Base):
    group_by_length: bool = True
    per_device_train_batch_size: int = 2
args = TrainingArguments(output_dir="out", group_by_length=True, no_cuda=True, warmup_ratio=0.1)
"""


def test_fields_that_a_class_of_the_program_s_own_declares_are_its_own() -> None:
    assert keywords_in(OWN, "train.py") == ("output_dir", "warmup_ratio")
    assert "per_device_train_batch_size" not in (document(OWN, "train.py").config or {})
    called = 'TrainingArguments(optim=asked(), **{"no_cuda": True}, accelerator_config={"split_batches": True})'
    assert {*keywords_in(called, "train.py")} == {"optim", "no_cuda", "accelerator_config"}
    assert keywords_in("from ours import MyTrainingArguments\nMyTrainingArguments(no_cuda=True)", "train.py") == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("first", ["", "import os\n"])
def test_a_program_s_places_are_right_whatever_its_line_ends_and_mark(end: str, mark: str, first: str) -> None:
    program = f'{first}a = TrainingArguments(output_dir="\u00e9", max_steps=2)\nb = 1\n'
    text = f"{mark}{program}".replace("\n", end)

    told = document(text, "train.py")
    span = told.span("max_steps", "value")

    assert (text[span.start : span.end], told.config and told.config["max_steps"]) == ("2", 2)
