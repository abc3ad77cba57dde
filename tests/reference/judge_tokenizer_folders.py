#!/usr/bin/env python3
"""Converts tokenizer folders of the hub's layouts to a checkpoint and back, and compares them using
transformers.

Run: python tests/reference/judge_tokenizer_folders.py BIN DATA WORK
  BIN   build folder's bin, with hf-to-megatron, megatron-to-hf, bpe-tokenize, trainer
  DATA  real vocabularies: gpt2-vocab.json, gpt2-merges.txt, gpt-neox-20b-tokenizer.json,
        wikitext2-valid.txt
  WORK  an empty folder to write in
Makes folders of small random models with real vocabularies (GPT-2, OPT, Pythia, Llama with bytes
and with pieces, Qwen2's lists, and one without a tokenizer), takes each through hf-to-megatron, one
step of the trainer, and megatron-to-hf, and through Megatron's own layout; then compares files byte
for byte, ids of configs, ids of texts, and lets the pipeline run. bpe-tokenize's ids are compared
with AutoTokenizer's, special tokens in the text and around it included. Prints one line per check
and exits 1 if one failed. Used with transformers 4.46.3 and 5.23.0.
SPDX-License-Identifier: MIT
"""

import filecmp
import json
import os
import struct
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402

BIN, DATA, WORK = (os.path.abspath(p) for p in sys.argv[1:4])
FIVE = int(transformers.__version__.split(".")[0]) >= 5
failed = 0
END = "<|endoftext|>"


def check(name, good, what=""):
    global failed
    failed += not good
    print(("ok   " if good else "FAIL ") + name, what if not good or what else "", flush=True)


def run(program, *args):
    done = subprocess.run([f"{BIN}/{program}", *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        print(program, *args, done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        sys.exit("a program failed")
    return done.stderr


def put(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write(text)


gpt2 = json.load(open(f"{DATA}/gpt2-vocab.json", encoding="utf-8"))
merges = open(f"{DATA}/gpt2-merges.txt", encoding="utf-8").read()
neox = open(f"{DATA}/gpt-neox-20b-tokenizer.json", encoding="utf-8").read()
words = sorted((t for t in gpt2 if t != END), key=gpt2.get)
pairs = [line for line in merges.split("\n") if line and not line.startswith("#version")]
small = dict(bos_token_id=None, eos_token_id=None)


def byte_level_json(vocab, added, split=None, post=None, normalizer=None):
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": split is None,
    }
    pre = (
        byte_level
        if split is None
        else {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": split},
                    "behavior": "Isolated",
                    "invert": False,
                },
                byte_level,
            ],
        }
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": c,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": s,
            }
            for i, c, s in added
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": pairs,
        },
    }


def save(model, folder, ids, generation=True):
    model.save_pretrained(folder)
    config = json.load(open(f"{folder}/config.json"))
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config.pop(key, None)
    config.update(ids)
    put(folder, "config.json", config)
    if generation:
        put(
            folder,
            "generation_config.json",
            {
                "_from_model_config": True,
                **{k: v for k, v in ids.items() if v is not None},
                "transformers_version": "4.27.0",
            },
        )
    elif os.path.exists(f"{folder}/generation_config.json"):
        os.remove(f"{folder}/generation_config.json")


def token(content, special=True):
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": special,
    }


