"""Goldens of libindexed: what megatron-core's own tokenizers call themselves in the descriptions
whose MD5 names index files.

Run under each release's Python (3.12 for 0.17 and later), with transformers, tiktoken and
sentencepiece beside it:

    python3 tests/reference/cache_names_golden.py tests/golden/indexed/tokenizers.json FOLDER

FOLDER has gpt2-tokenizer.json, gpt2-vocab.json and gpt2-merges.txt. The release's cases replace
those of the same release in the file. With --as-0.20, under 0.19: 0.20 is on no package index
(August 2026's main branch); it makes objects of the class MegatronTokenizerText itself, where 0.19
makes DefaultTokenizerText of it, and passes use_gigatoken last to Hugging Face's tokenizers. That
class is in 0.19 too, and is what describes itself here.

Importing this file gives `build`, which judge_cache_names.py uses.
"""

import argparse
import base64
import importlib
import json
import os
import shutil
import sys
import tempfile
import types
import warnings

warnings.filterwarnings("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
import transformers  # noqa: E402
import megatron.core  # noqa: E402
from megatron.core.tokenizers import MegatronTokenizer  # noqa: E402
from megatron.core.tokenizers.text.text_tokenizer import MegatronTokenizerText  # noqa: E402

try:
    BUILDER = importlib.import_module("megatron.core.tokenizers.utils.build_tokenizer")
except ImportError:  # 0.16
    BUILDER = importlib.import_module("megatron.core.tokenizers.text.utils.build_tokenizer")

RELEASE = ".".join(megatron.core.__version__.split(".")[:2])

# What the scripts' parsers leave in these names; 0.16's two flags of Hugging Face's are off by
# default.
DEFAULTS = dict(
    vocab_file=None,
    merge_file=None,
    tokenizer_model=None,
    vocab_size=None,
    tiktoken_pattern=None,
    tiktoken_num_special_tokens=1000,
    special_tokens=None,
    tokenizer_special_tokens=None,
    trust_remote_code=False,
    tokenizer_hf_use_fast=False,
    tokenizer_hf_include_special_tokens=False,
    tokenizer_hf_no_use_fast=False,
    tokenizer_hf_no_include_special_tokens=False,
    tokenizer_sentencepiece_legacy=False,
    tokenizer_sentencepiece_ignore_extra_whitespaces=True,
    chat_template=None,
    metadata_path=None,
    tokenizer_metadata=None,
    null_tokenizer_eod_id=None,
    null_tokenizer_pad_id=-1,
    pad_vocab_size=True,
    rank=1,
    make_vocab_size_divisible_by=128,
    tensor_model_parallel_size=1,
    padded_vocab_size=None,
)

CASES = [
    {"tokenizer_type": "NullTokenizer", "vocab_size": 1000},
    {"tokenizer_type": "NullTokenizer", "vocab_size": 50257, "null_tokenizer_eod_id": 0},
    {
        "tokenizer_type": "NullTokenizer",
        "vocab_size": 50257,
        "null_tokenizer_eod_id": 7,
        "null_tokenizer_pad_id": 3,
    },
    {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "gpt2-vocab.json",
        "merge_file": "gpt2-merges.txt",
    },
    {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "gpt2-vocab.json",
        "merge_file": "gpt2-merges.txt",
        "use_gigatoken": "true",
    },
    {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "gpt2-vocab.json",
        "merge_file": "gpt2-merges.txt",
        "use_gigatoken": "false",
    },
    {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "gpt2-vocab.json",
        "merge_file": "gpt2-merges.txt",
        "tokenizer_hf_use_fast": True,
        "tokenizer_hf_include_special_tokens": True,
    },
    {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "gpt2-vocab.json",
        "merge_file": "gpt2-merges.txt",
        "tokenizer_hf_no_include_special_tokens": True,
    },
    {"tokenizer_type": "BertWordPieceCase", "vocab_file": "gpt2-vocab.json"},
    {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "hf folder"},
    {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": "./hf folder/",
        "trust_remote_code": True,
    },
    {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": "hf folder",
        "use_gigatoken": "absent",
    },
    {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": "hf folder",
        "use_gigatoken": "true",
    },
    {"tokenizer_type": "SentencePieceTokenizer", "tokenizer_model": "tiny.model"},
    {
        "tokenizer_type": "Llama2Tokenizer",
        "tokenizer_model": "tiny.model",
        "tokenizer_sentencepiece_legacy": True,
    },
    {
        "tokenizer_type": "GPTSentencePieceTokenizer",
        "tokenizer_model": "tiny.model",
        "tokenizer_sentencepiece_ignore_extra_whitespaces": False,
    },
    {
        "tokenizer_type": "TikTokenizer",
        "tokenizer_model": "bytes.json",
        "vocab_size": 300,
        "tiktoken_num_special_tokens": 20,
    },
    {
        "tokenizer_type": "TikTokenizer",
        "tokenizer_model": "bytes.json",
        "tiktoken_pattern": "v1",
        "vocab_size": 290,
        "tiktoken_num_special_tokens": 30,
    },
]

# Names that a release's parser does not know: such a line does not start there.
UNKNOWN = {
    "0.16": {
        "null_tokenizer_eod_id",
        "null_tokenizer_pad_id",
        "tokenizer_hf_no_include_special_tokens",
        "tokenizer_sentencepiece_ignore_extra_whitespaces",
    },
    "0.17": {
        "null_tokenizer_eod_id",
        "null_tokenizer_pad_id",
        "tokenizer_hf_use_fast",
        "tokenizer_sentencepiece_ignore_extra_whitespaces",
    },
    "later": {"tokenizer_hf_use_fast"},
}


def known(case, release):
    return not UNKNOWN.get(release, UNKNOWN["later"]) & set(case) and (
        release == "0.20"
        or case.get("use_gigatoken", "absent") == "absent"
        and "use_gigatoken" not in case
    )


def make_files(source, folder):
    """The tokenizers that CASES name, in `folder`; nothing is asked of a hub."""
    for name in ("gpt2-vocab.json", "gpt2-merges.txt"):
        shutil.copy(os.path.join(source, name), folder)
    os.makedirs(os.path.join(folder, "hf folder"), exist_ok=True)
    shutil.copy(
        os.path.join(source, "gpt2-tokenizer.json"),
        os.path.join(folder, "hf folder", "tokenizer.json"),
    )
    with open(os.path.join(folder, "hf folder", "tokenizer_config.json"), "w") as f:
        json.dump(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|endoftext|>",
                "pad_token": "<|endoftext|>",
            },
            f,
        )
    with open(os.path.join(folder, "bytes.json"), "w") as f:
        ranks = [
            {
                "rank": i,
                "token_bytes": base64.b64encode(bytes([i] if i < 256 else [i - 256, 0])).decode(),
                "token_str": str(i),
            }
            for i in range(300)
        ]
        json.dump(ranks, f)
    import sentencepiece

    with open(os.path.join(folder, "text"), "w") as f:
        f.write("the quick brown fox jumps over the lazy dog\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=os.path.join(folder, "text"),
        vocab_size=30,
        minloglevel=2,
        model_prefix=os.path.join(folder, "tiny"),
    )


