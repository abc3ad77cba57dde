"""Exports a checkpoint, loads it in transformers, and compares it with our own decoder on the
checkpoint itself, end to end.

Run: python tests/reference/judge_export.py BIN CHECKPOINT VOCAB MERGES CORPUS.jsonl
  BIN         folder of the programs
  CHECKPOINT  anything that megatron-to-hf reads: the trainer's, Megatron-LM's, Megatron-DeepSpeed's
  CORPUS      loose JSON with the key "text", of which 50 texts of 1 token to all positions are cut
Checks, one line each, exit 1 if one failed: transformers loads every tensor; AutoTokenizer gives
bpe-tokenize's ids; fp32 logits at every token of every text within 1e-4 of our decoder's, from the
checkpoint and from the folder; greedy text of `generate` equals transformers' on ten prompts.
Used with torch 2.15.0, transformers 5.23.0.
"""

# SPDX-License-Identifier: MIT
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

os.environ["HF_HUB_OFFLINE"] = "1"
programs, checkpoint, vocab, merges, corpus = (
    str(pathlib.Path(word).absolute()) for word in sys.argv[1:6]
)
TEXTS, PROMPTS, NEW_TOKENS = 50, 10, 30
failed = 0


def run(program, *words, **more):
    return subprocess.run([f"{programs}/{program}", *words], check=True, **more)


def check(name, good, what=""):
    global failed
    failed += not good
    print(("ok   " if good else "FAIL ") + name, what, flush=True)


def cut_texts(tokenizer, positions):
    """TEXTS pieces of the corpus, of 1 to `positions` tokens in increasing order."""
    whole = "\n".join(json.loads(line)["text"] for line in open(corpus, encoding="utf-8"))
    texts, at = [], 0
    for size in np.geomspace(1, positions, TEXTS).round().astype(int).tolist():
        at = (at + 7919) % max(1, len(whole) - 12 * positions)
        text = whole[at : at + 12 * size]
        while len(tokenizer(text)["input_ids"]) > size:
            text = text[:-1]
        texts.append(text or whole[at])
    return texts


def our_ids(texts, work):
    """Token ids by bpe-tokenize, one list per text."""
    with open(f"{work}/texts.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    run(
        "bpe-tokenize",
        "--input",
        f"{work}/texts.jsonl",
        "--output-prefix",
        f"{work}/texts",
        "--vocab-file",
        vocab,
        "--merge-file",
        merges,
        "--quiet",
    )
    prefix = f"{work}/texts_text_document"
    header = np.fromfile(prefix + ".idx", np.uint8, 34)
    lengths = np.fromfile(
        prefix + ".idx", "<i4", int(np.frombuffer(header[18:26].tobytes(), "<u8")[0]), offset=34
    )
    tokens = np.fromfile(prefix + ".bin", {8: "<u2", 4: "<i4"}[int(header[17])])
    return [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def decoder_folder(work):
    """The checkpoint in a form that our decoder reads: itself if it is the trainer's, otherwise a
    trainer checkpoint made from it."""
    if list(pathlib.Path(checkpoint).glob("**/meta.json")):
        return checkpoint
    run(
        "megatron-to-hf",
        "--to",
        "trainer",
        "--input",
        checkpoint,
        "--output",
        f"{work}/start",
        "--vocab-file",
        vocab,
        "--merge-file",
        merges,
        "--quiet",
    )
    return f"{work}/start"


def judge(work):
    folder = f"{work}/hf"
    run(
        "megatron-to-hf",
        "--input",
        checkpoint,
        "--output",
        folder,
        "--dtype",
        "fp32",
        "--vocab-file",
        vocab,
        "--merge-file",
        merges,
        "--quiet",
    )
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    model.eval()
    check(
        "every tensor is taken",
        not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")),
        type(model).__name__,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    positions = model.config.max_position_embeddings
    texts = cut_texts(tokenizer, positions)
    ids = our_ids(texts, work)
    check(
        "token ids",
        ids == [tokenizer(t)["input_ids"] for t in texts],
        f"{len(texts)} texts of {min(map(len, ids))} to {max(map(len, ids))} tokens",
    )
    with torch.no_grad():
        theirs = np.concatenate([model(torch.tensor([text])).logits[0].numpy() for text in ids])
    lines = "".join(" ".join(map(str, text)) + "\n" for text in ids).encode()
    sources = {"checkpoint": decoder_folder(work), "folder": folder}
    for name, source in sources.items():
        raw = run("decoder-logits", source, input=lines, stdout=subprocess.PIPE).stdout
        ours = np.frombuffer(raw, "<f4").reshape(len(theirs), -1)
        worst = float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else float("inf")
        check(
            f"logits of the {name}",
            worst < 1e-4,
            f"largest difference {worst:.2e} of {ours.size:,} logits up to "
            f"{float(np.abs(theirs).max()):.1f}",
        )
    equal = 0
    for prompt in [t for t in texts if t.strip()][:PROMPTS]:
        count = min(NEW_TOKENS, positions - len(tokenizer(prompt)["input_ids"]))
        start = torch.tensor([tokenizer(prompt)["input_ids"]])
        made = model.generate(
            start, attention_mask=torch.ones_like(start), max_new_tokens=count, do_sample=False
        )[0][start.shape[1] :].tolist()
        if tokenizer.eos_token_id in made:
            made = made[: made.index(tokenizer.eos_token_id)]
        wanted = tokenizer.decode(made) + "\n"
        got = [
            run(
                "generate",
                "--load",
                source,
                "--vocab-file",
                vocab,
                "--merge-file",
                merges,
                "--prompt",
                prompt,
                "--max-new-tokens",
                str(count),
                "--greedy",
                "--no-prompt",
                "--device",
                "cpu",
                stdout=subprocess.PIPE,
            ).stdout.decode(errors="replace")
            for source in sources.values()
        ]
        equal += got == [wanted, wanted]
    check(
        "greedy text", equal == PROMPTS, f"{equal} of {PROMPTS} prompts, up to {NEW_TOKENS} tokens"
    )


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
print("transformers", transformers.__version__, "torch", torch.__version__)
with tempfile.TemporaryDirectory() as folder_of_work:
    judge(folder_of_work)
sys.exit(failed > 0)
