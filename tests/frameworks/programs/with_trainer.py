"""The Hugging Face Trainer with the files that `dsgen render --target hf-trainer` wrote: the YAML, or the Python."""

import runpy
import sys
from pathlib import Path

import yaml
from tiny import Tokens, folder_of_model, report
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

HERE = {"use_cpu": True, "report_to": "none", "save_strategy": "no"}

folder = folder_of_model()
if sys.argv[2].endswith(".py"):
    args = runpy.run_path(sys.argv[2])["training_args"](**HERE)
else:
    told = yaml.safe_load(Path(sys.argv[2]).read_text(encoding="utf-8"))
    (args,) = HfArgumentParser(TrainingArguments).parse_dict({**told, **HERE})
model = AutoModelForCausalLM.from_pretrained(folder)
trainer = Trainer(model=model, args=args, train_dataset=Tokens())
result = trainer.train()
report(trainer.model_wrapped, loss=result.training_loss, logs=trainer.state.log_history)
