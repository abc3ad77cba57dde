#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small SentencePiece models, and the files that Hugging Face, Mistral and Megatron make
of such models.

    python sentencepiece_models.py OUT_FOLDER TEXT_FILE...

Trains BPE models on the texts and writes NAME.model, and NAME.json for each tokenizer.json:
vocabularies and merges as convert_slow_tokenizer of transformers derives them from a model, in the
structures of Llama-2, TinyLlama and Mistral-7B (Prepend and Replace), of Llama without `legacy`
(Metaspace), of Gemma (Replace), and rarer ones. Also tekken.json and nemotron.json, made of a
byte-level vocabulary trained here. judge_sentencepiece.py and make_sentencepiece_goldens.py import
this file.
"""

import base64
import json
import os
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

MARK = "\u2581"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NEMOTRON = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

PLAIN = dict(
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    byte_fallback=True,
    split_digits=True,
    allow_whitespace_only_pieces=True,
    character_coverage=0.9995,
)
GEMMA_USER = [
    "<mask>",
    "<2mass>",
    "[@BOS@]",
    "<unused0>",
    "<unused1>",
    "\n",
    "\n\n",
    "\n\n\n",
    MARK * 2,
    MARK * 3,
    MARK * 4,
    "<table>",
    "</table>",
    "<b>",
    "</b>",
    "\t",
]
# What differs from sentencepiece's defaults, by name of the model.
MODELS = {
    "llama": PLAIN,
    "gemma": dict(
        PLAIN,
        add_dummy_prefix=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        bos_piece="<bos>",
        eos_piece="<eos>",
        user_defined_symbols=GEMMA_USER,
    ),
    "nfkc": dict(normalization_rule_name="nmt_nfkc", character_coverage=0.98),
    "nfkc_cf": dict(
        normalization_rule_name="nmt_nfkc_cf",
        byte_fallback=True,
        user_defined_symbols=["<sep>", "ABC", "\uff21", "a b"],
    ),
    "keeps_blanks": dict(
        normalization_rule_name="nfkc", remove_extra_whitespaces=False, byte_fallback=True
    ),
    "inner_blanks": dict(
        PLAIN,
        split_by_whitespace=False,
        split_by_unicode_script=False,
        split_by_number=False,
        split_digits=False,
    ),
    "no_prefix": dict(
        normalization_rule_name="nmt_nfkc",
        add_dummy_prefix=False,
        character_coverage=0.985,
        unk_surface="?",
    ),
}


def train_model(name, texts, out, vocab_size):
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(texts),
        model_prefix=os.path.join(out, name),
        model_type="bpe",
        vocab_size=vocab_size,
        num_threads=1,
        minloglevel=2,
        max_sentence_length=100000,
        input_sentence_size=20000,
        shuffle_input_sentence=False,
        **MODELS[name],
    )
    os.remove(os.path.join(out, name + ".vocab"))


def read_proto(path):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(open(path, "rb").read())
    return proto


def vocabulary_and_merges(proto):
    """As in transformers' converters: each way to split a piece into two pieces is a merge, ranked
    by the score."""
    vocab = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = []
    for piece in proto.pieces:
        cuts = [(piece.piece[:i], piece.piece[i:]) for i in range(1, len(piece.piece))]
        good = [cut for cut in cuts if cut[0] in vocab and cut[1] in vocab]
        merges += [
            (left, right, piece.score)
            for left, right in sorted(good, key=lambda c: (vocab[c[0]], vocab[c[1]]))
        ]
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return vocab, [[left, right] for left, right, _ in merges]


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def decoder(strips):
    steps = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "type": "Sequence",
        "decoders": steps + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * strips,
    }


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


LEGACY = {
    "type": "Sequence",
    "normalizers": [{"type": "Prepend", "prepend": MARK}, replace(" ", MARK)],
}
SPLIT_BLANKS = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
DIGITS = {"type": "Digits", "individual_digits": True}
# model, normalizer, pre_tokenizer, decoder, what else differs
JSONS = {
    "llama2": ("llama", LEGACY, None, decoder(True), {}),
    "llama_metaspace": ("llama", None, metaspace("first", False), decoder(True), {}),
    "gemma1": ("gemma", replace(" ", MARK), SPLIT_BLANKS, decoder(False), {}),
    "always_split": ("llama", None, metaspace("always", True), metaspace("always", True), {}),
    "never": ("llama", {"type": "NFKC"}, metaspace("never", False), metaspace("never", False), {}),
    "ignores_merges": ("llama", LEGACY, None, decoder(True), {"ignore_merges": True}),
    "unknown": ("nfkc", LEGACY, None, decoder(True), {"byte_fallback": False}),
    "unknown_apart": (
        "nfkc",
        LEGACY,
        None,
        decoder(True),
        {"byte_fallback": False, "fuse_unk": False},
    ),
    "inner": ("inner_blanks", LEGACY, None, decoder(True), {}),
    "digits": (
        "inner_blanks",
        None,
        {"type": "Sequence", "pretokenizers": [metaspace("always", False), DIGITS]},
        decoder(True),
        {},
    ),
}


def added(content, id, special, **flags):
    token = {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }
    return dict(token, **flags)


def tokenizer_json(name, folder):
    model, normalizer, pre_tokenizer, decodes, more = JSONS[name]
    proto = read_proto(os.path.join(folder, model + ".model"))
    vocab, merges = vocabulary_and_merges(proto)
    tokens = [
        added(p.piece, i, p.type != 4) for i, p in enumerate(proto.pieces) if p.type in (2, 3, 4)
    ]
    if name in ("llama_metaspace", "always_split", "inner"):  # chat models' additions
        tokens += [
            added("<|user|>", len(vocab), False, rstrip=True),
            added("wordy", len(vocab) + 1, False, normalized=True),
            added("two words", len(vocab) + 2, False, normalized=True, single_word=True),
            added(MARK + "qmark", len(vocab) + 3, True, lstrip=True),
        ]
    if name == "llama2":
        tokens += [
            added("in text", len(vocab), False, normalized=True),
            added(MARK * 2 + "x", len(vocab) + 1, False, normalized=True),
        ]
    bos = proto.trainer_spec.bos_piece or "<s>"
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": bos, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {bos: {"id": bos, "ids": [vocab[bos]], "tokens": [bos]}},
        },
        "decoder": decodes,
        "model": dict(
            {
                "type": "BPE",
                "dropout": None,
                "unk_token": "<unk>",
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": merges,
            },
            **more,
        ),
    }


def byte_ranks(texts, size):
    """A byte-level vocabulary whose first 256 tokens are the bytes, by rank."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    of_byte = dict(
        zip(
            sorted(set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))),
            map(chr, sorted(set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256)))),
        )
    )
    rest = [b for b in range(256) if b not in of_byte]
    of_byte.update({b: chr(256 + i) for i, b in enumerate(rest)})
    byte_of = {c: b for b, c in of_byte.items()}
    tokens = [
        bytes(byte_of[c] for c in text)
        for text, _ in sorted(tokenizer.get_vocab().items(), key=lambda t: t[1])
    ]
    merged = [token for token in tokens if len(token) > 1]
    return [bytes([b]) for b in range(256)] + merged


