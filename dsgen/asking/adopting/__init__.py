"""A config that exists, as a scenario that renders back to it; and what dsgen would do otherwise."""

from __future__ import annotations

from dsgen.asking.adopting.adoption import Adoption, adopt
from dsgen.asking.training_arguments import TrainingArguments, of_naming_file, read_arguments

__all__ = ["Adoption", "TrainingArguments", "adopt", "of_naming_file", "read_arguments"]
