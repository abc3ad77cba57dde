"""The whole job in transformers: trained by trainer, exported by megatron-to-hf, loaded by
AutoModelForCausalLM and AutoTokenizer, for every family; and what transformers then computes, as
goldens with which tests/convert/whole_job_test.cc compares our own forward pass.

Run: python tests/reference/whole_job_golden.py BIN CORPUS.jsonl OUT [STEPS]
  BIN     folder of the programs
  CORPUS  loose JSON with the key "text"
  OUT     tests/golden/convert/whole_job, or any other folder (WHOLE_JOB=OUT whole_job_test then
          reads that one)
Checks here, one line each, exit 1 if one failed: every tensor is loaded; token ids of 50 texts
equal those of the vocabulary's own tokenizer; greedy text equals that of `generate` from the
checkpoint and from the folder.
Writes vocab.json, merges.txt, texts.json, and for each family its checkpoint, expected.json (ids,
greedy ids, checksums of the exported files) and logits.safetensors: for every token of every text 8
logits (columns (37 t + 11 i) mod V, i = 0..7 at token t of its text), the largest, and the
logarithm of the sum of all exponentials.
Made with torch 2.15.0, transformers 5.23.0, tokenizers as transformers wants it.
"""

# SPDX-License-Identifier: MIT
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zlib

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

os.environ["HF_HUB_OFFLINE"] = "1"
programs, corpus, out = (
    pathlib.Path(sys.argv[1]).absolute(),
    pathlib.Path(sys.argv[2]).absolute(),
    pathlib.Path(sys.argv[3]).absolute(),
)
steps = sys.argv[4] if len(sys.argv) > 4 else "150"
work = pathlib.Path(tempfile.mkdtemp())
failed = 0


def run(program, *words, **more):
    return subprocess.run([programs / program, *words], cwd=work, check=True, **more)


def check(name, good, what=""):
    global failed
    failed += not good
    print(("ok   " if good else "FAIL ") + name, what, flush=True)


FAMILIES = {
    "gpt2": [],
    "opt": ["--activation", "relu", "--position-offset", "2"],
    "gpt_neox": [
        *"--position-embedding-type rope --rotary-percent 0.5 --parallel-residual".split(),
        *"--hidden-dropout 0 --untie-embeddings-and-output-weights --no-bias-gelu-fusion".split(),
    ],
    "llama": [
        *"--position-embedding-type rope --normalization RMSNorm --swiglu".split(),
        *"--disable-bias-linear --untie-embeddings-and-output-weights --num-query-groups 2".split(),
        *"--rotary-base 500000".split(),
    ],
}
PROMPTS = ["The ", "In 19", "a", "== History ==\n", "It was the"]


def sample_texts():
    pieces = [json.loads(line)["text"] for line in open(corpus, encoding="utf-8")][:200]
    whole = "\n".join(pieces)
    texts = [whole[1000 * i : 1000 * i + 1 + i * 7 // 5] for i in range(44)]  # 1 to 61 characters
    return texts + [
        "caf\u00e9 \u65e5\u672c",
        "a  b\n\tc\r\n",
        "It's 2026 -- don't",
        " ",
        "\U0001f600",
        "<|endoftext|>The",
    ]


def columns(position, size):
    return [(37 * position + 11 * i) % size for i in range(8)]


run("bpe-train", "--input", corpus, "--vocab-size", "384", "--output", ".", "--quiet")
run(
    "bpe-tokenize",
    "--input",
    corpus,
    *"--output-prefix data --vocab-file vocab.json --merge-file merges.txt --append-eod".split(),
    *"--quiet".split(),
)
law = tokenizers.Tokenizer(
    tokenizers.models.BPE.from_file(str(work / "vocab.json"), str(work / "merges.txt"))
)
law.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
law.add_special_tokens(["<|endoftext|>"])
texts = sample_texts()
out.mkdir(parents=True, exist_ok=True)
for name in ("vocab.json", "merges.txt"):
    shutil.copy(work / name, out / name)
(out / "texts.json").write_text(
    json.dumps({"texts": texts, "prompts": PROMPTS}, ensure_ascii=False, indent=0) + "\n",
    encoding="utf-8",
)
print(
    "transformers",
    transformers.__version__,
    "torch",
    torch.__version__,
    "tokenizers",
    tokenizers.__version__,
)
for family, flags in FAMILIES.items():
    print("--", family)
    vocabulary = ["--vocab-file", "vocab.json", "--merge-file", "merges.txt"]
    run(
        *"trainer --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64".split(),
        *"--max-position-embeddings 64 --micro-batch-size 8 --lr 5e-3".split(),
        "--train-iters",
        steps,
        *"--data-path data_text_document --split 100,0,0 --eval-iters 0".split(),
        "--save",
        family,
        *"--no-save-optim --device cpu --make-vocab-size-divisible-by 64".split(),
        *"--init-method-std 0.06".split(),
        *vocabulary,
        *flags,
        stdout=subprocess.DEVNULL,
    )
    run("megatron-to-hf", "--input", family, "--output", family + "-hf", *vocabulary, "--quiet")
    folder = work / (family + "-hf")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    check(
        "every tensor is taken",
        not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")),
        type(model).__name__,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts]
    check(
        "token ids",
        ids == [law.encode(t).ids for t in texts],
        f"{len(texts)} texts of {min(map(len, ids))} to {max(map(len, ids))} tokens",
    )
    check(
        "token ids as called plainly",
        ids == [tokenizer(t)["input_ids"] for t in texts],
        type(tokenizer).__name__,
    )
    check("text comes back", all(tokenizer.decode(i) == t for i, t in zip(ids, texts)))
    rows = []
    with torch.no_grad():
        for text_ids in ids:
            logits = model(torch.tensor([text_ids])).logits[0]
            for t, row in enumerate(logits):
                rows.append(
                    [row[c].item() for c in columns(t, row.shape[0])]
                    + [row.max().item(), row.logsumexp(0).item()]
                )
    greedy = []
    for prompt in PROMPTS:
        start = torch.tensor([tokenizer(prompt)["input_ids"]])
        made = model.generate(
            start, attention_mask=torch.ones_like(start), max_new_tokens=30, do_sample=False
        )[0][start.shape[1] :].tolist()
        if tokenizer.eos_token_id in made:
            made = made[: made.index(tokenizer.eos_token_id)]
        greedy.append(made)
        for source in (family, family + "-hf"):
            text = run(
                "generate",
                "--load",
                source,
                "--prompt",
                prompt,
                *"--max-new-tokens 30 --greedy --no-prompt --device cpu".split(),
                stdout=subprocess.PIPE,
            ).stdout.decode(errors="replace")
            check(
                f"greedy text of {source}", text == tokenizer.decode(made) + "\n", repr(text[:50])
            )
    target = out / family
    shutil.rmtree(target, ignore_errors=True)
    (target / "checkpoint").mkdir(parents=True)
    step = f"iter_{int(steps):07d}"
    shutil.copytree(work / family / step, target / "checkpoint" / step)
    shutil.copy(work / family / "latest_checkpointed_iteration.txt", target / "checkpoint")
    save_file({"logits": torch.tensor(rows, dtype=torch.float32)}, target / "logits.safetensors")
    (target / "expected.json").write_text(
        json.dumps(
            {
                "transformers": transformers.__version__,
                "class": type(model).__name__,
                "ids": ids,
                "greedy": greedy,
                "files": {p.name: zlib.crc32(p.read_bytes()) for p in sorted(folder.iterdir())},
            }
        )
        + "\n"
    )
shutil.rmtree(work)
sys.exit(failed > 0)
