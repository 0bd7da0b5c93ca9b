"""TRL's SFTTrainer with LoRA and the arguments that `dsgen render --target hf-trainer` wrote as Python."""

import runpy
import sys

from datasets import Dataset
from peft import LoraConfig
from tiny import Tokens, folder_of_model, report
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

folder = folder_of_model()
args = runpy.run_path(sys.argv[2])["training_args"](
    SFTConfig,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    max_length=16,
    dataset_kwargs={"skip_prepare_dataset": True},
)
rows = Dataset.from_dict({"input_ids": [row.tolist() for row in Tokens().rows]})
lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")

trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(folder), args=args, train_dataset=rows, peft_config=lora
)
result = trainer.train()
report(trainer.model_wrapped, loss=result.training_loss)
