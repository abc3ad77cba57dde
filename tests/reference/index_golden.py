"""Goldens of libindexed: what the real megatron-core and numpy write for random configurations.

Run:  python3 tests/reference/index_golden.py tests/golden/indexed
Needs numpy, torch and megatron-core (with its compiled helpers). The versions are recorded in each
golden file. Each case names datasets (made by the same small generator in the tests), the
configuration, and the MD5 of every file that megatron-core left in its cache folder; or that it
raised, or did not end.
"""

import hashlib
import json
import os
import random
import shutil
import resource
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import numpy  # noqa: E402
import megatron.core  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import (  # noqa: E402
    BlendedMegatronDatasetBuilder,
)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.utils import get_blend_from_list, normalize  # noqa: E402
from megatron.core.tokenizers import MegatronTokenizer  # noqa: E402

VERSIONS = {"megatron-core": megatron.core.__version__, "numpy": numpy.__version__}


def md5_file(path):
    with open(path, "rb") as f:
        return hashlib.md5(f.read()).hexdigest()


class Numbers:
    """The 64-bit generator that the C++ tests use too."""

    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.x >> 33) % n


def write_dataset(prefix, recipe):
    """Documents of 0 to 3 sequences of 0 to max_length tokens; token j of a sequence is (length +
    j) % 1000."""
    seed, documents, max_length, code = recipe
    numbers = Numbers(seed)
    builder = IndexedDatasetBuilder(
        prefix + ".bin", dtype=numpy.uint16 if code == 8 else numpy.int32
    )
    for _ in range(documents):
        lengths = [numbers.below(max_length + 1) for _ in range(numbers.below(4))]
        tokens = [(n + j) % 1000 for n in lengths for j in range(n)]
        builder.add_document(numpy.array(tokens, dtype=numpy.int64), lengths)
    builder.finalize(prefix + ".idx")


def cpu_seconds():
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1


def run_case(case):
    """run_here in a process of its own, because some configurations loop for ever inside compiled
    code."""
    with tempfile.NamedTemporaryFile("r") as answer:
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds() + 4,) * 2)
            files = run_here(case)
            with open(answer.name, "w") as f:
                json.dump(files, f)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        if status != 0:
            print("    status", status)
            return None
        return json.load(answer)


def run_here(case):
    """Builds with the real classes in a scratch folder; returns {file: md5} or None."""
    here = os.getcwd()
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    try:
        for prefix, recipe in case["datasets"].items():
            os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
            write_dataset(prefix, recipe)
        tokenizer = MegatronTokenizer.from_pretrained(
            metadata_path={"library": "null-text"}, **case["null_tokenizer"]
        )
        paths = {"blend": get_blend_from_list(case["data_path"]), "split": case["split"]}
        if case["data_path"] is None:
            paths = {
                "blend_per_split": [get_blend_from_list(words) for words in case["split_data_path"]]
            }
        try:
            config = GPTDatasetConfig(
                random_seed=case["seed"],
                sequence_length=case["seq_length"],
                tokenizer=tokenizer,
                path_to_cache=case["cache_path"],
                mid_level_dataset_surplus=case["surplus"],
                reset_position_ids=False,
                reset_attention_mask=False,
                eod_mask_loss=False,
                drop_last_partial_validation_sequence=case["drop_last"],
                add_extra_token_to_sequence=case["extra_token"],
                **paths,
            )
            BlendedMegatronDatasetBuilder(
                GPTDataset, case["num_samples"], lambda: True, config
            ).build()
        except Exception as error:
            print("   ", repr(error)[:150])
            return None
        files = {}
        for root, _, names in os.walk("."):
            for name in names:
                path = os.path.relpath(os.path.join(root, name))
                files[path] = md5_file(path)
        return files
    finally:
        os.chdir(here)
        shutil.rmtree(folder)


