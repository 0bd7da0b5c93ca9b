#!/bin/bash
export NCCL_DEBUG=INFO
export DS_PIPE_RESERVE=8
export DS_SKIP_UNUSED_PARAMETERS=1
export DS_REUSE_BUFFERS=1
export DS_USE_CUDA_TILING=1
deepspeed --num_gpus=2 train.py
