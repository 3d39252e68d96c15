# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/use-from-transformers.md: layers of true shapes with fewer experts, beside transformers' own experts.

    python python/tests/long_transformers.py [NAME...]      what: logits, memory, speed of all families, or of those named

Each family's checkpoint lies in a temporary directory, is measured in processes of its own and removed.

    logits   relative distance to the float32 model (dequantized, one choice of experts for all), in bf16
    memory   the most resident bytes of from_pretrained() and a run, above those of a small model, over the files' bytes
    speed    new tokens a second after a prompt of 16 tokens, median of 3, in bf16; and per second of processor time, which
             other programs on the machine disturb less
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import moxie.transformers as mt
import torch
import transformers
from moxie._hf_linear import take_any_shape
from transformers.quantizers import auto

import hf_checkpoint
from hf_checkpoint import compressed_int4, fp8_block

TEXT = {"vocab_size": 4096, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
QWEN = {**TEXT, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
MIXTRAL = {**TEXT, "num_attention_heads": 32, "num_key_value_heads": 8}
GPT_OSS = {**TEXT, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64}
MLA = {**TEXT, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
       "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}

# name: preset, format, config.json, packing of attention, experts, times as many in the measurement of memory and the layers
# there, other arguments
FAMILIES = {
    "gpt-oss-20b MXFP4": ("gpt-oss-20b", None, GPT_OSS, None, 8, 4, 4, {"layers": 4}),
    "Qwen3-30B-A3B FP8": ("qwen3-30b-a3b", "fp8-block", QWEN, fp8_block, 16, 8, 1, {"layers": 1}),
    "Qwen3-30B-A3B INT4": ("qwen3-30b-a3b", "int4-ct-g32", QWEN, compressed_int4, 16, 8, 1, {"layers": 1}),
    "Qwen3-30B-A3B bf16": ("qwen3-30b-a3b", None, QWEN, None, 16, 8, 1, {"layers": 1}),
    "Mixtral-8x7B AWQ": ("mixtral-8x7b", "awq", MIXTRAL, hf_checkpoint.awq, 4, 2, 3, {"layers": 1}),
    "DeepSeek-V3 FP8": ("deepseek-v3", None, MLA, fp8_block, 16, 4, 1, {"layers": 1, "first": 0}),
}
PROMPT = torch.arange(16)[None] * 97 % 4096


def load(path, how, dtype=torch.bfloat16):
    """The model, with the experts implementation `how`."""
    if how == "moxie":
        mt.register(threads=2, max_tokens=64, from_files=True)
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, experts_implementation=how)
    config = transformers.AutoConfig.from_pretrained(path)
    method = getattr(config, "quantization_config", {}).get("quant_method")
    if method == "fp8":  # DeepSeek-V3: transformers refuses its matrix of 576 rows in blocks of 128
        make = auto.AutoHfQuantizer.from_config
        auto.AutoHfQuantizer.from_config = lambda *a, **k: take_any_shape(make(*a, **k))
    if method not in ("awq", "compressed-tensors"):
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, experts_implementation=how)
    config.__dict__.pop("quantization_config")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation=how).eval()
    return model.from_pretrained(None, config=config, dtype=dtype, experts_implementation=how,
                                 state_dict=hf_checkpoint.dequantized(path, method, dtype))


def status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def memory(path):
    """Of a small model of the same family first: what loading any model needs."""
    with torch.no_grad():
        load(path.parent / "small", "moxie")(PROMPT % 64)
        before, start = status("VmRSS"), time.perf_counter()
        model = load(path, "moxie")
        loaded = time.perf_counter() - start
        model(PROMPT)
    files = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    print(f"memory  files {files / 1e9:.2f} GB, peak {(status('VmHWM') - before) / files:.2f} of them; loaded in {loaded:.1f} s")


def speed(path, how, new=4):
    model = load(path, how)
    times = []
    with torch.inference_mode():
        for n in (2, new, new, new):
            start = time.perf_counter(), time.process_time()
            model.generate(PROMPT, max_new_tokens=n, min_new_tokens=n, do_sample=False)
            times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, work = (new / statistics.median(t) for t in zip(*times[1:]))
    print(f"speed   {how:10} {wall:.2f} tokens/s, {work:.2f} per second of processor time")


def logits(path, how, dtype):
    """Of the prompt, with the float32 model's choice of experts, which the first call writes beside the checkpoint."""
    model, noted = load(path, how, dtype), path.parent / "routes.pt"
    routes = torch.load(noted) if noted.exists() else []
    hf_checkpoint.record(model, routes, noted.exists())
    with torch.no_grad():
        result = model(PROMPT).logits.float()
    if not noted.exists():
        torch.save(routes, noted)
        torch.save(result, path.parent / "want.pt")
        return
    want = torch.load(path.parent / "want.pt")
    print(f"logits  {how:10} {str(dtype)[6:]}: {hf_checkpoint.distance(result, want):.2e}")


def main():
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if sys.argv[1:2] == ["--step"]:
        name, path, *more = sys.argv[2:]
        more = [getattr(torch, word, word) for word in more]
        return globals()[name](pathlib.Path(path), *more)
    for name in sys.argv[1:] or FAMILIES:
        preset, format, changes, pack, experts, times, deep, more = FAMILIES[name]
        with tempfile.TemporaryDirectory(dir=os.environ.get("MOXIE_SCRATCH")) as folder:
            path = pathlib.Path(folder)
            heads = {**changes, "num_attention_heads": 4, "num_key_value_heads": 4 if "v_head_dim" in changes else 2}
            hf_checkpoint.make(path / "small", preset, format, heads, pack, experts=16, hidden=128, intermediate=128, **more)
            hf_checkpoint.make(path / "m", preset, format, changes, pack, experts=experts, times=times, **{**more, "layers": deep})
            print(f"{name}: {deep} layers, {times * experts} experts", flush=True)
            step("memory", path / "m")
            shutil.rmtree(path / "m")
            hf_checkpoint.make(path / "m", preset, format, changes, pack, experts=experts, **more)
            print(f"{name}: {more['layers']} layers, {experts} experts", flush=True)
            step("logits", path / "m", "eager", "float32")
            step("logits", path / "m", "eager", "bfloat16")
            step("logits", path / "m", "moxie", "bfloat16")
            for how in ("eager", "grouped_mm", "moxie"):
                step("speed", path / "m", how)


def step(*arguments):
    """One measurement, in a process of its own."""
    subprocess.run([sys.executable, __file__, "--step", *map(str, arguments)])


if __name__ == "__main__":
    main()