def make_folders():
    torch.manual_seed(1)

    def named(content):
        flags = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
        return {"content": content, **flags}

    # the hub's OPT: its order of ids is another than the merges', and <|endoftext|> is one of its
    # tokens
    folder = f"{WORK}/opt"
    vocab = {
        t: i
        for i, t in enumerate(
            ["<s>", "<pad>", "</s>", "<unk>"]
            + words[::-1]
            + [END]
            + [f"madeupword{i:04}" for i in range(4)]
        )
    }
    put(folder, "vocab.json", vocab)
    put(folder, "merges.txt", merges)
    roles = {
        k: named(c)
        for k, c in {
            "bos_token": "</s>",
            "eos_token": "</s>",
            "unk_token": "</s>",
            "pad_token": "<pad>",
        }.items()
    }
    put(folder, "special_tokens_map.json", roles)
    put(
        folder,
        "tokenizer_config.json",
        {
            "errors": "replace",
            **{k: {"__type": "AddedToken", **v} for k, v in roles.items()},
            "add_prefix_space": False,
            "add_bos_token": True,
            "tokenizer_class": "GPT2Tokenizer",
        },
    )
    save(
        transformers.OPTForCausalLM(
            transformers.OPTConfig(
                vocab_size=len(vocab),
                hidden_size=16,
                ffn_dim=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=64,
                word_embed_proj_dim=16,
            )
        ),
        folder,
        dict(bos_token_id=2, eos_token_id=2, pad_token_id=1),
    )
    # GPT-2 in the hub's first form, and without a tokenizer_config.json and generation_config.json
    folder = f"{WORK}/gpt2"
    put(folder, "vocab.json", gpt2)
    put(folder, "merges.txt", merges)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50257, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    )
    save(model, folder, dict(bos_token_id=50256, eos_token_id=50256), generation=False)
    # Pythia: tokenizer.json and lists
    folder = f"{WORK}/pythia"
    put(folder, "tokenizer.json", neox)
    put(
        folder,
        "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "bos_token": END,
            "eos_token": END,
            "unk_token": END,
            "tokenizer_class": "GPTNeoXTokenizer",
            "pad_token": "<|padding|>",
            "added_tokens_decoder": {
                str(t["id"]): {k: v for k, v in t.items() if k != "id"}
                for t in json.loads(neox)["added_tokens"]
            }
            | {"50277": token("<|padding|>")},
        },
    )
    put(folder, "special_tokens_map.json", {"bos_token": END, "eos_token": END, "unk_token": END})
    save(
        transformers.GPTNeoXForCausalLM(
            transformers.GPTNeoXConfig(
                vocab_size=50304,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=64,
                rotary_pct=0.25,
            )
        ),
        folder,
        dict(bos_token_id=0, eos_token_id=0),
    )
    # Llama-3's form: bytes, a template, several ends
    folder = f"{WORK}/llama3"
    n = len(words)
    bos = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
    post = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            bos,
            {"Sequence": {"id": "A", "type_id": 0}},
            bos,
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {
            "<|begin_of_text|>": {
                "id": "<|begin_of_text|>",
                "ids": [n],
                "tokens": ["<|begin_of_text|>"],
            }
        },
    }
    split3 = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    put(
        folder,
        "tokenizer.json",
        byte_level_json(
            {t: i for i, t in enumerate(words)},
            [
                (n, "<|begin_of_text|>", True),
                (n + 1, "<|end_of_text|>", True),
                (n + 2, "<|eot_id|>", True),
            ],
            split3,
            post,
        ),
    )
    put(
        folder,
        "tokenizer_config.json",
        {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|end_of_text|>",
            "model_max_length": 131072,
            "clean_up_tokenization_spaces": True,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "added_tokens_decoder": {
                str(n + i): token(c)
                for i, c in enumerate(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
            },
        },
    )
    put(
        folder,
        "special_tokens_map.json",
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
    )
    put(folder, "chat_template.jinja", "{{ messages }}\n")

    def llama(size):
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=size,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=64,
            )
        )

    save(llama(n + 3), folder, dict(bos_token_id=n, eos_token_id=[n + 1, n + 2]))
    # Llama-2's form: pieces with a normalizer, which bpe-tokenize does not read, and the model file
    # itself
    folder = f"{WORK}/llama2"
    pieces = (
        ["<unk>", "<s>", "</s>"]
        + [f"<0x{b:02X}>" for b in range(256)]
        + [chr(0x2581)]
        + [chr(c) for c in range(33, 127)]
    )
    pieces += [chr(0x2581) + chr(c) for c in range(97, 123)]
    llama2 = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": c,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, c in enumerate(["<unk>", "<s>", "</s>"])
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": chr(0x2581)},
                {"type": "Replace", "pattern": {"String": " "}, "content": chr(0x2581)},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": chr(0x2581)}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {t: i for i, t in enumerate(pieces)},
            "merges": [f"{chr(0x2581)} {chr(c)}" for c in range(97, 123)],
        },
    }
    put(folder, "tokenizer.json", llama2)
    put(folder, "tokenizer.model", "not read here\n")
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
            "tokenizer_class": "LlamaTokenizer",
            "added_tokens_decoder": {str(i): token(c) for i, c in enumerate(pieces[:3])},
        },
    )
    save(llama(len(pieces)), folder, dict(bos_token_id=1, eos_token_id=2))
    # Qwen2's lists: tokens that tokenizer.json lacks
    folder = f"{WORK}/qwen2"
    split2 = split3.replace(r"\p{N}{1,3}", r"\p{N}")
    first = [(n, END, True), (n + 1, "<|im_start|>", True), (n + 2, "<|im_end|>", True)]
    put(folder, "vocab.json", {t: i for i, t in enumerate(words)})
    put(folder, "merges.txt", merges)
    put(
        folder,
        "tokenizer.json",
        byte_level_json(
            {t: i for i, t in enumerate(words)}, first, split2, normalizer={"type": "NFC"}
        ),
    )
    put(
        folder,
        "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": END,
            "unk_token": None,
            "tokenizer_class": "Qwen2Tokenizer",
            "model_max_length": 131072,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "added_tokens_decoder": {str(i): token(c, s) for i, c, s in first}
            | {str(n + 3): token("<tool_call>", False), str(n + 4): token("</tool_call>", False)},
        },
    )
    save(llama(n + 8), folder, dict(bos_token_id=n, eos_token_id=n + 2, pad_token_id=n))
    # a model alone
    save(llama(32), f"{WORK}/bare", dict(bos_token_id=1, eos_token_id=2, pad_token_id=0))
    save(
        llama(32),
        f"{WORK}/bare_no_generation",
        dict(bos_token_id=1, eos_token_id=[2, 3]),
        generation=False,
    )
    return ["opt", "gpt2", "pythia", "llama3", "llama2", "qwen2", "bare", "bare_no_generation"]


MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors")


def same_folder(name, source, export):
    files = sorted(f for f in os.listdir(source) if f not in MODEL_FILES)
    there = sorted(f for f in os.listdir(export) if f not in MODEL_FILES)
    check(
        f"{name}: the same tokenizer files",
        files == there,
        (files, there) if files != there else files,
    )
    different = [
        f
        for f in files
        if f in there and not filecmp.cmp(f"{source}/{f}", f"{export}/{f}", shallow=False)
    ]
    check(f"{name}: byte for byte", not different, different)
    for file in ("config.json", "generation_config.json"):
        if not os.path.exists(f"{source}/{file}"):
            continue
        a, b = (json.load(open(f"{d}/{file}")) for d in (source, export))
        ids = [{k: v for k, v in c.items() if k.endswith("_token_id")} for c in (a, b)]
        check(f"{name}: ids of {file}", ids[0] == ids[1], ids[1])
    if not os.path.exists(f"{source}/generation_config.json"):
        a, b = (
            transformers.AutoModelForCausalLM.from_pretrained(d).generation_config
            for d in (source, export)
        )
        check(
            f"{name}: made generation_config",
            (a.bos_token_id, a.eos_token_id, a.pad_token_id)
            == (b.bos_token_id, b.eos_token_id, b.pad_token_id)
            and b.max_length == 64,
            b.max_length,
        )


def same_model(name, source, export):
    a, b = (transformers.AutoModelForCausalLM.from_pretrained(d).eval() for d in (source, export))
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        check(f"{name}: the same logits", torch.equal(a(ids).logits, b(ids).logits))


def documents(prefix):
    """Ids of each document of a dataset."""
    head = open(prefix + ".idx", "rb").read()
    code, count, _ = struct.unpack_from("<BQQ", head, 17)
    size = {4: 4, 8: 2}[code]
    lengths = struct.unpack_from(f"<{count}i", head, 34)
    data = open(prefix + ".bin", "rb").read()
    out, at = [], 0
    for length in lengths:
        out.append(list(struct.unpack_from(f"<{length}{'i' if size == 4 else 'H'}", data, at)))
        at += length * size
    return out


