"""A tiny model of each family as transformers saves it, with its logits and
the CRC-32 of each tensor.

Writes tests/golden/convert/families/NAME/{config.json,model.safetensors,expected.json}, and the
same weights as transformers 4 saved them before safetensors: gpt2_bin in one pytorch_model.bin,
with a tied head and masks, llama_bin in shards with their index. Made with torch 2.15.0,
transformers 5.23.0.
Run: python tests/reference/make_family_goldens.py tests/golden/convert/families [NAME]
"""

# SPDX-License-Identifier: MIT
import json
import pathlib
import sys
import zlib

import torch
import transformers
from safetensors.torch import load_file

out = pathlib.Path(sys.argv[1])
V, H, N, L, F, P = 48, 16, 4, 2, 40, 12
llama = dict(
    vocab_size=V,
    hidden_size=H,
    intermediate_size=F,
    num_hidden_layers=L,
    num_attention_heads=N,
    num_key_value_heads=2,
    max_position_embeddings=P,
)
rope = {"rope_type": "default", "rope_theta": 500.0}
configs = {
    "gpt2": transformers.GPT2Config(
        vocab_size=V, n_positions=P, n_embd=H, n_layer=L, n_head=N, activation_function="gelu"
    ),
    "opt": transformers.OPTConfig(
        vocab_size=V,
        hidden_size=H,
        ffn_dim=F,
        num_hidden_layers=L,
        num_attention_heads=N,
        max_position_embeddings=P,
        word_embed_proj_dim=H,
    ),
    "opt_350m": transformers.OPTConfig(
        vocab_size=V,
        hidden_size=H,
        ffn_dim=F,
        num_hidden_layers=L,
        num_attention_heads=N,
        max_position_embeddings=P,
        word_embed_proj_dim=10,
        do_layer_norm_before=False,
    ),
    "opt_gelu": transformers.OPTConfig(
        vocab_size=V,
        hidden_size=H,
        ffn_dim=F,
        num_hidden_layers=L,
        num_attention_heads=N,
        max_position_embeddings=P,
        word_embed_proj_dim=24,
        activation_function="gelu",
        tie_word_embeddings=False,
    ),
    "gpt_neox": transformers.GPTNeoXConfig(
        vocab_size=V,
        hidden_size=H,
        intermediate_size=F,
        num_hidden_layers=L,
        num_attention_heads=2,
        max_position_embeddings=P,
        hidden_act="gelu",
    ),
    "gpt_neox_serial": transformers.GPTNeoXConfig(
        vocab_size=V,
        hidden_size=H,
        intermediate_size=F,
        num_hidden_layers=L,
        num_attention_heads=2,
        max_position_embeddings=P,
        hidden_act="gelu_new",
        use_parallel_residual=False,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 5000.0,
            "partial_rotary_factor": 0.5,
        },
    ),
    "llama": transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=H,
        intermediate_size=F,
        num_hidden_layers=L,
        num_attention_heads=N,
        num_key_value_heads=2,
        max_position_embeddings=P,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    # Beside their biases: heads wider than hidden / heads, and positions stretched from 8 and from
    # P.
    "llama_biases": transformers.LlamaConfig(
        **llama,
        attention_bias=True,
        mlp_bias=True,
        head_dim=6,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 50.0,
            "factor": 4.0,
            "low_freq_factor": 0.2,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8,
        },
    ),
    "llama_linear": transformers.LlamaConfig(
        **llama,
        attention_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    ),
    "mistral": transformers.MistralConfig(
        **llama, head_dim=6, sliding_window=3, rope_parameters=rope
    ),
    "mistral_whole": transformers.MistralConfig(**llama, sliding_window=None, rope_parameters=rope),
    "qwen2": transformers.Qwen2Config(**llama, rope_parameters=rope, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**llama, head_dim=6, rope_parameters=rope),
}
for name, config in configs.items():
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        continue
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(
                torch.randn_like(p) * 0.3
                + (1.0 if "norm" in key and key.endswith("weight") else 0.0)
            )
    folder = out / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.tensor([[1, 7, 40, 3, 3, 47, 0]])
    with torch.no_grad():
        logits = model(ids).logits[0]
    tensors = load_file(folder / "model.safetensors")  # names in memory are not those on disk
    (folder / "expected.json").write_text(
        json.dumps(
            {
                "transformers": transformers.__version__,
                "tokens": ids[0].tolist(),
                "logits": [[round(float(x), 6) for x in row] for row in logits],
                "tensors": {
                    k: [list(v.shape), zlib.crc32(v.contiguous().numpy().tobytes())]
                    for k, v in tensors.items()
                },
            }
        )
        + "\n"
    )

# A state dict holds more than the safetensors file: tied weights twice, and GPT-2's masks.
for name, shards in (("gpt2", 1), ("llama", 2)):
    folder = out / (name + "_bin")
    folder.mkdir(exist_ok=True)
    for file in ("config.json", "expected.json"):
        (folder / file).write_text((out / name / file).read_text())
    state = transformers.AutoModelForCausalLM.from_pretrained(out / name).state_dict()
    if name == "gpt2":
        for layer in range(L):
            state[f"transformer.h.{layer}.attn.bias"] = (
                torch.ones(P, P).tril().to(torch.uint8).view(1, 1, P, P)
            )
            state[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    names = list(state)
    parts = [
        names[i * len(names) // shards : (i + 1) * len(names) // shards] for i in range(shards)
    ]
    files = (
        ["pytorch_model.bin"]
        if shards == 1
        else [f"pytorch_model-{i + 1:05}-of-{shards:05}.bin" for i in range(shards)]
    )
    for file, part in zip(files, parts):
        saved = type(state)((key, state[key]) for key in part)
        saved._metadata = state._metadata
        torch.save(saved, folder / file)
    if shards > 1:
        total = sum(t.numel() * t.element_size() for t in state.values())
        (folder / "pytorch_model.bin.index.json").write_text(
            json.dumps(
                {
                    "metadata": {"total_size": total},
                    "weight_map": {key: file for file, part in zip(files, parts) for key in part},
                },
                indent=2,
            )
            + "\n"
        )