def offline():
    """Names of the hub (gpt2, bert-large-cased) mean the folder at hand."""
    real = transformers.AutoTokenizer.from_pretrained

    def local(*args, **kwargs):
        name = kwargs.pop("pretrained_model_name_or_path", None) or args[0]
        kwargs = {k: v for k, v in kwargs.items() if k in ("use_fast", "trust_remote_code")}
        return real(name if os.path.isdir(name) else "hf folder", **kwargs)

    transformers.AutoTokenizer.from_pretrained = local


def build(case, release):
    """The tokenizer that the release's script makes of these flags, by its own code, in the working
    folder."""
    flags = {k: v for k, v in case.items() if k != "use_gigatoken"}
    args = types.SimpleNamespace(**{**DEFAULTS, **flags})
    if release != "0.20":
        return BUILDER.build_tokenizer(args)
    real = MegatronTokenizer.from_pretrained

    def of_the_text_class(tokenizer_path=None, metadata_path=None, **kwargs):
        tokenizer = MegatronTokenizerText(tokenizer_path, dict(metadata_path), **kwargs)
        if (
            metadata_path["library"] in ("huggingface", "megatron")
            and case.get("use_gigatoken") != "absent"
        ):
            tokenizer.additional_args["use_gigatoken"] = case.get("use_gigatoken") == "true"
        return tokenizer

    MegatronTokenizer.from_pretrained = staticmethod(of_the_text_class)
    try:
        return BUILDER.build_tokenizer(args)
    finally:
        MegatronTokenizer.from_pretrained = real


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("golden")
    parser.add_argument("source")
    parser.add_argument("--as-0.20", dest="newest", action="store_true")
    options = parser.parse_args()
    release = "0.20" if options.newest else RELEASE
    golden, source = os.path.abspath(options.golden), os.path.abspath(options.source)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        make_files(source, folder)
        os.chdir(folder)
        offline()
        for case in CASES:
            if not known(case, release):
                records.append({"flags": case, "text": None})
                continue
            identifiers = build(case, release).unique_identifiers
            records.append({"flags": case, "text": json.dumps(identifiers, indent=4)})
        os.chdir("/")
    whole = json.load(open(golden)) if os.path.exists(golden) else {}
    versions = {
        "megatron-core": megatron.core.__version__,
        "transformers": transformers.__version__,
    }
    whole[release] = {"versions": versions, "cases": records}
    with open(golden, "w") as f:
        json.dump({k: whole[k] for k in sorted(whole)}, f, indent=1)
        f.write("\n")
    print(release, sum(r["text"] is not None for r in records), "described,", len(records), "cases")


if __name__ == "__main__":
    sys.exit(main())
