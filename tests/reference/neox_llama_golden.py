#!/usr/bin/env python3
"""Goldens of GPT-NeoX's checkpoints of Llama-like models, and a judge of their conversion.

Run: python tests/reference/neox_llama_golden.py tests/golden/convert/neox
Writes FOLDER/NAME/checkpoints/{latest,global_step7/...} and FOLDER/NAME/expected.json: tokens, and
the fp32 logits of a forward pass written down here from GPT-NeoX's modules, which works on the
parts of each tensor-parallel rank as they are saved. No converter is used.
Run: python tests/reference/neox_llama_golden.py --judge tests/golden/convert/neox MEGATRON-TO-HF
Converts each, loads the folder by transformers and compares its logits with those.

Three layouts, which releases of GPT-NeoX have: w1, w3 and w2 with grouped heads by query head and a
sliding window, as in its configs/mistral/7B.yml (until August 2024); linear1 and linear2 with all
q, k and v of a rank after each other (since November 2024), and biases in attention; the same
without grouped heads and with biases in the MLP alone, as in its configs/llama2/7B.yml. Made with
torch 2.15.0; judged with transformers 5.24.0.
SPDX-License-Identifier: MIT
"""

import json
import os
import subprocess
import sys
import tempfile

import torch

V, H, N, L, P, STEP, TP = 64, 32, 8, 2, 16, 7, 2
D, EPS = H // N, 1e-5
CASES = {
    # name: groups, inner size of the MLP, lines of the configuration
    "mistral_w1w3": dict(
        groups=4,
        width=24,
        old=True,
        pipe=1,
        dtype=torch.float16,
        lines={
            "mlp_type": "llama",
            "activation": "silu",
            "intermediate_size": 24,
            "sliding_window_width": 2,
            "attention_config": [[["flash"], L]],
        },
    ),
    # int(40 * 2 / 3) = 26 rows are rounded to 32, of which half is the gate; 13 columns to 16
    "swiglu_grouped": dict(
        groups=4,
        width=16,
        old=False,
        pipe=0,
        dtype=torch.bfloat16,
        lines={
            "activation": "swiglu",
            "intermediate_size": 40,
            "mlp_multiple_of": 4,
            "use_bias_in_mlp": False,
            "use_bias_in_attn_linear": True,
        },
    ),
    # int(4 * 32 * 2 / 3) = 85 rows are rounded to 88; 42 columns to 44
    "swiglu_biases": dict(
        groups=8,
        width=44,
        old=False,
        pipe=1,
        dtype=torch.float32,
        lines={"activation": "swiglu", "mlp_multiple_of": 4},
    ),
}


def random(*shape):
    return torch.randn(*shape) * 0.3


