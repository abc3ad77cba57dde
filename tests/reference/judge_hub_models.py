#!/usr/bin/env python3
"""Converts models, in the form of their folders on the hub, to a checkpoint and back: each must be
refused by name, or be the same bit for bit.

Run: python tests/reference/judge_hub_models.py BIN WORK [TABLE]
  BIN    build folder's bin, with hf-to-megatron, megatron-to-hf and decoder-logits
  WORK   an empty folder to write in
  TABLE  a page whose table of models is replaced by the results (docs/models.md)
hub_models.py has the configurations. Here only their sizes are reduced (layers, widths,
vocabulary), with random weights that transformers' own class creates and saves in the hub's dtype.
For a model that is accepted:
  tensors    megatron-to-hf writes the bytes that hf-to-megatron read, under the same names, and no
             others
  logits     transformers computes the same bits from the source and from what was written
  decoder    our own forward pass from the trainer's checkpoint computes transformers' logits in
             fp32, within 2e-5 of the largest
  config     AutoConfig of both folders is the same except for keys that affect no computation
  tokenizer  files byte for byte, and the same ids of a text
For a model that is refused, the message names model_type or the key. Prints one line per model;
exits 1 if neither is true for one. Used with transformers 4.46.3 and 5.23.0.
SPDX-License-Identifier: MIT
"""

import filecmp
import json
import logging
import os
import re
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hub_models import MODELS  # noqa: E402

BIN, WORK = (os.path.abspath(p) for p in sys.argv[1:3])
TEXT = "the cat sat on the mat, and the dog saw it"
TOKENS = 24
logging.disable(logging.WARNING)
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)

# Keys of a config that say nothing about what is computed, or that a folder says in another file.
IDLE = set(
    """
    _name_or_path _num_labels transformers_version torch_dtype dtype architectures
    task_specific_params id2label label2id summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout output_past prefix use_cache gradient_checkpointing
    pretraining_tp max_sequence_length custom_pipelines is_llama_config rope_interleaved
    max_window_layers use_mrope learned_embeddings scale_embeddings activation pad_token_id
    attn_pdrop embd_pdrop resid_pdrop summary_first_dropout attention_dropout hidden_dropout dropout
    layerdrop activation_dropout attention_probs_dropout_prob hidden_dropout_prob classifier_dropout
    initializer_range init_std reorder_and_upcast_attn n_ctx auto_map chunk_size_feed_forward
    is_decoder
    """.split()
)


def byte_names():
    """GPT-2's characters for the 256 bytes."""
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    hidden = [b for b in range(256) if b not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


PAIRS = ["t h", "th e", "Ġ the", "a t", "Ġ d", "o g"]


def byte_level(first, special):
    vocab = {token: i for i, token in enumerate(first)}
    for token in list(byte_names().values()) + [pair.replace(" ", "") for pair in PAIRS] + special:
        vocab.setdefault(token, len(vocab))
    return vocab


def put(folder, name, value):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        )


def added(vocab, tokens):
    return [
        {
            "id": vocab[t],
            "content": t,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for t in tokens
    ]


def bpe_json(vocab, merges, special, pre, decoder, normalizer=None, post=None, **model):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(vocab, special),
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
            **model,
        },
    }


