#!/usr/bin/env python3
"""Goldens of tests/tok/folder_test.cc: how AutoTokenizer reads whole tokenizer folders.

usage: tokenizer_folders_golden.py GOLDEN_DIR NAME

GOLDEN_DIR is tests/golden; it has convert/gpt2/vocab.json and merges.txt and receives
tok/folders.json. NAME is the key that this version's results get in it ("4.46" or "5"): run it once
in an environment of each version, in any order. Used with transformers 4.46.3 (tokenizers 0.20.3)
and 5.23.0 (tokenizers 0.23.3).

In the cases of FOLLOWS_4, transformers 5 ignores a part of tokenizer.json, and 4.46 is followed.

folders.json holds vocabularies (in the order of their ids), merges, texts, and cases: files of a
folder, where {"@vocab": NAME} stands for a vocabulary, "@merges" for the merges; and for each
version bos, eos, pad and the ids of each text, with and without special tokens around it, or the
error's class.
SPDX-License-Identifier: MIT
"""

import json
import os
import sys
import tempfile

golden, version = sys.argv[1:3]
os.environ["HF_HUB_OFFLINE"] = "1"
import transformers  # noqa: E402

path = f"{golden}/tok/folders.json"
plain = json.load(open(f"{golden}/convert/gpt2/vocab.json", encoding="utf-8"))
words = sorted((t for t in plain if t != "<|endoftext|>"), key=plain.get)
merges = [
    m
    for m in open(f"{golden}/convert/gpt2/merges.txt", encoding="utf-8").read().split("\n")
    if m and m[0] != "#"
]
END = "<|endoftext|>"
VOCABS = {
    "gpt2": words + [END],
    "opt": ["<s>", "<pad>", "</s>", "<unk>"] + words[::-1] + [END, "madeupword0000"],
    "bare": words,
    "neox": [END, "<|padding|>"] + words,
    "llama": ["<unk>", "<s>", "</s>"] + words,
}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "the house",
    " the  house's 1234 dogs\n",
    "a</s>b <pad> c<s>",
    f" x{END}y {END} z",
    "do<tool_call>it</tool_call> now",
    "<|im_start|>user\n",
    "a<|padding|>b[PAD]c",
    "cafe\u0301 \u65e5\u672c",
    "",
    f"{END}{END}",
    "a  <mask>  b",
    "madeupword0000",
]


def token(content, special=True, **flags):
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": special,
        **flags,
    }


def named(content, **flags):  # as in special_tokens_map.json of the hub's older folders
    return {
        "content": content,
        "lstrip": False,
        "normalized": True,
        "rstrip": False,
        "single_word": False,
        **flags,
    }


def tokenizer_json(vocab, added=(), post=None, pre=None, normalizer=None):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **token(c, special)} for i, c, special in added],
        "normalizer": normalizer,
        "pre_tokenizer": pre or byte_level(),
        "post_processor": post,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {"@vocab": vocab},
            "merges": "@merges",
        },
    }


def byte_level(prefix=False, regex=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }


