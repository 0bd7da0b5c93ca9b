"""A checkpoint of some ranks of the model of a config.json: `saves_model.py CONFIG FOLDER STAGE [OPTIONS]`.

OPTIONS is JSON: `rank` of adapters, which are trained alone (`base` in 4 bits, where it is a folder); `config`, whose
keys come beside; `loaded`, a file: a checkpoint is loaded, and what is trained then is written there.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import deepspeed
import peft
import torch
import transformers

config, folder, stage = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
more = options.get("config", {})
zero = {"stage": stage, **more.pop("zero_optimization", {})}
asked = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 0.001}},
    "zero_optimization": zero,
    **more,
}
torch.manual_seed(0)
adapted = "rank" in options
# As the Trainer makes it: adapters beside a base under zero.Init stay in fp32.
early = deepspeed.zero.Init(config_dict_or_path=asked) if adapted and stage == 3 else contextlib.nullcontext()
if "base" in options:
    four = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_quant_storage=torch.bfloat16,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(options["base"], quantization_config=four)
else:
    with early:
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(config))
if adapted:
    wanted = peft.LoraConfig(r=options["rank"], target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, wanted)
trained = [one for one in model.parameters() if one.requires_grad]
engine = deepspeed.initialize(model=model, model_parameters=trained, config=asked)[0]
if "loaded" in options:
    engine.load_checkpoint(folder, load_module_strict=not adapted)
    named = {name: item for name, item in engine.module.named_parameters() if item.requires_grad}
    with deepspeed.zero.GatheredParameters(list(named.values())):
        torch.save({name: item.float().clone() for name, item in named.items()}, options["loaded"])
else:
    for _ in range(2):
        tokens = torch.randint(model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(1))
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    engine.save_checkpoint(folder, exclude_frozen_parameters=adapted)
    assert Path(folder, "latest").is_file()
    if adapted:  # Trainer.save_model and PeftModel.save_pretrained
        if stage == 3:
            state = engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=True)
        else:
            state = engine.module.state_dict()
        if torch.distributed.get_rank() == 0:
            engine.module.save_pretrained(str(Path(folder, "adapters")), state_dict=state)
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort the interpreter while it ends