def tokenizer(folder, layout):
    """Writes a small tokenizer in the hub's layout; returns its number of tokens."""
    plain = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    os.makedirs(folder, exist_ok=True)
    if layout == "none":
        return 256
    if layout == "gpt2":
        special = ["<|endoftext|>"]
        vocab = byte_level([], special)
        put(folder, "vocab.json", vocab)
        put(folder, "merges.txt", "#version: 0.2\n" + "\n".join(PAIRS) + "\n")
        put(folder, "tokenizer.json", bpe_json(vocab, PAIRS, special, plain, plain))
        put(folder, "tokenizer_config.json", {"model_max_length": 1024})
    elif layout == "opt":
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        vocab = byte_level(special, [])
        put(folder, "vocab.json", vocab)
        put(folder, "merges.txt", "#version: 0.2\n" + "\n".join(PAIRS) + "\n")
        token = {
            "content": "</s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": True,
        }
        put(
            folder,
            "special_tokens_map.json",
            {
                "bos_token": token,
                "eos_token": token,
                "unk_token": token,
                "pad_token": {**token, "content": "<pad>"},
            },
        )
        put(
            folder,
            "tokenizer_config.json",
            {
                "errors": "replace",
                "unk_token": {**token, "__type": "AddedToken"},
                "bos_token": {**token, "__type": "AddedToken"},
                "eos_token": {**token, "__type": "AddedToken"},
                "pad_token": {**token, "content": "<pad>", "__type": "AddedToken"},
                "add_prefix_space": False,
                "add_bos_token": True,
                "special_tokens_map_file": None,
                "name_or_path": "patrickvonplaten/opt-30b",
                "tokenizer_class": "GPT2Tokenizer",
            },
        )
    elif layout in ("fast", "llama3", "qwen"):
        special = {
            "fast": ["<|endoftext|>", "<|padding|>"],
            "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
        }[layout]
        vocab = byte_level(special[:2] if layout == "fast" else [], special)
        pattern = {
            "fast": None,
            "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        }[layout]
        pre = (
            plain
            if pattern is None
            else {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": pattern},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                    {**plain, "use_regex": False},
                ],
            }
        )
        post = None
        if layout == "llama3":
            one = [
                {"SpecialToken": {"id": special[0], "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ]
            post = {
                "type": "TemplateProcessing",
                "single": one,
                "pair": one + [{"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    special[0]: {
                        "id": special[0],
                        "ids": [vocab[special[0]]],
                        "tokens": [special[0]],
                    }
                },
            }
        normal = {"type": "NFC"} if layout in ("qwen", "fast") else None
        put(folder, "tokenizer.json", bpe_json(vocab, PAIRS, special, pre, plain, normal, post))
        if layout == "qwen":
            put(folder, "vocab.json", {t: i for t, i in vocab.items() if t not in special})
            put(folder, "merges.txt", "#version: 0.2\n" + "\n".join(PAIRS) + "\n")
        kind = {
            "fast": "GPTNeoXTokenizer",
            "qwen": "Qwen2Tokenizer",
            "llama3": "PreTrainedTokenizerFast",
        }[layout]
        put(
            folder,
            "tokenizer_config.json",
            {
                "add_prefix_space": False,
                "added_tokens_decoder": {
                    str(t["id"]): {k: v for k, v in t.items() if k != "id"}
                    for t in added(vocab, special)
                },
                "bos_token": None if layout == "qwen" else special[0],
                "clean_up_tokenization_spaces": False,
                "eos_token": special[0] if layout != "llama3" else special[1],
                "model_max_length": 131072,
                "tokenizer_class": kind,
            },
        )
    else:
        special = ["<unk>", "<s>", "</s>"]
        vocab = {t: i for i, t in enumerate(special + [f"<0x{b:02X}>" for b in range(256)])}
        merges = ["▁ t", "h e", "▁t he", "a t"]
        for token in (
            ["▁"] + [m.replace(" ", "") for m in merges] + sorted(set(TEXT.replace(" ", "")))
        ):
            vocab.setdefault(token, len(vocab))
        one = [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ]
        put(
            folder,
            "tokenizer.json",
            bpe_json(
                vocab,
                merges,
                special,
                None,
                {
                    "type": "Sequence",
                    "decoders": [
                        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                        {"type": "ByteFallback"},
                        {"type": "Fuse"},
                        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                    ],
                },
                {
                    "type": "Sequence",
                    "normalizers": [
                        {"type": "Prepend", "prepend": "▁"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                    ],
                },
                {
                    "type": "TemplateProcessing",
                    "single": one,
                    "pair": one + [{"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
                },
                unk_token="<unk>",
                fuse_unk=True,
                byte_fallback=True,
            ),
        )
        put(folder, "tokenizer.model", "not read by the converters")
        put(
            folder,
            "special_tokens_map.json",
            {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        )
        put(
            folder,
            "tokenizer_config.json",
            {
                "add_bos_token": True,
                "add_eos_token": False,
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "legacy": False,
                "model_max_length": 1000000000000000019884624838656,
                "sp_model_kwargs": {},
                "clean_up_tokenization_spaces": False,
                "tokenizer_class": "LlamaTokenizerFast",
            },
        )
    return len(vocab)


def cut_down(config, tokens):
    """The same model, smaller."""
    small = dict(config)
    names = {
        "layers": ("num_hidden_layers", "n_layer"),
        "heads": ("num_attention_heads", "n_head"),
        "width": ("hidden_size", "n_embd"),
        "inner": ("intermediate_size", "ffn_dim", "n_inner"),
        "positions": ("max_position_embeddings", "n_positions", "n_ctx"),
    }
    key = {what: next((k for k in keys if k in config), None) for what, keys in names.items()}
    heads, width = config[key["heads"]], config[key["width"]]
    groups = config.get("num_key_value_heads", heads)
    per_group = heads // groups
    small[key["heads"]] = per_group * (2 if per_group > 1 else 4)
    if "num_key_value_heads" in config:
        small["num_key_value_heads"] = small[key["heads"]] // per_group
    small[key["width"]] = 8 * small[key["heads"]]
    if "head_dim" in config:
        small["head_dim"] = 8 if config["head_dim"] * heads == width else 12
    if key["inner"] and config[key["inner"]]:
        small[key["inner"]] = 4 * small[key["width"]] if config[key["inner"]] == 4 * width else 40
    if "word_embed_proj_dim" in config:
        small["word_embed_proj_dim"] = (
            small[key["width"]] if config["word_embed_proj_dim"] == width else 24
        )
    small[key["layers"]] = 2
    learned = config["model_type"] in ("gpt2", "opt")
    for name in names["positions"]:
        if name in config and learned:
            small[name] = 32
    if small.get("sliding_window"):
        small["sliding_window"] = 5
    # Positions stretched from few, so that 24 tokens show it.
    if isinstance(config.get("rope_scaling"), dict) and "low_freq_factor" in config["rope_scaling"]:
        small["rope_scaling"] = {**config["rope_scaling"], "original_max_position_embeddings": 16}
    small["vocab_size"] = tokens + 8
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if name in config:
            value = config[name]
            clip = lambda i: i if i < tokens else tokens - 1 - i % 3  # noqa: E731
            small[name] = (
                [clip(i) for i in value]
                if isinstance(value, list)
                else None
                if value is None
                else clip(value)
            )
    return small


def make(folder, config, dtype):
    """Random weights as transformers saves them, under the hub's config.json."""
    torch.manual_seed(len(folder))
    put(folder, "config.json", config)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder)
    ).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(
                torch.randn_like(p) * 0.3
                + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            )
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    put(folder, "config.json", config)
    ids = {k: config[k] for k in ("bos_token_id", "eos_token_id") if config.get(k) is not None}
    put(
        folder,
        "generation_config.json",
        {"_from_model_config": True, **ids, "transformers_version": "4.40.1"},
    )


def logits_of(folder, ids, dtype):
    keyword = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", **{keyword: dtype}
    )
    wrong = {k: v for k, v in found.items() if v and k != "error_msgs"}
    assert not wrong, wrong
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0]


def ours(folder, ids):
    done = subprocess.run(
        [f"{BIN}/decoder-logits", folder],
        input=(" ".join(map(str, ids)) + "\n").encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return torch.from_numpy(np.frombuffer(done.stdout, np.float32).reshape(len(ids), -1).copy())


def rope(config):
    """transformers 5 combines the keys for positions into one; 4 keeps them."""
    value = config.get("rope_parameters") or config.get("rope_scaling") or {}
    value = dict(value)
    value["rope_type"] = value.pop("type", None) or value.get("rope_type", "default")
    for junk in ("finetuned",):
        value.pop(junk, None)
    return {k: float(v) if isinstance(v, (int, float)) else v for k, v in value.items()}


def spelled_out(folder):
    """A folder's config, with missing values filled in that follow from other keys."""
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    if config["model_type"] == "gpt2" and config["n_inner"] is None:
        config["n_inner"] = 4 * config["n_embd"]
    if (
        config["model_type"] in ("llama", "mistral", "qwen2", "qwen3")
        and config.get("head_dim") is None
    ):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    return config


def compare_configs(a, b):
    a, b = spelled_out(a), spelled_out(b)
    ra, rb = rope(a), rope(b)
    differ = [] if ra == rb else [f"positions {ra} {rb}"]
    for key in sorted(set(a) | set(b)):
        if key in IDLE or key.startswith("rope_") or key in ("rotary_emb_base",):
            continue
        if key not in a or key not in b or a[key] != b[key]:
            differ.append(f"{key} {a.get(key, 'absent')!r} {b.get(key, 'absent')!r}")
    assert not differ, "config: " + "; ".join(differ)


def round_trip(folder, out, start, config):
    ids = [int(i) for i in np.random.default_rng(5).integers(0, config["vocab_size"], TOKENS)]
    with open(f"{out}/config.json", encoding="utf-8") as file:
        written = json.load(file)
    source, back = load_file(f"{folder}/model.safetensors"), load_file(f"{out}/model.safetensors")
    assert set(source) == set(back), f"tensors: {sorted(set(source) ^ set(back))[:3]}"
    for name, tensor in source.items():
        same = tensor.dtype == back[name].dtype and torch.equal(
            tensor.view(torch.uint8), back[name].view(torch.uint8)
        )
        assert same, f"tensors: {name}"
    assert torch.equal(logits_of(folder, ids, "auto"), logits_of(out, ids, "auto")), "logits"
    # In fp32, on the widened weights.
    want, got = logits_of(folder, ids, torch.float32), ours(start, ids)
    apart = float((want - got[:, : want.shape[1]]).abs().max() / want.abs().max())
    assert apart < 2e-5, f"decoder: {apart:.2g} apart"
    compare_configs(folder, out)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert written.get(key) == config.get(key), (
            f"config: {key} {config.get(key)} {written.get(key)}"
        )
    files = [
        f
        for f in os.listdir(folder)
        if "token" in f or f in ("vocab.json", "merges.txt", "generation_config.json")
    ]
    for name in files:
        assert os.path.exists(f"{out}/{name}") and filecmp.cmp(
            f"{folder}/{name}", f"{out}/{name}", False
        ), f"tokenizer: {name}"
    if len(files) > 1:
        a, b = (transformers.AutoTokenizer.from_pretrained(f) for f in (folder, out))
        assert a(TEXT)["input_ids"] == b(TEXT)["input_ids"], "tokenizer: ids"


def judge(name, config, layout, dtype):
    at = WORK + "/" + re.sub(r"\W+", "-", name)
    folder, start, out = at + "/hub", at + "/start", at + "/back"
    tokens = tokenizer(folder, layout)
    known = config["model_type"] in (
        "gpt2",
        "opt",
        "gpt_neox",
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
    )
    if (
        known
        and config["model_type"]
        not in transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    ):
        return "absent", "in transformers " + transformers.__version__
    if known:
        config = cut_down(config, tokens)
        make(folder, config, dtype)
    else:
        put(folder, "config.json", config)
    steps = [
        [f"{BIN}/hf-to-megatron", "--quiet", "--input", folder, "--output", start],
        [f"{BIN}/megatron-to-hf", "--quiet", "--input", start, "--output", out],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip().split(": ", 2)[-1].replace(at, "")
            names = (
                "model_type" in said or 'key "' in said or "known here" in said
            ) and "hf-to-megatron" in step[0]
            return ("refused" if names else "UNNAMED"), said
    try:
        round_trip(folder, out, start, config)
    except AssertionError as error:
        return "WRONG", str(error)
    return "taken", done.stderr.strip()


def main():
    rows, wrong = [], 0
    for name, (config, layout, dtype) in MODELS.items():
        verdict, said = judge(name, config, layout, dtype)
        wrong += verdict.isupper()
        print(f"{verdict:8} {name}: {said}", flush=True)
        rows.append((name, config["model_type"], verdict, said))
    if len(sys.argv) > 3:
        write_table(rows, sys.argv[3])
    print(
        f"{len(rows)} models, {sum(r[2] == 'taken' for r in rows)} taken bit for bit, "
        f"{sum(r[2] == 'refused' for r in rows)} refused by name"
    )
    return wrong > 0


def write_table(rows, page):
    with open(page, encoding="utf-8") as file:
        head, rest = file.read().split("<!-- table -->\n", 1)
    tail = rest.split("<!-- end -->", 1)[1]
    lines = ["| model on the hub | model_type | result |", "| --- | --- | --- |"]
    for name, kind, verdict, said in rows:
        lines.append(
            f"| {name} | {kind} | "
            + ("bit for bit" if verdict == "taken" else f"refused: {said}".replace("|", "\\|"))
            + " |"
        )
    with open(page, "w", encoding="utf-8") as file:
        file.write(head + "<!-- table -->\n" + "\n".join(lines) + "\n<!-- end -->" + tail)


if __name__ == "__main__":
    sys.exit(main())