def template(name, number):
    part = {"SpecialToken": {"id": name, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [part, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            part,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }


def pair(vocab, **files):
    return {"vocab.json": {"@vocab": vocab}, "merges.txt": "@merges", **files}


N = len(VOCABS["gpt2"])
B = len(VOCABS["bare"])
opt_map = {
    k: named(v)
    for k, v in {
        "bos_token": "</s>",
        "eos_token": "</s>",
        "unk_token": "</s>",
        "pad_token": "<pad>",
    }.items()
}
qwen = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False},
        byte_level(regex=False),
    ],
}
qwen_specials = [(B, END, True), (B + 1, "<|im_start|>", True), (B + 2, "<|im_end|>", True)]
qwen_config = {
    "add_prefix_space": False,
    "add_bos_token": False,
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": END,
    "unk_token": None,
    "model_max_length": 32768,
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "added_tokens_decoder": {str(i): token(c, s) for i, c, s in qwen_specials}
    | {str(B + 3): token("<tool_call>", False), str(B + 4): token("</tool_call>", False)},
}
neox_config = {
    "add_prefix_space": False,
    "bos_token": END,
    "eos_token": END,
    "unk_token": END,
    "tokenizer_class": "GPTNeoXTokenizer",
}
neox_added = {"0": token(END), "1": token("<|padding|>")}
neox_json = tokenizer_json("neox", [(0, END, True)], post=byte_level(), normalizer={"type": "NFC"})
CASES = {
    # the hub's OPT: no tokenizer.json, nothing but names and add_bos_token
    "opt_hub": pair(
        "opt",
        **{
            "special_tokens_map.json": opt_map,
            "config.json": {"model_type": "opt"},
            "tokenizer_config.json": {
                "errors": "replace",
                "add_prefix_space": False,
                "add_bos_token": True,
                "tokenizer_class": "GPT2Tokenizer",
                **{k: {"__type": "AddedToken", **v} for k, v in opt_map.items()},
            },
        },
    ),
    "opt_saved": pair(
        "opt",
        **{
            "tokenizer_config.json": {
                "added_tokens_decoder": {
                    "1": token("<pad>", normalized=True),
                    "2": token("</s>", normalized=True),
                },
                "bos_token": "</s>",
                "eos_token": "</s>",
                "unk_token": "</s>",
                "pad_token": "<pad>",
                "add_bos_token": True,
                "tokenizer_class": "GPT2Tokenizer",
                "model_max_length": 10**30,
            }
        },
    ),
    "opt_both_sides": pair(
        "opt",
        **{
            "tokenizer_config.json": {
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "add_bos_token": True,
                "add_eos_token": True,
                "tokenizer_class": "GPT2Tokenizer",
            }
        },
    ),
    "pair_alone": pair("gpt2", **{"config.json": {"model_type": "gpt2"}}),
    "pair_new_tokens": pair(
        "gpt2",
        **{
            "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "pad_token": "[PAD]"},
            "added_tokens.json": {"<tool_call>": N + 1, "[PAD]": N},
            "special_tokens_map.json": {"pad_token": "[PAD]", "eos_token": END},
        },
    ),
    "pair_prefix_space": pair(
        "gpt2",
        **{"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}},
    ),
    "pair_without_end": pair(
        "bare", **{"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}
    ),
    "pair_nulls": pair(
        "bare",
        **{
            "tokenizer_config.json": {
                "tokenizer_class": "GPT2Tokenizer",
                "bos_token": None,
                "eos_token": None,
                "unk_token": None,
            }
        },
    ),
    "qwen2_pair": pair(
        "bare", **{"tokenizer_config.json": qwen_config, "config.json": {"model_type": "qwen2"}}
    ),
    "gpt2_hub": {
        "tokenizer.json": tokenizer_json(
            "gpt2",
            [(N - 1, END, True)],
            post={
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": False,
                "use_regex": True,
            },
        ),
        "tokenizer_config.json": {"model_max_length": 1024},
        **pair("gpt2"),
        "config.json": {"model_type": "gpt2"},
    },
    "gpt2_prefix_space": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True)]),
        "tokenizer_config.json": {"add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"},
    },
    "gpt2_no_prefix_space": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True)], pre=byte_level(True)),
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "fast_keeps_prefix_space": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True)], pre=byte_level(True)),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
        },
    },
    "qwen2": {
        "tokenizer.json": tokenizer_json(
            "bare",
            qwen_specials,
            pre=qwen,
            normalizer={"type": "NFC"},
            post=byte_level(regex=False),
        ),
        "tokenizer_config.json": qwen_config,
        "config.json": {"model_type": "qwen2"},
        **pair("bare"),
    },
    "neox_padding": {
        "tokenizer.json": neox_json,
        "tokenizer_config.json": {**neox_config, "added_tokens_decoder": neox_added},
    },
    "neox_default_padding": {"tokenizer.json": neox_json, "tokenizer_config.json": neox_config},
    "neox_add_bos": {
        "tokenizer.json": neox_json,
        "tokenizer_config.json": {
            **neox_config,
            "add_bos_token": True,
            "pad_token": "<|padding|>",
            "added_tokens_decoder": neox_added,
        },
    },
    "neox_short_list": {
        "tokenizer.json": tokenizer_json(
            "neox",
            [(0, END, True), (len(VOCABS["neox"]), "  ", False)],
            post=byte_level(),
            normalizer={"type": "NFC"},
        ),
        "tokenizer_config.json": {
            **neox_config,
            "added_tokens_decoder": {"0": token(END)},
            "pad_token": END,
        },
    },
    "gpt2_other_cut": {
        "tokenizer.json": tokenizer_json(
            "gpt2", [(N - 1, END, True)], pre=qwen, normalizer={"type": "NFC"}
        ),
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "pad_token": None},
    },
    "llama3": {
        "tokenizer.json": tokenizer_json(
            "bare", [(B, "<s>", True), (B + 1, "</s>", True)], post=template("<s>", B)
        ),
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": {str(B): token("<s>"), str(B + 1): token("</s>")},
        },
    },
    "fast_add_bos": {
        "tokenizer.json": tokenizer_json("bare", [(B, "<s>", True), (B + 1, "</s>", True)]),
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": True,
            "add_eos_token": True,
        },
    },
    "llama_class": {
        "tokenizer.json": tokenizer_json(
            "llama", [(0, "<unk>", True), (1, "<s>", True), (2, "</s>", True)], post=byte_level()
        ),
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
        },
        "config.json": {"model_type": "llama"},
    },
    "new_pad": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True)]),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END},
        "special_tokens_map.json": {
            "pad_token": "[PAD]",
            "eos_token": END,
            "additional_special_tokens": ["<tool_call>"],
        },
    },
    "other_flags": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True), (N, "<mask>", True)]),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "mask_token": "<mask>",
            "added_tokens_decoder": {
                str(N - 1): token(END, rstrip=True),
                str(N): token("<mask>", lstrip=True),
            },
        },
    },
    "special_by_name": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, False)]),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END},
    },
    "model_token": {
        "tokenizer.json": tokenizer_json("gpt2", [(N - 1, END, True)]),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "image_token": "<mask>",
            "extra_special_tokens": ["<tool_call>"],
        },
    },
}

