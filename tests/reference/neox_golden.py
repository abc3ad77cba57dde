#!/usr/bin/env python3
"""Goldens of GPT-NeoX's own checkpoints: tiny models in its layouts, and what transformers computes
with them.

Run: python tests/reference/neox_golden.py tests/golden/convert/neox
Writes FOLDER/NAME/checkpoints/{latest,global_step7/...} and FOLDER/NAME/expected.json (tokens and
fp32 logits of GPTNeoXForCausalLM with the same weights, and the CRC-32 of each of its tensors in
the checkpoint's dtype).
The layout is GPT-NeoX's: save_ds_checkpoint of megatron/checkpointing.py (args, iteration,
configs), DeepSpeed's PipelineModule (a file a layer and rank; 0 embedding, 1 no parameters, 2..
blocks, then none, norm, final linear) or, without a pipeline, one module of numbered layers;
query_key_value by heads (N, 3, D); parts along tensor parallelism: rows of query_key_value,
dense_h_to_4h and both tables, columns of dense and dense_4h_to_h. With gpt_j_residual a
row-parallel bias is the sum of the ranks' biases; otherwise every rank has the whole one. Made with
torch 2.15.0, transformers 5.23.0.
SPDX-License-Identifier: MIT
"""

import json
import os
import sys
import zlib

import torch
import transformers

out = sys.argv[1]
V, H, N, L, P, STEP = 264, 16, 4, 2, 16, 7  # a vocabulary of 261, padded
D, F = H // N, 4 * H
CASES = {
    # name: tensor-parallel ranks, pipeline, parallel residual, untied, rotary share, dtype, fused
    # GELU, releases that number linears
    "parallel_tp2": dict(
        tp=2, pipe=2, parallel=True, untied=True, pct=0.5, dtype=torch.float16, fused=True
    ),
    "serial_tp2": dict(
        tp=2, pipe=1, parallel=False, untied=False, pct=1.0, dtype=torch.float32, fused=False
    ),
    "sequential": dict(
        tp=2,
        pipe=0,
        parallel=True,
        untied=True,
        pct=0.5,
        dtype=torch.bfloat16,
        fused=False,
        numbered=True,
    ),
}


def random(*shape):
    return torch.randn(*shape) * 0.3


def weights(c):
    """The whole model in GPT-NeoX's names, by layer of its sequence."""

    def norm(name):
        return {f"{name}.weight": 1 + random(H), f"{name}.bias": random(H)}

    layers = {0: {"word_embeddings.weight": random(V, H)}}
    for i in range(L):
        layers[i + 2] = {
            **norm("input_layernorm"),
            "attention.query_key_value.weight": random(3 * H, H),
            "attention.query_key_value.bias": random(3 * H),
            "attention.dense.weight": random(H, H),
            "attention.dense.bias": random(H),
            **norm("post_attention_layernorm"),
            "mlp.dense_h_to_4h.weight": random(F, H),
            "mlp.dense_h_to_4h.bias": random(F),
            "mlp.dense_4h_to_h.weight": random(H, F),
            "mlp.dense_4h_to_h.bias": random(H),
        }
    layers[L + 3] = norm("norm")
    layers[L + 4] = (
        {"final_linear.weight": random(V, H)}
        if c["untied"]
        else {"word_embeddings.weight": layers[0]["word_embeddings.weight"]}
    )
    return {i: {k: v.to(c["dtype"]) for k, v in layer.items()} for i, layer in layers.items()}


def part(c, name, value, rank):
    """One tensor-parallel rank's part of a parameter."""
    tp = c["tp"]
    if name.endswith(("dense.weight", "dense_4h_to_h.weight")):
        return value.chunk(tp, 1)[rank].contiguous()
    if name.endswith(("dense.bias", "dense_4h_to_h.bias")) and c["parallel"]:
        first = (value.float() * 0.25).to(value.dtype)  # unequal terms whose sum rounds back
        terms = [first, (value.float() - first.float()).to(value.dtype)]
        return terms[rank]
    if (
        "query_key_value" in name
        or "dense_h_to_4h" in name
        or name in ("word_embeddings.weight", "final_linear.weight")
    ):
        return value.chunk(tp, 0)[rank].contiguous()
    return value


def joined(c, layers):
    """The whole model again, with the biases as their sum gives them."""
    for layer in layers.values():
        for name, value in layer.items():
            if name.endswith(("dense.bias", "dense_4h_to_h.bias")) and c["parallel"]:
                layer[name] = part(c, name, value, 0) + part(c, name, value, 1)
    return layers


