"""One tiny GPT-2 in every layout that megatron-to-hf reads, and the expected results.

Writes tests/golden/convert/gpt2/: vocab.json, merges.txt, the checkpoints, and expected.json with
shape and CRC-32 of each Hugging Face tensor (fp32 and bf16), and logits.
Made with torch 2.15.0, transformers 5.23.0.
Run: python tests/reference/convert_golden.py tests/golden/convert/gpt2
"""

# SPDX-License-Identifier: MIT
import argparse
import enum
import io
import json
import pathlib
import shutil
import sys
import zlib
from collections import OrderedDict

import torch
import transformers

L, H, N, F, P, V, VP = 4, 8, 4, 20, 16, 261, 264
D = H // N
out = pathlib.Path(sys.argv[1])
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)

# --- vocabulary: 256 bytes, merges, end of text ---------------------------------------------------
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
other = [b for b in range(256) if b not in printable]
alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(other))]
merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n")]
tokens = alphabet + ["".join(m) for m in merges] + ["<|endoftext|>"]
assert len(tokens) == V
(out / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
(out / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))

# --- the model, and its tensors as legacy Megatron names them (version 2 and later order) --------
torch.manual_seed(20)
config = transformers.GPT2Config(
    vocab_size=V,
    n_positions=P,
    n_embd=H,
    n_layer=L,
    n_head=N,
    n_inner=F,
    activation_function="gelu_new",
    layer_norm_epsilon=1e-5,
    resid_pdrop=0.1,
    embd_pdrop=0.1,
    attn_pdrop=0.1,
    bos_token_id=V - 1,
    eos_token_id=V - 1,
)
model = transformers.GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(
            torch.randn_like(p) * 0.3 + (1.0 if ".ln_" in name and name.endswith("weight") else 0.0)
        )
hf = {k: v.detach().clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}


def grouped(w):  # rows [q|k|v] of all heads -> (N, 3, D)
    return w.reshape(3, N, D, *w.shape[1:]).transpose(0, 1).reshape(w.shape)


def reorder(w, version, heads=N):  # from (heads, 3, D)
    x = w.reshape(heads, 3, D, *w.shape[1:])
    if version == 0:
        x = x.transpose(0, 1)
    elif version == 1:
        x = x.transpose(1, 2)
    return x.reshape(w.shape)


core = OrderedDict()
words = hf["transformer.wte.weight"]
core["embedding.word_embeddings.weight"] = torch.cat([words, words[-1:].repeat(VP - V, 1) * 0 + 9])
core["embedding.position_embeddings.weight"] = hf["transformer.wpe.weight"]
for i in range(L):
    h, m = f"transformer.h.{i}.", f"decoder.layers.{i}."
    for end in ("weight", "bias"):
        t = (lambda x: x.t()) if end == "weight" else (lambda x: x)
        core[m + "input_layernorm." + end] = hf[h + "ln_1." + end]
        core[m + "self_attention.linear_qkv." + end] = grouped(t(hf[h + "attn.c_attn." + end]))
        core[m + "self_attention.linear_proj." + end] = t(hf[h + "attn.c_proj." + end])
        core[m + "pre_mlp_layernorm." + end] = hf[h + "ln_2." + end]
        core[m + "mlp.linear_fc1." + end] = t(hf[h + "mlp.c_fc." + end])
        core[m + "mlp.linear_fc2." + end] = t(hf[h + "mlp.c_proj." + end])
for end in ("weight", "bias"):
    core["decoder.final_layernorm." + end] = hf["transformer.ln_f." + end]
core = OrderedDict((k, v.contiguous()) for k, v in core.items())


class AttnBackend(enum.Enum):
    auto = 5


def arguments(**changes):
    values = dict(
        num_layers=L,
        hidden_size=H,
        ffn_hidden_size=F,
        num_attention_heads=N,
        kv_channels=D,
        max_position_embeddings=P,
        padded_vocab_size=VP,
        layernorm_epsilon=1e-5,
        bias_gelu_fusion=True,
        openai_gelu=False,
        onnx_safe=None,
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        tokenizer_type="GPT2BPETokenizer",
        vocab_file="/nowhere/vocab.json",
        merge_file="/nowhere/merges.txt",
        untie_embeddings_and_output_weights=False,
        params_dtype=torch.float32,
        hidden_dropout=0.1,
        attention_backend=AttnBackend.auto,
        save_path=pathlib.PurePosixPath("/nowhere"),
        num_experts=None,
    )
    values.update(changes)
    return argparse.Namespace(**values)


LEGACY = {
    "self_attention.linear_qkv": "attention.query_key_value",
    "self_attention.linear_proj": "attention.dense",
    "pre_mlp_layernorm": "post_attention_layernorm",
    "mlp.linear_fc1": "mlp.dense_h_to_4h",
    "mlp.linear_fc2": "mlp.dense_4h_to_h",
}


