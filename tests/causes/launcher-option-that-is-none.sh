#!/bin/bash
deepspeed --profile --num_gpus=2 train.py