folders = make_folders()
lines = [
    line
    for line in open(f"{DATA}/wikitext2-valid.txt", encoding="utf-8").read().split("\n")
    if line.strip()
][:300]
lines += [
    "the house",
    "a</s>b <pad> c<s>",
    f" x{END}y {END} z",
    "do<tool_call>it</tool_call> now",
    "<|im_start|>user\n",
    "cafe\u0301 \u65e5\u672c 1234",
    "a<|padding|>b  <|eot_id|> c",
    "  two",
]
put(WORK, "in.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in lines))
put(
    WORK,
    "ids.jsonl",
    "".join(
        json.dumps({"text": " ".join(str(3 + (i + j) % 20) for j in range(80))}) + "\n"
        for i in range(20)
    ),
)
run(
    "bpe-tokenize",
    "--input",
    f"{WORK}/ids.jsonl",
    "--output-prefix",
    f"{WORK}/ids",
    "--tokenizer-type",
    "NullTokenizer",
    "--vocab-size",
    32,
)
print("transformers", transformers.__version__)
for name in folders:
    source = f"{WORK}/{name}"
    run("hf-to-megatron", "--input", source, "--output", f"{WORK}/start/{name}")
    run("megatron-to-hf", "--input", f"{WORK}/start/{name}", "--output", f"{WORK}/back/{name}")
    same_folder(name, source, f"{WORK}/back/{name}")
    same_model(name, source, f"{WORK}/back/{name}")
    run(
        "trainer",
        "--load",
        f"{WORK}/start/{name}",
        "--use-checkpoint-args",
        "--finetune",
        "--save",
        f"{WORK}/tuned/{name}",
        "--data-path",
        f"{WORK}/ids_text_document",
        *"--split 100,0,0 --seq-length 32 --micro-batch-size 1 --lr 1e-4 --train-iters 1".split(),
        *"--eval-iters 0 --device cpu".split(),
    )
    run(
        "trainer",
        "--load",
        f"{WORK}/tuned/{name}",
        "--use-checkpoint-args",
        "--save",
        f"{WORK}/more/{name}",
        "--data-path",
        f"{WORK}/ids_text_document",
        *"--split 100,0,0 --seq-length 32 --micro-batch-size 1 --lr 1e-4 --train-iters 2".split(),
        *"--eval-iters 0 --device cpu --override-opt_param-scheduler".split(),
    )
    # the trained checkpoint stands alone
    os.rename(f"{WORK}/start/{name}", f"{WORK}/start/{name}.moved")
    run("megatron-to-hf", "--input", f"{WORK}/more/{name}", "--output", f"{WORK}/tuned-hf/{name}")
    same_folder(name + ", trained", source, f"{WORK}/tuned-hf/{name}")
    if name not in ("opt", "pythia"):  # Megatron-LM has no such models
        run(
            "hf-to-megatron",
            "--input",
            source,
            "--output",
            f"{WORK}/meg/{name}",
            "--to",
            "megatron",
        )
        run("megatron-to-hf", "--input", f"{WORK}/meg/{name}", "--output", f"{WORK}/meg-hf/{name}")
        same_folder(name + ", Megatron's", source, f"{WORK}/meg-hf/{name}")
    if name.startswith("bare"):
        continue
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    again = transformers.AutoTokenizer.from_pretrained(f"{WORK}/tuned-hf/{name}")
    check(
        f"{name}: the same ids",
        [tokenizer(t)["input_ids"] for t in lines] == [again(t)["input_ids"] for t in lines],
    )
    made = transformers.pipeline("text-generation", model=f"{WORK}/back/{name}", device="cpu")(
        "The ", **({} if name == "gpt2" else {"max_new_tokens": 8})
    )
    check(f"{name}: the pipeline runs", bool(made[0]["generated_text"]))
    if name == "llama2":
        continue
    said = run(
        "bpe-tokenize",
        "--input",
        f"{WORK}/in.jsonl",
        "--output-prefix",
        f"{WORK}/{name}-data",
        "--tokenizer-model",
        source,
        "--tokenizer-type",
        "HuggingFaceTokenizer",
        "--append-eod",
        "--force",
    )
    got = documents(f"{WORK}/{name}-data_text_document")
    want = [tokenizer(t)["input_ids"] + [tokenizer.eos_token_id] for t in lines]
    wrong = [t for t, a, b in zip(lines, got, want) if a != b]
    check(
        f"{name}: bpe-tokenize",
        not wrong and len(got) == len(want),
        f"{len(lines)} texts, {len(wrong)} wrong {wrong[:2]!r}",
    )
    eos = json.load(open(f"{WORK}/tuned-hf/{name}/config.json"))["eos_token_id"]
    check(
        f"{name}: documents end where the export stops",
        got[0][-1] in (eos if isinstance(eos, list) else [eos]),
        (got[0][-1], eos),
    )
sys.exit(failed > 0)