def rank_weights(c, shared):
    """One rank's layers by their numbers in the sequence; `shared` is the same on each."""
    f, q, g = c["width"] // TP, N // TP, c["groups"] // TP
    layers = {0: {"word_embeddings.weight": random(V // TP, H)}}
    for i in range(L):
        layer = {
            "input_layernorm.scale": shared[i]["norm1"],
            "attention.query_key_value.weight": random((q + 2 * g) * D, H),
            "attention.dense.weight": random(H, H // TP),
            "post_attention_layernorm.scale": shared[i]["norm2"],
        }
        if c["lines"].get("use_bias_in_attn_linear", False):
            layer |= {"attention.query_key_value.bias": random((q + 2 * g) * D)}
            layer |= {"attention.dense.bias": shared[i]["proj_bias"]}
        if c["old"]:
            layer |= {"mlp.w1.weight": random(f, H), "mlp.w3.weight": random(f, H)}
            layer |= {"mlp.w2.weight": random(H, f)}
        else:
            layer |= {"mlp.linear1.weight": random(2 * f, H), "mlp.linear2.weight": random(H, f)}
            if c["lines"].get("use_bias_in_mlp", True):
                layer |= {"mlp.linear1.bias": random(2 * f), "mlp.linear2.bias": shared[i]["bias"]}
        layers[i + 2] = layer
    layers[L + 3] = {"norm.scale": shared["norm"]}
    layers[L + 4] = {"final_linear.weight": random(V // TP, H)}
    return {i: {k: v.to(c["dtype"]) for k, v in layer.items()} for i, layer in layers.items()}


def rms_norm(x, scale):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * scale


def rotated(x):
    """x: (tokens, heads, D)."""
    angle = torch.arange(x.shape[0])[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
    cos, sin = (torch.cat((t, t), -1)[:, None, :] for t in (angle.cos(), angle.sin()))
    return x * cos + torch.cat((-x[..., D // 2 :], x[..., : D // 2]), -1) * sin


def attention(c, layer, x):
    """What a rank adds to the sum over ranks."""
    tokens, q, g = x.shape[0], N // TP, c["groups"] // TP
    bias = layer.get("attention.query_key_value.bias", 0)
    mixed = x @ layer["attention.query_key_value.weight"].T + bias
    if q == g:
        query, key, value = mixed.view(tokens, q, 3 * D).split(D, -1)
    elif c["old"]:  # as many heads of k and v as of q, of which each is smaller
        small = D * g // q
        query, key, value = mixed.view(tokens, q, D + 2 * small).split((D, small, small), -1)
        key, value = (t.reshape(tokens, g, D) for t in (key, value))
    else:
        query, key, value = mixed.split((q * D, g * D, g * D), -1)
        query, key, value = (t.reshape(tokens, -1, D) for t in (query, key, value))
    query, key = rotated(query), rotated(key)
    key, value = (t.repeat_interleave(q // g, 1) for t in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) / D**0.5
    apart = torch.arange(tokens)[:, None] - torch.arange(tokens)
    window = c["lines"].get("sliding_window_width", tokens)  # flash_attn's: keys before its own
    scores = scores.masked_fill((apart < 0) | (apart > window), float("-inf"))
    context = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(tokens, q * D)
    return context @ layer["attention.dense.weight"].T


def mlp(c, layer, x):
    silu = torch.nn.functional.silu
    if c["old"]:
        inner = silu(x @ layer["mlp.w1.weight"].T) * (x @ layer["mlp.w3.weight"].T)
        return inner @ layer["mlp.w2.weight"].T
    y = x @ layer["mlp.linear1.weight"].T + layer.get("mlp.linear1.bias", 0)
    up, gate = y.chunk(2, -1)
    return (silu(gate) * up) @ layer["mlp.linear2.weight"].T


def forward(c, ranks, ids):
    ranks = [{i: {k: v.float() for k, v in m.items()} for i, m in r.items()} for r in ranks]
    x = torch.cat([r[0]["word_embeddings.weight"] for r in ranks])[ids]
    for i in range(2, L + 2):
        first = ranks[0][i]
        y = rms_norm(x, first["input_layernorm.scale"])
        x = x + sum(attention(c, r[i], y) for r in ranks) + first.get("attention.dense.bias", 0)
        y = rms_norm(x, first["post_attention_layernorm.scale"])
        x = x + sum(mlp(c, r[i], y) for r in ranks) + first.get("mlp.linear2.bias", 0)
    x = rms_norm(x, ranks[0][L + 3]["norm.scale"])
    return torch.cat([x @ r[L + 4]["final_linear.weight"].T for r in ranks], -1)


def save(c, ranks, folder):
    step = f"{folder}/global_step{STEP}"
    os.makedirs(step + "/configs", exist_ok=True)
    with open(f"{folder}/latest", "w") as file:
        file.write(f"global_step{STEP}")
    args = dict(num_layers=L, hidden_size=H, num_attention_heads=N, max_position_embeddings=P)
    for rank, layers in enumerate(ranks):
        module = None
        if c["pipe"] > 0:
            for i, layer in layers.items():
                torch.save(layer, f"{step}/layer_{i:02d}-model_{rank:02d}-model_states.pt")
        else:
            module = {f"sequential.{i}.{k}": v for i, m in layers.items() for k, v in m.items()}
        states = dict(module=module, optimizer=None, iteration=STEP, args=args)
        torch.save(states, f"{step}/mp_rank_{rank:02d}_model_states.pt")
    lines = {
        "num_layers": L,
        "hidden_size": H,
        "num_attention_heads": N,
        "num_kv_heads": c["groups"],
        "seq_length": P,
        "max_position_embeddings": P,
        "pos_emb": "rotary",
        "rotary_pct": 1,
        "no_weight_tying": True,
        "gpt_j_residual": False,
        "norm": "rmsnorm",
        "rms_norm_epsilon": EPS,
        "rmsnorm_fusion": True,
        "use_bias_in_norms": False,
        "use_bias_in_attn_linear": False,
        "pipe_parallel_size": c["pipe"],
        "model_parallel_size": TP,
        "tokenizer_type": "HFTokenizer",
        **c["lines"],
    }
    with open(f"{step}/configs/model.yml", "w") as file:
        json.dump(lines, file, indent=2)
        file.write("\n")


def make(out):
    ids = [1, 7, 23, 3, 3, 60, 0]
    for name, c in CASES.items():
        torch.manual_seed(len(name))
        shared = {"norm": 1 + random(H)}
        for i in range(L):
            shared[i] = {"norm1": 1 + random(H), "norm2": 1 + random(H)}
            shared[i] |= {"bias": random(H), "proj_bias": random(H)}
        ranks = [rank_weights(c, shared) for _ in range(TP)]
        save(c, ranks, f"{out}/{name}/checkpoints")
        logits = [[round(float(x), 6) for x in row] for row in forward(c, ranks, ids)]
        with open(f"{out}/{name}/expected.json", "w") as file:
            json.dump({"tokens": ids, "logits": logits}, file)
            file.write("\n")


def judge(out, program):
    import transformers

    for name in CASES:
        with open(f"{out}/{name}/expected.json") as file:
            expected = json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            place = ["--input", f"{out}/{name}/checkpoints", "--output", f"{folder}/hf"]
            subprocess.run([program, *place, "--vocab-size", str(V), "--dtype", "fp32"], check=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/hf")
        model = model.float().eval()
        with torch.no_grad():
            logits = model(torch.tensor([expected["tokens"]])).logits[0]
        apart = (logits - torch.tensor(expected["logits"])).abs().max()
        print(f"{name}: {type(model).__name__}, logits differ by at most {float(apart):.2e}")
        assert apart < 2e-5


if sys.argv[1] == "--judge":
    judge(*sys.argv[2:])
else:
    make(sys.argv[1])
