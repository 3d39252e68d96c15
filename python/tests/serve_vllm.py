# SPDX-License-Identifier: Apache-2.0
"""A program that writes a small random model, or serves it with vLLM and prints the greedy tokens. For test_vllm_serving.py.

    serve_vllm.py write FORMAT DIR       FORMAT of engine_formats.py, "mxfp4" makes a gpt-oss; DIR/dense has the same in bf16
    serve_vllm.py run DIR                prints one JSON line: tokens, the experts' class, memory
"""

import json
import os
import pathlib
import resource
import sys

SIZES = {"vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 32, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
         "num_experts_per_tok": 2, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
         "tie_word_embeddings": False, "attention_bias": False}
QWEN = SIZES | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4,
                "intermediate_size": 256, "moe_intermediate_size": 128, "norm_topk_prob": True, "decoder_sparse_step": 1}
GPT_OSS = SIZES | {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4,
                   "intermediate_size": 128, "sliding_window": 128, "swiglu_limit": 7.0, "attention_bias": True,
                   "layer_types": ["sliding_attention", "full_attention"]}


def attention(torch, gpt_oss):
    """All tensors but those of the experts."""
    random = torch.Generator().manual_seed(3)
    normal = lambda *shape: (torch.randn(*shape, generator=random) * 0.06).bfloat16()  # noqa: E731
    ones = torch.ones(256, dtype=torch.bfloat16)
    tensors = {"model.embed_tokens.weight": normal(512, 256) * 16, "lm_head.weight": normal(512, 256),
               "model.norm.weight": ones}
    for i in range(2):
        p = f"model.layers.{i}."
        tensors |= {p + "input_layernorm.weight": ones, p + "post_attention_layernorm.weight": ones}
        for name, rows, cols in (("q", 256, 256), ("k", 128, 256), ("v", 128, 256), ("o", 256, 256)):
            tensors[p + f"self_attn.{name}_proj.weight"] = normal(rows, cols)
            if gpt_oss:
                tensors[p + f"self_attn.{name}_proj.bias"] = normal(rows)
        if gpt_oss:
            tensors |= {p + "self_attn.sinks": normal(8), p + "mlp.router.weight": normal(4, 256) * 4,
                        p + "mlp.router.bias": normal(4)}
        else:
            tensors |= {p + "self_attn.q_norm.weight": ones[:32], p + "self_attn.k_norm.weight": ones[:32],
                        p + "mlp.gate.weight": normal(4, 256) * 4}
    return tensors


def experts_of(torch, format, layer, gpt_oss):
    """(tensors in the format, the same in bf16) of one layer."""
    from engine_formats import Experts

    made = Experts(format, seed=layer)
    p = f"model.layers.{layer}.mlp.experts."
    dense = {name: matrix.bfloat16() for name, matrix in made.dense.items()}
    assert all(torch.equal(dense[name].double(), made.dense[name]) for name in dense)
    if not gpt_oss:
        plain = {f"{p}{e}.{name}.weight": dense[name][e] for name in dense for e in range(4)}
        return {p + name: tensor for name, tensor in made.tensors.items()}, plain
    random = torch.Generator().manual_seed(layer)
    bias = {p + f"{name}_proj_bias": torch.randn(4, 256, generator=random).bfloat16() for name in ("gate_up", "down")}
    quantized = {}
    for part in ("blocks", "scales"):
        w13, w2 = made.stacked(part)
        shape = (-1, 16) if part == "blocks" else (-1,)
        quantized |= {p + f"gate_up_proj_{part}": w13.reshape(4, 256, *shape),
                      p + f"down_proj_{part}": w2.reshape(4, 256, *shape)}
    w13 = torch.stack([dense["gate_proj"], dense["up_proj"]], 2).reshape(4, 256, 256)
    plain = {p + "gate_up_proj": w13.transpose(1, 2), p + "down_proj": dense["down_proj"].transpose(1, 2)}
    return quantized | bias, plain | bias


def write(format, directory):
    import torch
    from safetensors.torch import save_file
    from test_vllm import CONFIGS

    gpt_oss = format == "mxfp4"
    config = GPT_OSS if gpt_oss else QWEN
    quantization = {"quant_method": "mxfp4"} if gpt_oss else CONFIGS[format]
    both = attention(torch, gpt_oss), attention(torch, gpt_oss)
    for layer in range(2):
        for tensors, more in zip(both, experts_of(torch, format, layer, gpt_oss)):
            tensors.update(more)
    rest = ("attn", "mlp.gate.", "head")
    unquantized = [name.removesuffix(".weight") for name in both[0] if any(part in name for part in rest)]
    skip = {"modules_to_not_convert": ["self_attn", "lm_head", "gate"], "ignore": unquantized + ["re:.*gate$"],
            "dynamic": {"-:.*self_attn.*": {}, r"-:.*mlp\.gate$": {}}, "ignored_layers": unquantized}
    known = {"fp8": "ignored_layers", "awq": "modules_to_not_convert", "gptq": "dynamic", "compressed-tensors": "ignore"}
    if quantization and not gpt_oss:
        key = known[quantization["quant_method"]]
        quantization = quantization | {key: skip[key]}
    for folder, tensors, more in ((directory, both[0], {"quantization_config": quantization} if quantization else {}),
                                  (directory / "dense", both[1], {})):
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config | more))


def run(directory, quantization):
    from vllm import LLM, SamplingParams
    from vllm.model_executor.layers.fused_moe import RoutedExperts

    llm = LLM(str(directory), skip_tokenizer_init=True, quantization=quantization, enforce_eager="COMPILED" not in os.environ,
              dtype="bfloat16", max_model_len=256, max_num_seqs=8, kv_cache_memory_bytes=1 << 27)
    prompts = [{"prompt_token_ids": list(range(3 + 7 * i, 20 + 9 * i))} for i in range(4)]
    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    outputs = llm.generate(prompts, greedy, use_tqdm=False)
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.model
    methods = {type(m.quant_method).__name__ for m in model.modules() if isinstance(m, RoutedExperts)}
    print(json.dumps({"tokens": [list(o.outputs[0].token_ids) for o in outputs], "methods": sorted(methods),
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], pathlib.Path(sys.argv[3]))
    else:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        run(pathlib.Path(sys.argv[2]), (sys.argv[3:] or [None])[0])
