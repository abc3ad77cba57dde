"""A folder that megatron-to-hf wrote, loaded by transformers: logits, greedy text and token ids.

Run: python tests/reference/check_hf_folder.py FOLDER VOCAB MERGES [TEXTS] [EXPECTED.json]
  VOCAB, MERGES the files that the model was trained with, loaded on their own
  TEXTS         a text file, of which pieces are tokenized both ways (default: a few built in)
  EXPECTED      expected.json of convert_golden.py: logits must equal its logits
Prints one line per check and exits 1 if one failed. Used with transformers 5.23.0 and 4.46.3.
"""

# SPDX-License-Identifier: MIT
import json
import sys

import tokenizers
import torch
import transformers

folder, vocab, merges = sys.argv[1:4]
failed = 0


def check(name, good, what=""):
    global failed
    failed += not good
    print(("ok   " if good else "FAIL ") + name, what)


print(
    "transformers",
    transformers.__version__,
    "torch",
    torch.__version__,
    "tokenizers",
    tokenizers.__version__,
)
model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
model = model.eval()
check(
    "every tensor is taken",
    not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"],
    info,
)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
law = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocab, merges))
law.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
texts = [
    "the cat",
    " in the end",
    "caf\u00e9 \u65e5\u672c \U0001f600",
    "a  b\n\tc\r\n",
    "It's 2026 -- don't",
    "",
]
if len(sys.argv) > 4:
    text = open(sys.argv[4], encoding="utf-8").read()
    texts += [text[i : i + 997] for i in range(0, min(len(text), 1_000_000), 997)]
wrong = [t for t in texts if tokenizer(t)["input_ids"] != law.encode(t).ids]
check("token ids", not wrong, f"{len(texts)} texts, {len(wrong)} wrong {wrong[:1]!r}")
end = tokenizer.eos_token_id
check(
    "end of text",
    end == model.config.eos_token_id and tokenizer("a<|endoftext|>")["input_ids"][-1] == end,
    end,
)
check(
    "vocabulary fits",
    len(tokenizer) <= model.config.vocab_size == model.get_input_embeddings().weight.shape[0],
    len(tokenizer),
)
if len(sys.argv) > 5:
    expected = json.load(open(sys.argv[5]))
    with torch.no_grad():
        logits = model.float()(torch.tensor([expected["tokens"]])).logits[0][:, :8]
    worst = (logits - torch.tensor(expected["logits"])).abs().max().item()
    check("logits", worst < 2e-6, worst)
length = min(8, model.config.max_position_embeddings - 1)
ids = tokenizer("the cat", return_tensors="pt")["input_ids"][:, :length]
made = model.generate(
    ids, max_length=model.config.max_position_embeddings, do_sample=False, pad_token_id=end
)
check("generate", made.shape[1] > ids.shape[1], tokenizer.decode(made[0])[:60])
try:  # by default, transformers 5 adds 256 tokens where no max_length says otherwise
    text = transformers.pipeline("text-generation", model=folder, device="cpu")("The ")[0][
        "generated_text"
    ]
    check(
        "the pipeline stays inside the positions",
        len(tokenizer(text)["input_ids"]) <= model.config.max_position_embeddings,
        text[:60],
    )
except IndexError as error:
    check("the pipeline stays inside the positions", False, error)
sys.exit(failed > 0)