def random_case(r):
    count = r.choice([1, 1, 1, 2, 2, 3, 4, 9, 13])
    datasets = {}
    for i in range(count):
        name = r.choice(["d%d", "sub/d%d", "ü%d"]) % i
        datasets[name] = [
            r.randrange(2**40),
            r.choice([30, 60, 120, 400]),
            r.choice([0, 3, 20, 100]),
            r.choice([4, 8]),
        ]
        if r.random() < 0.97:
            datasets[name][2] = max(3, datasets[name][2])
        else:
            datasets[name][1] = r.choice([1, 3, 8])
    prefixes = list(datasets)
    kind = r.choice(["plain", "weights", "weights", "per split"])

    def words(names, weighted):
        if not weighted:
            return list(names)
        make = r.choice(
            [
                lambda: str(r.randint(1, 50)),
                lambda: repr(r.random() + 0.01),
                lambda: "%.2g" % (r.random() + 0.1),
            ]
        )
        return [w for n in names for w in (make(), n)]

    case = {"datasets": datasets, "data_path": None, "split_data_path": None, "split": None}
    if kind == "per split":
        case["split_data_path"] = [
            words(r.sample(prefixes, r.randint(1, count)), r.random() < 0.5)
            if r.random() < 0.8
            else None
            for _ in range(3)
        ]
        if not any(case["split_data_path"]):
            case["split_data_path"][0] = words(prefixes, False)
    else:
        case["data_path"] = words(prefixes, kind == "weights")
        case["split"] = r.choice(
            [
                "969, 30, 1",
                "1,1,1",
                "98,1,1",
                "70,20,10",
                "99,1,0",
                "0,1,1",
                "8,0,2",
                "100",
                "1,0,0",
                "0.5,0.25,.25",
                "5/3/2",
                "33,33,33",
            ]
        )
    sizes = [r.choice([0, 1, 7, 50, 333, 2000]), r.choice([0, 1, 10, 60]), r.choice([0, 1, 10])]
    if kind == "plain" and r.random() < 0.3:
        sizes = [None if r.random() < 0.6 else n for n in sizes]
    case["num_samples"] = sizes
    case["seed"] = r.choice([0, 1, 1234, 42, 2**32 - 1, r.randrange(2**32)])
    case["seq_length"] = r.choice([2, 3, 4, 8, 16, 33])
    case["surplus"] = r.choice([0.005, 0.005, 0.0, 0.5, 1.0])
    case["drop_last"] = r.random() < 0.8
    case["extra_token"] = r.random() < 0.8
    case["cache_path"] = r.choice(["cache", "a/b", None])
    case["null_tokenizer"] = r.choice(
        [
            {"vocab_size": 1000},
            {"vocab_size": 50257, "pad_id": -1},
            {"vocab_size": 1000, "eod_id": 7, "pad_id": 3},
        ]
    )
    return case


def index_cases(folder):
    r = random.Random(20261121)
    cases = []
    while len(cases) < 160:
        case = random_case(r)
        case["files"] = run_case(case)
        if case["files"] is None and sum(c["files"] is None for c in cases) >= 30:
            continue
        cases.append(case)
        print(len(cases), "error" if case["files"] is None else len(case["files"]), flush=True)
    with open(os.path.join(folder, "training_data.json"), "w") as f:
        json.dump({"versions": VERSIONS, "cases": cases}, f, indent=0)
        f.write("\n")


def numpy_cases(folder):
    r = random.Random(7)
    texts, sums = [], []
    for n in [1, 2, 3, 5, 8, 9, 12, 20, 60, 200]:
        for _ in range(12):
            make = r.choice(
                [
                    r.random,
                    lambda: r.randint(1, 9),
                    lambda: 10 ** r.uniform(-6, 0),
                    lambda: r.choice([0.5, 0.25]),
                ]
            )
            weights = numpy.array([make() + 1e-9 for _ in range(n)], dtype=numpy.float64)
            weights /= numpy.sum(weights)
            texts.append({"values": weights.tolist(), "text": str(weights)})
    for n in list(range(1, 20)) + [64, 127, 128, 129, 136, 137, 200, 255, 256, 257, 1000, 5000]:
        values = [
            r.choice([r.random(), r.randint(1, 99), 10 ** r.uniform(-9, 9)]) for _ in range(n)
        ]
        sums.append(
            {
                "values": values,
                "sum": float(numpy.sum(numpy.array(values, dtype=numpy.float64))),
                "twice": hashlib.md5(json.dumps(normalize(normalize(values))).encode()).hexdigest(),
            }
        )
    shuffles = []
    for n in [1, 2, 3, 17, 100, 625, 4097, 70000, 300001]:
        seed = r.randrange(2**32)
        state = numpy.random.RandomState(seed)
        parts = []
        for size, kind in ((n, numpy.int32), (n // 2, numpy.uint32), (n // 3 + 1, numpy.int64)):
            a = numpy.arange(size, dtype=kind)
            state.shuffle(a)
            parts.append(hashlib.md5(a.tobytes()).hexdigest())
        shuffles.append({"seed": seed, "n": n, "md5": parts})
    with open(os.path.join(folder, "numpy.json"), "w") as f:
        json.dump(
            {"versions": VERSIONS, "texts": texts, "sums": sums, "shuffles": shuffles}, f, indent=0
        )
        f.write("\n")


def grammar_cases(folder):
    cases = []
    for text in [
        "a",
        "1 a",
        "0.3 a 0.7 b",
        "a b",
        "a b c",
        "0.3 a b c",
        "a b 0.3 c",
        "1 2",
        "1e-2 a +3 b",
        "1_0 a .5 b",
        "1 a b 2",
        "1 a b c d e",
        "_1 a",
        "1__0 a 2 b",
        "0x1 a",
        "infinity",
        "a 1",
        "1 a 2",
        "5. a .5 b",
        "1e400x a",
    ]:
        words = text.split(" ")
        try:
            prefixes, weights = get_blend_from_list(words)
        except Exception:
            prefixes = weights = None
        cases.append({"words": words, "prefixes": prefixes, "weights": weights})
    with open(os.path.join(folder, "blend_words.json"), "w") as f:
        json.dump({"versions": VERSIONS, "cases": cases}, f, indent=0)
        f.write("\n")


if __name__ == "__main__":
    target = os.path.abspath(sys.argv[1])
    numpy_cases(target)
    grammar_cases(target)
    index_cases(target)
