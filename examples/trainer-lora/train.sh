#!/bin/bash
# Fine-tune on one GPU: bash train.sh data.jsonl
set -euo pipefail
cd "$(dirname "$0")"
deepspeed --num_gpus 1 train.py training_args.yaml --data "$1"