def legacy(
    tensors, version, stack="encoder", attention="self_attention", norms="layernorm", heads=N
):
    """Nested as language_model.{embedding, stack}; tensors in core names."""
    embedding, layers = {}, OrderedDict()
    for k, v in tensors.items():
        if k.startswith("embedding."):
            embedding[k.split(".")[1]] = OrderedDict(weight=v)
            continue
        if "linear_qkv" in k:
            v = reorder(v, version, heads).contiguous()
        k = k.removeprefix("decoder.")
        for a, b in LEGACY.items():
            k = k.replace(a, b)
        k = k.replace("attention.", attention + ".", 1) if ".attention." in k else k
        layers[k.replace("layernorm.", norms + ".")] = v
    return {"language_model": {**({"embedding": embedding} if embedding else {}), stack: layers}}


def transformer_engine(tensors):
    table = {
        "input_layernorm.": "self_attention.layernorm_qkv.layer_norm_",
        "self_attention.linear_qkv.": "self_attention.layernorm_qkv.",
        "self_attention.linear_proj.": "self_attention.proj.",
        "pre_mlp_layernorm.": "layernorm_mlp.layer_norm_",
        "mlp.linear_fc1.": "layernorm_mlp.fc1_",
        "mlp.linear_fc2.": "layernorm_mlp.fc2_",
        "final_layernorm.": "final_norm.",
    }
    embedding, layers = {}, OrderedDict()
    for k, v in tensors.items():
        if k.startswith("embedding."):
            embedding[k.split(".")[1]] = OrderedDict(weight=v)
            continue
        for a, b in table.items():
            k = k.replace(a, b)
        layers[k.removeprefix("decoder.")] = v
    layers["layers.0.self_attention.layernorm_qkv._extra_state"] = io.BytesIO(b"state")
    return {"language_model": {"embedding": embedding, "encoder": layers}}


def core_te(tensors):
    flat = OrderedDict()
    for k, v in tensors.items():
        k = k.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
        flat[k.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")] = v
        if k.endswith("linear_fc1.weight"):
            flat[k.replace("weight", "_extra_state")] = torch.zeros(3, dtype=torch.uint8)
    flat["decoder.layers.0.self_attention.core_attention._extra_state"] = None
    return flat


def save(tree, name, **how):
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tree, path, **how)


rng = [
    {
        "torch_rng_state": torch.arange(8, dtype=torch.uint8),
        "np_rng_state": ("MT19937", [1, 2], 3, 0, 0.0),
    }
]
old = dict(stack="transformer", attention="attention")
save(
    {"model": legacy(core, 0, **old), "iteration": 5}, "v0.pt", _use_new_zipfile_serialization=False
)
save(
    {
        "args": arguments(),
        "checkpoint_version": 1,
        "model": legacy(core, 1, **old),
        "total_iters": 5,
    },
    "v1.pt",
)
save(
    {
        "args": arguments(),
        "checkpoint_version": 2.0,
        "model": legacy(core, 2, **old),
        "rng_state": rng,
    },
    "v2.pt",
)
save(
    {
        "args": arguments(),
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": legacy(core, 3),
        "rng_state": rng,
    },
    "v3.pt",
)
save(
    {
        "args": arguments(norm_epsilon=1e-5),
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": legacy(core, 3, norms="norm"),
    },
    "norm.pt",
)
save(
    {
        "args": arguments(),
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": transformer_engine(core),
    },
    "te.pt",
)
save({"args": arguments(), "checkpoint_version": 3.0, "iteration": 7, "model": core}, "core.pt")
save(
    {"args": arguments(), "checkpoint_version": 3.0, "iteration": 7, "model": core_te(core)},
    "core_te.pt",
)
zero_centred = OrderedDict(
    (k, v - 1 if k.endswith("layernorm.weight") else v) for k, v in core.items()
)
zero_centred = {
    k: v.to(torch.float64) if k.endswith("layernorm.weight") else v for k, v in zero_centred.items()
}
save(
    {"args": arguments(apply_layernorm_1p=True), "checkpoint_version": 3.0, "model": zero_centred},
    "one_p.pt",
)
bf16 = OrderedDict((k, v.bfloat16()) for k, v in core.items())
save(
    {
        "args": arguments(params_dtype=torch.bfloat16),
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": legacy(bf16, 3),
    },
    "bf16.pt",
)
untied = OrderedDict(
    core, **{"output_layer.weight": core["embedding.word_embeddings.weight"].flip(1).contiguous()}
)
save(
    {
        "args": arguments(untie_embeddings_and_output_weights=True),
        "checkpoint_version": 3.0,
        "model": untied,
    },
    "untied.pt",
)