def save(c, layers, folder):
    args = {
        "num_layers": L,
        "hidden_size": H,
        "num_attention_heads": N,
        "max_position_embeddings": P,
        "make_vocab_size_divisible_by": V // c["tp"],
        "padded_vocab_size": V,
        "tokenizer_type": "HFTokenizer",
        "model_parallel_size": c["tp"],
    }
    step = f"{folder}/global_step{STEP}"
    os.makedirs(step + "/configs", exist_ok=True)
    with open(f"{folder}/latest", "w") as file:
        file.write(f"global_step{STEP}")
    for rank in range(c["tp"]):
        parts = {
            i: {name: part(c, name, value, rank) for name, value in layer.items()}
            for i, layer in layers.items()
        }
        rotary = {"attention.rotary_emb.inv_freq": torch.ones(2)}
        for i in range(L):
            parts[i + 2].update(rotary)
        module = None
        if c["pipe"] > 0:
            for i, layer in parts.items():
                torch.save(layer, f"{step}/layer_{i:02d}-model_{rank:02d}-model_states.pt")
        else:
            words = (
                {"dense_h_to_4h": "linear1", "dense_4h_to_h": "linear2"}
                if c.get("numbered")
                else {}
            )

            def rename(n):
                return next((n.replace(a, b) for a, b in words.items() if a in n), n)

            module = {
                f"sequential.{i}.{rename(name)}": value
                for i, layer in parts.items()
                for name, value in layer.items()
            }
        torch.save(
            {
                "module": module,
                "optimizer": None,
                "lr_scheduler": None,
                "dp_world_size": 1,
                "mp_world_size": c["tp"],
                "global_steps": STEP,
                "iteration": STEP,
                "args": args,
            },
            f"{step}/mp_rank_{rank:02d}_model_states.pt",
        )
    lines = [
        f'  "num-layers": {L},',
        f'  "hidden-size": {H},',
        f'  "num-attention-heads": {N},',
        f'  "seq-length": {P},',
        f'  "max-position-embeddings": {P},',
        '  "norm": "layernorm",',
        '  "pos-emb": "rotary",',
        f'  "rotary-pct": {c["pct"]},',
        f'  "no-weight-tying": {str(c["untied"]).lower()},',
        f'  "gpt-j-residual": {str(c["parallel"])},',
        f'  "bias-gelu-fusion": {str(c["fused"]).lower()},',
        f'  "pipe-parallel-size": {c["pipe"]},',
        f'  "model-parallel-size": {c["tp"]},',
        '  "optimizer": {"type": "OneBitAdam", "params": {"lr": 0.0006}},',
        '  "train_micro_batch_size_per_gpu": 4,',
    ]
    with open(f"{step}/configs/model.yml", "w") as file:
        file.write("# of the run\n{\n" + "\n".join(lines) + "\n}\n")
    with open(f"{step}/configs/local_setup.yml", "w") as file:
        file.write(
            '{\n  "tokenizer-type": "HFTokenizer",\n  "vocab-file": "not-there/tokenizer.json",\n'
            '  "save": "checkpoints",\n}\n'
        )


def transformers_model(c, layers):
    config = transformers.GPTNeoXConfig(
        vocab_size=V,
        hidden_size=H,
        num_hidden_layers=L,
        num_attention_heads=N,
        intermediate_size=F,
        max_position_embeddings=P,
        hidden_act="gelu_new" if c["fused"] else "gelu",
        use_parallel_residual=c["parallel"],
        tie_word_embeddings=not c["untied"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": c["pct"],
        },
        attn_implementation="eager",
    )
    state = {"gpt_neox.embed_in.weight": layers[0]["word_embeddings.weight"]}
    for i in range(L):
        state.update(
            {f"gpt_neox.layers.{i}.{name}": value for name, value in layers[i + 2].items()}
        )
    state.update(
        {f"gpt_neox.final_layer_norm.{name[5:]}": value for name, value in layers[L + 3].items()}
    )
    state["embed_out.weight"] = layers[L + 4].get(
        "final_linear.weight", layers[0]["word_embeddings.weight"]
    )
    model = transformers.GPTNeoXForCausalLM(config).eval()
    # as it is called in memory
    own = {k.replace("embed_out", "lm_head"): v.float() for k, v in state.items()}
    missing, unexpected = model.load_state_dict(own, strict=False)
    assert not unexpected and all("inv_freq" in name for name in missing), (missing, unexpected)
    return model, state


for name, c in CASES.items():
    torch.manual_seed(len(name))
    layers = weights(c)
    save(c, layers, f"{out}/{name}/checkpoints")
    model, state = transformers_model(c, joined(c, layers))
    ids = [1, 7, 230, 3, 3, 260, 0]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    if not c["untied"]:
        del state["embed_out.weight"]
    crc = {
        k: [list(v.shape), zlib.crc32(v.contiguous().view(torch.uint8).numpy().tobytes())]
        for k, v in state.items()
    }
    with open(f"{out}/{name}/expected.json", "w") as file:
        json.dump(
            {
                "transformers": transformers.__version__,
                "tokens": ids,
                "logits": [[round(float(x), 6) for x in row] for row in logits],
                "tensors": crc,
            },
            file,
        )
        file.write("\n")
