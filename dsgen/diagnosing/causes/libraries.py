"""Causes that Hugging Face's libraries refuse a run for: attention kernels, quantized models, Accelerate, resuming."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import UNKNOWN, Cause, Sign

__all__ = ["LIBRARIES"]

LIBRARIES = (
    Cause(
        code="torch-load-refused",
        words="transformers loads no pickled file with a torch before 2.6",
        phase="load",
        signs=(Sign("serious vulnerability issue in `torch.load`"),),
        why="torch.load of an older torch can be made to run code (CVE-2025-32434), so newer releases of transformers "
        "refuse it: for pytorch_model.bin, and for scheduler.pt, optimizer.pt and a checkpoint's weights that are "
        "resumed.",
        changes=(
            "torch 2.6 or later for the CUDA that runs; flash-attn, bitsandbytes and DeepSpeed's operators are then "
            "built or installed anew",
            "weights as model.safetensors, which it loads with any torch: the hub often has both",
        ),
        source="https://github.com/huggingface/transformers/pull/37785",
    ),
    Cause(
        code="triton-broken",
        words="triton is missing, or does not fit what imports it",
        level=UNKNOWN,
        phase="launch",
        signs=(
            Sign("No module named 'triton", r"\A(?!.*(?:Error caught was|Failed to load ))"),  # warnings
            Sign("module 'triton' has no attribute"),
            Sign("cannot import name", r"\A[^\n]*cannot import name[^\n]* from 'triton\b"),
            Sign("Please install triton"),
            Sign("Triton needs to be installed to use deepspeed"),
            Sign("requires Triton, which is not available"),
        ),
        why="torch for CUDA on Linux brings the one triton that fits it; one for the CPU, for Windows or for a Mac "
        "brings none, and another package may have put another release in its place.",
        changes=(
            "pip install --force-reinstall torch from the index of the CUDA that runs, with no triton pinned beside it",
            "'triton' is not a package: a file of the program itself is called triton.py; rename it",
            "on Windows: WSL 2, or the package triton-windows of the release that fits torch",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/7240",
    ),
    Cause(
        code="flash-attention-unsupported",
        words="FlashAttention does not run on this GPU",
        phase="forward",
        signs=(
            Sign("FlashAttention only supports Ampere GPUs or newer"),
            Sign("FlashAttention only supports Ampere or newer"),
            Sign("FlashAttention forward only supports head dimension"),
            Sign("FlashAttention backward for head dim"),
            Sign("FlashAttention-3 only supports Hopper"),
        ),
        why="flash-attn 2 needs compute capability 8.0 (A100, RTX 30 and later; not V100, T4, RTX 20) and heads of at "
        "most 256; flash-attn 3 needs a Hopper.",
        changes=(
            'from_pretrained(..., attn_implementation="sdpa"): torch\'s own kernel, which such a GPU has',
            "where a program calls it by itself (a patch, use_flash_attn in the model's config): switch that off",
            "pip uninstall flash-attn, where the program takes it whenever it is there",
        ),
        source="https://github.com/Dao-AILab/flash-attention#nvidia-cuda-support",
    ),
    Cause(
        code="flash-attention-dtype",
        words="FlashAttention got tensors that are neither fp16 nor bf16",
        phase="forward",
        signs=(Sign("FlashAttention only support fp16 and bf16"),),
        why="The model was loaded in fp32, or a norm, adapter or rotary table made fp32 tensors of them.",
        changes=(
            "from_pretrained(..., dtype=torch.bfloat16) and bf16=True, or fp16 where the GPU has no bf16",
            'attn_implementation="sdpa" takes fp32 as well, slowly',
        ),
        source="https://github.com/Dao-AILab/flash-attention#nvidia-cuda-support",
    ),
    Cause(
        code="flash-attention-missing",
        words="flash-attn is asked for and is not installed",
        phase="load",
        signs=(
            Sign("flash_attn seems to be not installed"),
            Sign("Flash Attention 2 is not available"),
            Sign("FlashAttention2 has been toggled on, but it cannot be used"),
            Sign("FlashAttention3 has been toggled on, but it cannot be used"),
            Sign("flash_attn", r"\A[^\n]*flash_attn[^\n]*(?:undefined symbol|cannot open shared object)"),
        ),
        why="The model is to use FlashAttention, and the package is not there, is too old, or was built for another "
        "torch.",
        changes=(
            "pip install flash-attn --no-build-isolation, with the torch that runs; it takes a CUDA toolkit",
            'from_pretrained(..., attn_implementation="sdpa"): torch\'s own kernel, without a package',
        ),
        source="https://github.com/Dao-AILab/flash-attention#installation-and-features",
    ),
    Cause(
        code="device-map-spread",
        words='device_map="auto" spread the model over GPUs, and every rank needs it on its own',
        phase="init",
        signs=(Sign("You can't train a model that has been loaded with `device_map"),),
        why="Under a launcher each rank trains with one GPU, and DeepSpeed says what lies there; device_map lets one "
        "process use all of them in turns.",
        changes=(
            "from_pretrained without device_map; a model that is larger than a GPU: ZeRO-3, with "
            "TrainingArguments(deepspeed=...) made before it",
            'of a base in 4 or 8 bits: device_map={"": int(os.environ.get("LOCAL_RANK", 0))}',
            "one process, python PROGRAM, without DeepSpeed: the GPUs then compute one after the other",
        ),
        source="https://github.com/huggingface/transformers/issues/31557",
    ),
    Cause(
        code="quantized-elsewhere",
        words="the quantized model lies on another device than the rank's own",
        phase="init",
        signs=(
            Sign("on a different device than the one you're training on"),
            Sign("precision on multiple devices"),
            Sign("precision with CPU or disk offload"),
            Sign("You can't train a model that has been loaded"),
        ),
        why='Every rank trains a quantized model of its own: it must lie whole on the rank\'s GPU. device_map="auto" '
        "spreads it over all GPUs, and {'': 0} puts it on GPU 0 for every rank.",
        changes=(
            'device_map={"": int(os.environ.get("LOCAL_RANK", 0))} in from_pretrained',
            "at ZeRO-3 no device_map at all: the Trainer's config makes from_pretrained load it in parts",
        ),
        source="https://github.com/huggingface/accelerate/issues/1515",
    ),
    Cause(
        code="quantized-without-adapters",
        words="a quantized model has nothing that can be trained",
        phase="init",
        signs=(
            Sign("cannot perform fine-tuning on purely quantized models"),
            Sign("The model you want to train is loaded in 8-bit precision"),
            Sign("is quantized but the quantization method", r"training"),
        ),
        why="Weights in 4 or 8 bits get no gradient: adapters beside them are trained.",
        changes=("get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(...)) before the Trainer is made",),
        source="https://huggingface.co/docs/peft/developer_guides/quantization",
    ),
    Cause(
        code="device-map-refused",
        words="ZeRO-3 and device_map exclude each other",
        phase="load",
        signs=(Sign("Zero-3 is not compatible with"), Sign("ZeRO-3 is not compatible with", r"device_map|low_cpu_mem")),
        why="Under ZeRO-3 DeepSpeed says where each part of a weight lies; device_map and low_cpu_mem_usage would too.",
        changes=(
            "from_pretrained without device_map and low_cpu_mem_usage; TrainingArguments(deepspeed=...) made before it",
            "ZeRO-2 where a rank's GPU holds the whole model",
        ),
        source="https://github.com/huggingface/peft/issues/306",
    ),
    Cause(
        code="dummy-optimizer",
        words="the optimizer is named twice, or nowhere, for Accelerate",
        phase="init",
        signs=(
            Sign("cannot create a `DummyOptim` without specifying an optimizer"),
            Sign("cannot specify an optimizer in the config file and in the code at the same time"),
            Sign("cannot create a `DummyScheduler` without specifying a scheduler"),
            Sign("cannot create a DummyScheduler without specifying a scheduler"),
            Sign("cannot specify a scheduler in the config file and in the code at the same time"),
            Sign("Either specify a scheduler in the config file or"),
            Sign("only specify `accelerate.utils.DummyScheduler` in the code when using"),
            Sign("'DummyOptim' object has no attribute"),
            Sign("configured in the DeepSpeed config, but no `scheduler`"),
        ),
        why="Accelerate takes DummyOptim and DummyScheduler where the config has the optimizer and the scheduler, and "
        "real ones where it has not: either all from the config, or all from the program.",
        changes=(
            "with an optimizer in the config: accelerate.utils.DummyOptim(parameters, lr=...) in the program, and "
            "DummyScheduler for a scheduler",
            "take optimizer and scheduler out of the config, and make torch.optim.AdamW in the program",
            "accelerator.prepare(...) must be given them together with the model; its results are what steps",
        ),
        source="https://huggingface.co/docs/accelerate/usage_guides/deepspeed",
    ),
    Cause(
        code="accelerate-batch-unknown",
        words="Accelerate knows no batch size for DeepSpeed",
        phase="init",
        signs=(
            Sign("requires you to pass at least one of training or evaluation dataloaders"),
            Sign("At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size"),
            Sign("You must specify training_dataloader in `accelerate.prepare()`"),
        ),
        why='train_micro_batch_size_per_gpu is "auto", which Accelerate fills in from the data loader that is prepared '
        "together with the model: none was, or one without a batch size.",
        changes=(
            'the number in the config instead of "auto": train_micro_batch_size_per_gpu',
            "accelerator.prepare(model, optimizer, loader) in one call",
        ),
        source="https://huggingface.co/docs/accelerate/usage_guides/deepspeed",
    ),
    Cause(
        code="accelerate-file-refused",
        words="Accelerate's file says what the DeepSpeed config says too",
        phase="launch",
        signs=(
            Sign("accelerate config variables will be ignored"),
            Sign("the following accelerate config variables"),
        ),
        why="With deepspeed_config_file the JSON alone counts, and Accelerate refuses a file or options that say it "
        "twice.",
        changes=(
            "take the keys that it lists out of the YAML of accelerate, or the options, and write them in the JSON",
            "dsgen render --target accelerate writes both files so that they agree",
        ),
        source="https://huggingface.co/docs/accelerate/usage_guides/deepspeed",
    ),
    Cause(
        code="nothing-to-resume",
        words="the Trainer is to resume, and its output folder has no checkpoint",
        phase="resume",
        signs=(Sign("No valid checkpoint found in output directory"),),
        why="resume_from_checkpoint=True takes the newest checkpoint-N below output_dir: none was saved yet, "
        "or output_dir is another folder.",
        changes=(
            "resume from get_last_checkpoint(output_dir), of transformers.trainer_utils: the first start gets None "
            "and begins anew",
            "the output_dir of the run before, with folders checkpoint-N in it, on a disk that every node sees",
            "a save_steps that is reached before a run ends",
        ),
        source="https://github.com/huggingface/transformers/issues/15341",
    ),
    Cause(
        code="weights-missing",
        words="the model's folder has no weights",
        phase="load",
        signs=(
            Sign("Error no file named"),
            Sign("does not appear to have a file named"),
            Sign("Can't load the model for"),
        ),
        why="It is the folder of an adapter, of an optimizer, of a half-finished download, or of a run that saved "
        "ZeRO-3's parts only.",
        changes=(
            "name the base model's folder; an adapter's is loaded with PeftModel.from_pretrained(model, FOLDER)",
            "of a ZeRO-3 checkpoint: python zero_to_fp32.py . OUTPUT --safe_serialization in its folder first",
        ),
        source="https://huggingface.co/docs/transformers/main_classes/model",
    ),
    Cause(
        code="shared-tensors",
        words="weights that share memory cannot be written as safetensors",
        phase="save",
        signs=(Sign("Some tensors share memory"), Sign("weights trying to be saved contained shared tensors")),
        why="safetensors writes no memory twice. Tied weights that the class does not name as tied share it, and so do "
        "parameters that are views of one flat buffer.",
        changes=(
            "save_safetensors=False in TrainingArguments (transformers 4); safetensors.torch.save_model(model, FILE)",
            "a state dict of copies: {name: value.clone() for name, value in state.items()}",
        ),
        source="https://github.com/safetensors/safetensors/issues/202",
    ),
    Cause(
        code="batch-not-tensors",
        words="a batch cannot be made into tensors",
        phase="data",
        signs=(
            Sign("too many dimensions 'str'"),
            Sign("Unable to create tensor, you should probably activate"),
            Sign("expected sequence of length", r"at dim \d+ \(got \d+\)"),
        ),
        why="Samples of a batch have other lengths and are not padded, or a column of text was left beside the tokens.",
        changes=(
            "a collator that pads labels too: DataCollatorForSeq2Seq(tokenizer), or per_device_train_batch_size=1 to "
            "see that it is this",
            "remove_columns=... of every column of text after tokenizing; remove_unused_columns=True in the Trainer",
        ),
        source="https://huggingface.co/docs/transformers/main_classes/data_collator",
    ),
    Cause(
        code="bitsandbytes-broken",
        words="bitsandbytes has no library for this CUDA",
        level=UNKNOWN,
        phase="launch",
        signs=(
            Sign("CUDA Setup failed despite"),
            Sign("Could not load bitsandbytes native library"),
            Sign("bitsandbytes was compiled without GPU support"),
            Sign("libbitsandbytes_", r"\A[^\n]*(?:undefined symbol|cannot open shared object|No such file)"),
            Sign("Using `bitsandbytes`", r"requires"),
        ),
        why="Its binaries are made for each CUDA release; this one lacks that of the installed torch, or does not see "
        "its libraries.",
        changes=(
            "pip install -U bitsandbytes, then python -m bitsandbytes, which says what it looked for",
            "BNB_CUDA_VERSION is not to be set; the torch of the same environment names its CUDA: torch.version.cuda",
        ),
        source="https://huggingface.co/docs/bitsandbytes/installation",
    ),
)