def tensor_share(rank, ranks, version=3):
    share = OrderedDict()
    for k, v in core.items():
        if "linear_proj.weight" in k or "linear_fc2.weight" in k:
            v = v.chunk(ranks, 1)[rank]
        elif "word_embeddings" in k or "linear_qkv" in k or "linear_fc1" in k:
            v = v.chunk(ranks, 0)[rank]
        share[k] = v.contiguous()
    return share


def stage(tensors, layers, first, last):
    part = OrderedDict()
    for k, v in tensors.items():
        if k.startswith("decoder.layers."):
            n = int(k.split(".")[2])
            if n in layers:
                part[k.replace(f"layers.{n}.", f"layers.{layers.index(n)}.")] = v
        elif first and k.startswith("embedding.") or last and "final" in k:
            part[k] = v
    return part


for t in range(2):  # two tensor ranks, two pipeline stages, and two tensor ranks of version 0
    for p in range(2):
        args = arguments(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
        tree = legacy(
            stage(tensor_share(t, 2), [2 * p, 2 * p + 1], p == 0, p == 1), 3, heads=N // 2
        )
        if p == 1:
            tree["word_embeddings_for_head"] = OrderedDict(
                weight=tensor_share(t, 2)["embedding.word_embeddings.weight"]
            )
        save(
            {"args": args, "checkpoint_version": 3.0, "iteration": 10, "model": tree},
            f"tp2pp2/iter_0000010/mp_rank_{t:02d}_{p:03d}/model_optim_rng.pt",
        )
    save(
        {
            "args": arguments(tensor_model_parallel_size=2),
            "model": legacy(tensor_share(t, 2), 0, heads=N // 2),
        },
        f"tp2v0/release/mp_rank_{t:02d}/model_optim_rng.pt",
    )
(out / "tp2pp2/latest_checkpointed_iteration.txt").write_text("10")
(out / "tp2v0/latest_checkpointed_iteration.txt").write_text("release\n")
for p in range(2):  # virtual stages: layers 0 and 2 on stage 0, 1 and 3 on stage 1
    chunks = {
        f"model{c}": legacy(stage(core, [2 * c + p], p == 0 and c == 0, p == 1 and c == 1), 3)
        for c in range(2)
    }
    save(
        {
            "args": arguments(pipeline_model_parallel_size=2),
            "checkpoint_version": 3.0,
            "iteration": 3,
            **chunks,
        },
        f"virtual/mp_rank_00_{p:03d}/model_optim_rng.pt",
    )

step = "deepspeed/global_step4/"  # Megatron-DeepSpeed with pipeline layers
for t in range(2):
    share = tensor_share(t, 2)
    save(
        OrderedDict(
            (k.split(".", 1)[1], v) for k, v in share.items() if k.startswith("embedding.")
        ),
        f"{step}layer_01-model_{t:02d}-model_states.pt",
    )
    for i in range(L):
        block = legacy(stage(share, [i], False, False), 3, heads=N // 2)["language_model"][
            "encoder"
        ]
        save(
            OrderedDict((k.removeprefix("layers.0."), v) for k, v in block.items()),
            f"{step}layer_{i + 3:02d}-model_{t:02d}-model_states.pt",
        )
    save(
        OrderedDict(
            weight=core["decoder.final_layernorm.weight"], bias=core["decoder.final_layernorm.bias"]
        ),
        f"{step}layer_{L + 4:02d}-model_{t:02d}-model_states.pt",
    )
    save(
        {
            "module": None,
            "args": arguments(num_experts=[1]),
            "iteration": 4,
            "checkpoint_version": 3.0,
            "mp_world_size": 2,
        },
        f"{step}mp_rank_{t:02d}_model_states.pt",
    )
(out / "deepspeed/latest").write_text("global_step4")
save(
    {"module": legacy(core, 3), "args": arguments(), "iteration": 4},
    "deepspeed_plain/mp_rank_00_model_states.pt",
)

# --- what must come of it -------------------------------------------------------------------------


def digest(tensors, dtype=torch.float32):
    return {
        k: [
            list(v.shape),
            zlib.crc32(v.to(dtype).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()),
        ]
        for k, v in tensors.items()
    }


expected = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "fp32": digest(hf),
    "bf16": digest(hf, torch.bfloat16),
    "untied": digest({"lm_head.weight": hf["transformer.wte.weight"].flip(1)}),
}
ids = torch.tensor([[1, 7, 200, 260, 33, 5]])
with torch.no_grad():
    logits = model(ids).logits[0]
expected["tokens"] = ids[0].tolist()
expected["logits"] = [[round(float(x), 6) for x in row[:8]] for row in logits]
(out / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")
