#!/bin/bash
deepspeed --num_gpus=2 --master_port=29501 train.py --config ds_config.json
