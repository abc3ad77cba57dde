"""Checks that megatron-core's own classes, of any release, use shuffle-index's files without
building any.

    python3 tests/reference/judge_cache_names.py BUILD FOLDER [--rounds N] [--seed N] [--as-0.20]

under each release's Python; BUILD has bin/shuffle-index, FOLDER the files that
cache_names_golden.py needs. Each round makes datasets, runs shuffle-index on a random configuration
(one dataset, a blend with or without weights, paths for each split; a tokenizer of
cache_names_golden.py), then lets the release's dataset builder make the same datasets, while every
function that would build or save an index raises. The folder's files must be the same before and
after, and samples are read.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cache_names_golden as tokenizers  # noqa: E402
import numpy  # noqa: E402
from megatron.core.datasets import gpt_dataset, helpers  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import (  # noqa: E402
    BlendedMegatronDatasetBuilder,
)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.utils import get_blend_from_list  # noqa: E402


def write_dataset(prefix, r):
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    for _ in range(
        r.randrange(1200, 1500)
    ):  # a split without tokens keeps Megatron counting for ever
        length = r.randrange(1, 20)
        builder.add_document(
            numpy.array([r.randrange(250) for _ in range(length)], dtype=numpy.int64), [length]
        )
    builder.finalize(prefix + ".idx")


def command_line(flags):
    """The case's flags as a user gives them to shuffle-index."""
    words = []
    for name, value in flags.items():
        dashes = "--" + name.replace("_", "-")
        if value is False:
            words.append("--no" + dashes[1:])
        else:
            words += [dashes] if value is True else [dashes, str(value)]
    return words


def files_of(folder):
    return {
        os.path.join(root, name): os.stat(os.path.join(root, name)).st_mtime_ns
        for root, _, names in os.walk(folder)
        for name in names
    }


def forbid(where, name):
    def refuse(*_, **__):
        raise AssertionError(f"{name} was called: an index was built")

    setattr(where, name, refuse)


def random_run(r, prefixes):
    """Words for shuffle-index, and the same for GPTDatasetConfig."""

    def words(weighted):
        names = r.sample(prefixes, r.randint(1, len(prefixes)))
        return [w for n in names for w in (("%.3g" % (r.random() + 0.1), n) if weighted else (n,))]

    sizes = [r.randint(5, 300), r.choice([0, 1, 20]), r.choice([0, 5])]
    kind = r.choice(["one", "weights", "lengths", "per split"])
    line, config = [], {}
    if kind == "per split":
        paths = [words(r.random() < 0.5), words(False), r.choice([None, words(True)])]
        for name, path in zip(("train", "valid", "test"), paths):
            line += [f"--{name}-data-path", *path] if path else []
        config["blend_per_split"] = [get_blend_from_list(path) for path in paths]
    else:
        path = [prefixes[0]] if kind == "one" else words(kind == "weights")
        split = r.choice(["969, 30, 1", "8,1,1", "90,5,5", "100,0,0"])
        line += ["--data-path", *path, "--split", split]
        config.update(blend=get_blend_from_list(path), split=split)
        if split == "100,0,0":
            sizes[1:] = [0, 0]
    cache = r.choice(["cache", "cache/deep", None])
    config.update(
        random_seed=r.randrange(10000), sequence_length=r.choice([4, 8, 32]), path_to_cache=cache
    )
    line += [
        "--samples",
        ",".join(map(str, sizes)),
        "--seed",
        str(config["random_seed"]),
        "--seq-length",
        str(config["sequence_length"]),
    ] + (["--data-cache-path", cache] if cache else [])
    return line, config, sizes


def read_all(config, sizes):
    """The release's datasets; each must be found, and its samples readable."""
    splits = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()
    read = 0
    for dataset in splits:
        if dataset is not None and len(dataset) > 0:
            for i in {0, len(dataset) // 2, len(dataset) - 1}:
                assert len(dataset[i]["tokens"]) == config.sequence_length
                read += 1
    return read


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("source")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--as-0.20", dest="newest", action="store_true")
    options = parser.parse_args()
    program = os.path.abspath(os.path.join(options.build, "bin", "shuffle-index"))
    source = os.path.abspath(options.source)
    release = "0.20" if options.newest else tokenizers.RELEASE
    # The trained SentencePiece model has no token that the datasets would take for the end of a
    # document.
    cases = [
        case
        for case in tokenizers.CASES
        if tokenizers.known(case, release) and case.get("tokenizer_model") != "tiny.model"
    ]
    tokenizers.offline()
    r = random.Random(options.seed)
    build_blend = (helpers.build_blending_indices, helpers.build_exhaustive_blending_indices)
    for name in ("_build_document_index", "_build_shuffle_index"):
        forbid(gpt_dataset, name)
    forbid(helpers, "build_sample_idx")
    forbid(numpy, "save")
    samples = refused = 0
    built = {}  # tokenizers take seconds to load
    with tempfile.TemporaryDirectory() as folder:
        tokenizers.make_files(source, folder)
        for number in range(options.rounds):
            os.chdir(folder)
            os.makedirs("round")
            for name in os.listdir(folder):
                if name != "round":
                    os.symlink(os.path.join("..", name), os.path.join("round", name))
            os.chdir("round")
            prefixes = ["a", "sub/b", "ü"][: r.randint(1, 3)]
            for prefix in prefixes:
                write_dataset(prefix, r)
            case = cases[number % len(cases)]
            line, config, sizes = random_run(r, prefixes)
            tree = (
                "megatron-core" if release == "0.20" and number % 2 else f"megatron-core-{release}"
            )
            command = [program, "-q", *line, *command_line(case), "--compat", tree]
            done = subprocess.run(command, capture_output=True, text=True)
            if "gives no whole sample" in done.stderr:  # a split of a sequence or two
                refused += 1
                os.chdir(folder)
                shutil.rmtree("round")
                continue
            assert done.returncode == 0, (command, done.stderr)
            # Without a folder of the run's own Megatron keeps no blends: it makes those in memory
            # each time.
            helpers.build_blending_indices, helpers.build_exhaustive_blending_indices = build_blend
            if config["path_to_cache"]:
                forbid(helpers, "build_blending_indices")
                forbid(helpers, "build_exhaustive_blending_indices")
            before = files_of(".")
            key = number % len(cases)
            if key not in built:
                built[key] = tokenizers.build(case, release)
            whole = GPTDatasetConfig(
                tokenizer=built[key],
                reset_position_ids=False,
                reset_attention_mask=False,
                eod_mask_loss=False,
                **config,
            )
            try:
                samples += read_all(whole, sizes)
            except AssertionError:
                print("FAILED", " ".join(command))
                raise
            assert files_of(".") == before, command
            os.chdir(folder)
            shutil.rmtree("round")
        os.chdir("/")
    print(
        f"megatron-core {release}: {options.rounds - refused} runs, all found, "
        f"{samples} samples read, no file made or changed"
    )


if __name__ == "__main__":
    sys.exit(main())
