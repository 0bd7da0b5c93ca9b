#!/bin/bash
# Fine-tune all weights on eight GPUs: bash train.sh data.jsonl
set -euo pipefail
cd "$(dirname "$0")"
accelerate launch --config_file accelerate.yaml train.py --data "$1"