def token_list(ranks):
    return [
        {
            "rank": i,
            "token_bytes": base64.b64encode(token).decode(),
            "token_str": token.decode("utf-8", "ignore") or None,
        }
        for i, token in enumerate(ranks)
    ]


def tekken(ranks, version, special):
    tree = {
        "config": {
            "pattern": TEKKEN,
            "num_vocab_tokens": len(ranks),
            "default_vocab_size": len(ranks) + 90,
            "default_num_special_tokens": 100,
            "version": version,
        },
        "vocab": token_list(ranks),
    }
    if special:
        tree["special_tokens"] = [
            {"rank": i, "token_str": text, "is_control": True}
            for i, text in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"])
        ]
    return tree


def write_all(out, texts, size=6000):
    os.makedirs(out, exist_ok=True)
    for name in MODELS:
        train_model(name, texts, out, size)
    for name in JSONS:
        json.dump(
            tokenizer_json(name, out),
            open(os.path.join(out, name + ".json"), "w"),
            ensure_ascii=False,
            indent=0,
        )
    ranks = byte_ranks(texts, size)
    json.dump(tekken(ranks, "v3", False), open(os.path.join(out, "tekken-v3.json"), "w"))
    json.dump(tekken(ranks, "v11", True), open(os.path.join(out, "tekken-v11.json"), "w"))
    json.dump(token_list(ranks), open(os.path.join(out, "nemotron.json"), "w"))
    return len(ranks)


if __name__ == "__main__":
    write_all(sys.argv[1], sys.argv[2:])
