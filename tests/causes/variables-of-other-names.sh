#!/bin/bash
export DEEPSPEED_LOG_LEVEL=DEBUG
export NCCL_TIMEOUT=600
deepspeed --num_gpus=2 train.py
