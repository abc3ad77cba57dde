#!/usr/bin/env python3
"""Goldens of ModelFolderTest (tests/tok/folder_test.cc): how AutoTokenizer reads folders whose only
tokenizer file is a tokenizer.model of SentencePiece.

usage: model_folders_golden.py GOLDEN_DIR NAME

GOLDEN_DIR is tests/golden; it has tok/sentencepiece/*.model and receives
tok/sentencepiece/folders.json. NAME is the key of this version's results ("4.46" or "5"): run it
once in an environment of each version, in any order. Used with transformers 4.46.3 (tokenizers
0.20.3) and 5.23.0 (tokenizers 0.23.3), sentencepiece 0.2.0.

Each case: the model, the folder's other files, and the version that is followed. Results as in
tokenizer_folders_golden.py.
SPDX-License-Identifier: MIT
"""

import json
import os
import shutil
import sys
import tempfile

golden, version = sys.argv[1:3]
os.environ["HF_HUB_OFFLINE"] = "1"
import transformers  # noqa: E402

models = f"{golden}/tok/sentencepiece"
path = f"{models}/folders.json"


def token(content, **flags):
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
        **flags,
    }


LISTED = {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}


def case(config=None, model="llama", follows="4.46", **files):
    named = {name.replace("__", "."): value for name, value in files.items()}
    if config is not None:
        named["tokenizer_config.json"] = config
    return {"model": model, "follows": follows, "files": named}


def llama(**more):
    return {"tokenizer_class": "LlamaTokenizer", **more}


CASES = {
    "model_type": case(config__json={"model_type": "llama"}),
    "bare_class": case(llama()),
    "fast_class": case({"tokenizer_class": "LlamaTokenizerFast"}),
    "not_legacy": case(llama(legacy=False)),
    "legacy": case(llama(legacy=True)),
    "additional": case(llama(additional_special_tokens=["<|user|>", "<|bot|>"])),
    "additional_in_map": case(
        llama(),
        special_tokens_map__json={
            "additional_special_tokens": ["<|user|>"],
            "mask_token": "<mask>",
        },
    ),
    "mask": case(llama(legacy=False, mask_token="<mask>")),
    "image": case(llama(legacy=False, add_bos_token=True, image_token="<image>"), follows="5"),
    "extra_object": case(
        llama(legacy=False, add_bos_token=True, extra_special_tokens={"image_token": "<image>"}),
        follows="5",
    ),
    "pad": case(llama(pad_token="[PAD]")),
    "pad_is_unk": case(llama(pad_token="<unk>")),
    "flags": case(
        llama(
            legacy=False,
            add_bos_token=True,
            added_tokens_decoder={
                **LISTED,
                "1": token("<s>", rstrip=True),
                "2": token("</s>", special=False, lstrip=True),
            },
        ),
        follows="5",
    ),
    "piece_listed": case(
        llama(legacy=False, added_tokens_decoder={**LISTED, "370": token("ation", special=False)})
    ),
    "new_listed": case(
        llama(
            added_tokens_decoder={
                **LISTED,
                "1500": token("<|user|>"),
                "1501": token("wordy", special=False, normalized=True),
            },
            additional_special_tokens=["<|user|>", "<|z|>"],
        )
    ),
    "added_tokens": case(llama(), added_tokens__json={"<|user|>": 1500, "wordy": 1501}),
    "other_roles": case(llama(bos_token="<|bos|>", eos_token="<|eos|>")),
    "adds_eos": case(llama(add_eos_token=True)),
    "no_bos": case(llama(add_bos_token=False)),
    "no_prefix_space": case(llama(add_prefix_space=False)),
    "no_prefix_space_not_legacy": case(llama(add_prefix_space=False, legacy=False)),
    "splits_special": case(llama(split_special_tokens=True)),
    "other_normalization": case(llama(), model="nfkc"),
    "model_without_prefix": case(llama(), model="no_prefix"),
    "other_names": case(
        llama(legacy=False, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"), model="gemma"
    ),
    "gemma": case(
        {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}, model="gemma", follows="5"
    ),
    "backend": case({"tokenizer_class": "PreTrainedTokenizerFast"}, follows="5"),
    "backend_listed": case(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": {**LISTED, "1500": token("<|user|>")},
            "bos_token": "<s>",
            "eos_token": "</s>",
            "add_bos_token": True,
        },
        follows="5",
    ),
}
TEXTS = [
    "the house",
    "<s> x </s>  y",
    " the  house's ",
    "a<unk>b",
    "a <|user|> b<|bot|>c",
    "x <mask> y",
    "<image> z",
    "q [PAD] r",
    "wordy station x",
    "<0x41>\u00e9\u732b\U0001f600 <UNK>",
    " ",
    "a\tb\n\n c  ",
    "<|bos|>t<|eos|>",
    "\u2581\u2581a<table>\n\n<b> </b>",
    "\uff21\ufb01 \u3000<|z|>",
]


def read(files, model):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(f"{models}/{model}.model", f"{folder}/tokenizer.model")
        for name, value in files.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                json.dump(value, file)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return {
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "pad": tokenizer.pad_token_id,
        "size": len(tokenizer),
        "added": [
            [i, t.content, t.special] for i, t in sorted(tokenizer.added_tokens_decoder.items())
        ],
        "plain": [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS],
        "around": tokenizer.encode(TEXTS[0]),
    }


def main():
    out = json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {"results": {}}
    out.update(texts=TEXTS, cases=CASES)
    results = out["results"][version] = {}
    for name, entry in CASES.items():
        try:
            results[name] = read(entry["files"], entry["model"])
        except (ValueError, TypeError) as error:
            results[name] = {"error": type(error).__name__}
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "{\n"
            + ",\n".join(
                f'"{key}": '
                + (
                    json.dumps(value)
                    if key not in ("cases", "results")
                    else "{\n"
                    + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in value.items())
                    + "\n}"
                )
                for key, value in sorted(out.items())
            )
            + "\n}\n"
        )


main()
