#!/usr/bin/env python3
"""Makes a transformers folder with random weights for bench/convert, of GPT-2 XL's size (3.1 GB in
bf16) or TinyLlama's (2.2 GB).

make_model.py gpt2|llama FOLDER [--dtype bfloat16] [--layers N]
              [--tokenizer FOLDER_WITH_vocab.json_AND_merges.txt]

Weights are normally distributed with standard deviation 0.02, norms are 1, biases 0; the seed is
fixed. The tokenizer's files are copied if given.
"""

import argparse
import pathlib
import shutil

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def model_of(kind, layers, dtype):
    if kind == "gpt2":
        config = GPT2Config(n_embd=1600, n_head=25, n_layer=layers or 48)
        make = GPT2LMHeadModel
    else:
        config = LlamaConfig(
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=layers or 22,
            num_attention_heads=32,
            num_key_value_heads=4,
            vocab_size=50257,
            max_position_embeddings=2048,
            bos_token_id=50256,
            eos_token_id=50256,
        )
        make = LlamaForCausalLM
    config.dtype = dtype
    with torch.device("meta"):
        model = make(config)
    return model.to_empty(device="cpu").to(dtype)


def fill(model):
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(0, 0.02, generator=generator)
        elif name.endswith("bias"):
            parameter.data.zero_()
        else:
            parameter.data.fill_(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["gpt2", "llama"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_default_dtype(getattr(torch, arguments.dtype))
    model = model_of(arguments.kind, arguments.layers, getattr(torch, arguments.dtype))
    model.tie_weights()
    fill(model)
    model.save_pretrained(arguments.folder)
    if arguments.tokenizer:
        for file in ("vocab.json", "merges.txt"):
            shutil.copy(arguments.tokenizer / file, arguments.folder / file)
    print(f"{arguments.folder}: {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