FOLLOWS_4 = ["neox_short_list", "gpt2_other_cut"]


def written(value):
    if isinstance(value, dict) and list(value) == ["@vocab"]:
        return {t: i for i, t in enumerate(VOCABS[value["@vocab"]])}
    if isinstance(value, dict):
        return {
            k: merges if (k, v) == ("merges", "@merges") else written(v) for k, v in value.items()
        }
    return value


def results(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, value in files.items():
            text = (
                "#version: 0.2\n" + "\n".join(merges) + "\n"
                if value == "@merges"
                else json.dumps(written(value), ensure_ascii=False)
            )
            open(f"{folder}/{name}", "w", encoding="utf-8").write(text)
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        except Exception as error:  # noqa: BLE001
            return {"error": type(error).__name__, "message": str(error)[:120]}
        added = sorted(tokenizer.added_tokens_decoder.items())
        return {
            "class": type(tokenizer).__name__,
            "bos": tokenizer.bos_token_id,
            "eos": tokenizer.eos_token_id,
            "pad": tokenizer.pad_token_id,
            "size": len(tokenizer),
            "added": [[i, t.content, t.special, t.lstrip, t.rstrip] for i, t in added],
            "plain": [tokenizer(t, add_special_tokens=False)["input_ids"] for t in TEXTS],
            "around": tokenizer(TEXTS[0])["input_ids"],
        }


out = json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {"results": {}}
out = {
    "vocabs": VOCABS,
    "merges": merges,
    "texts": TEXTS,
    "follows_4": FOLLOWS_4,
    "cases": CASES,
    "results": out["results"],
}
out["results"][version] = {name: results(files) for name, files in CASES.items()}
with open(path, "w", encoding="utf-8") as file:
    text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
    for mark in ('"merges":', '"texts":', '"cases":', '"results":') + tuple(
        f'"{name}":' for name in CASES
    ):
        text = text.replace(mark, "\n" + mark)
    file.write(text + "\n")
