#!/usr/bin/env python3
"""Changes every key of config.json: the model must be refused, or transformers must compute the
same from the converted folder.

Run: python tests/reference/judge_config_keys.py BIN WORK
  BIN, WORK   as of judge_hub_models.py
Takes one model of each family and sets every key that its class in transformers knows, or that its
file on the hub has, to other values: the other boolean, a number doubled and halved, each
activation. If transformers can still create such a model, hf-to-megatron must refuse it, or convert
it bit for bit as judge_hub_models.py defines that. Prints models for which neither is true; exits 1
if there are any.
Used with transformers 4.46.3 and 5.23.0.
SPDX-License-Identifier: MIT
"""

import os
import shutil
import subprocess
import sys

import judge_hub_models as hub
import transformers

FAMILIES = (
    "openai-community/gpt2",
    "facebook/opt-125m",
    "facebook/opt-350m",
    "EleutherAI/pythia-70m",
    "meta-llama/Llama-3.1-8B",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B",
)
# Sizes, names, ids, and what belongs to other tasks.
LEFT_OUT = set(
    """
    vocab_size model_type architectures transformers_version torch_dtype dtype _name_or_path
    bos_token_id eos_token_id pad_token_id sep_token_id id2label label2id num_labels
    output_attentions output_hidden_states return_dict problem_type is_encoder_decoder
    num_hidden_layers n_layer hidden_size n_embd n_ctx task_specific_params
    _attn_implementation_autoset attn_implementation
    """.split()
)
ACTIVATIONS = "gelu gelu_pytorch_tanh silu relu gelu_new gelu_fast quick_gelu swish linear".split()


def others(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value or 3, value // 2 or 1]
    if isinstance(value, float):
        return [2 * value or 0.25]
    if value is None:
        return [True, 2]
    return [name for name in ACTIVATIONS if name != value] if value in ACTIVATIONS else []


def run(program, source, target):
    return subprocess.run(
        [f"{hub.BIN}/{program}", "--quiet", "--input", source, "--output", target],
        capture_output=True,
        text=True,
    )


def judge(config, plain):
    """What is wrong; empty: refused, or the same; None: transformers cannot create such a model."""
    at = hub.WORK + "/changed"
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(plain, at + "/hub")
    try:
        hub.make(at + "/hub", config, "float32")
        hub.logits_of(at + "/hub", list(range(hub.TOKENS)), "auto")
    except Exception:  # whatever its classes throw
        return None
    if run("hf-to-megatron", at + "/hub", at + "/start").returncode:
        return ""
    back = run("megatron-to-hf", at + "/start", at + "/back")
    if back.returncode:
        return "taken, but not written again: " + back.stderr.strip()
    try:
        hub.round_trip(at + "/hub", at + "/back", at + "/start", config)
    except AssertionError as error:
        return str(error)
    return ""


def main():
    tried = wrong = 0
    for name in FAMILIES:
        config, layout, _ = hub.MODELS[name]
        plain = f"{hub.WORK}/{name.split('/')[1]}"
        small = {**hub.cut_down(config, hub.tokenizer(plain, layout)), "torch_dtype": "float32"}
        hub.put(plain, "config.json", small)
        keys = {**transformers.AutoConfig.from_pretrained(plain).to_dict(), **small}
        for key in sorted(set(keys) - LEFT_OUT):
            for value in others(keys[key]):
                said = judge({**small, key: value}, plain)
                tried += said is not None
                if said:
                    wrong += 1
                    print(f"WRONG {name}: {key} {keys[key]!r} -> {value!r}: {said}", flush=True)
    print(f"{tried} changed models, {wrong} neither refused nor the same")
    return wrong > 0


sys.exit(main())
