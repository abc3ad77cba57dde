#!/usr/bin/env python3
"""Golden of --sample-order gpt-neox: digests of the index arrays by GPT-NeoX's rules, in numpy.

Run:  python3 tests/reference/neox_order_golden.py >tests/golden/trainer/neox_order.txt
Needs numpy; written with 2.4.6. Each line: the case, train or valid, epochs, samples, and the MD5
of document, sample and shuffle index (int32, int64, uint32). The dataset has 1000 documents of
1 + 7919 i mod 523 tokens; tests/trainer/data/neox_order_test.cc makes it too.
The rules are those of GPT-NeoX, megatron/data/data_utils.py and gpt2_dataset.py, written anew: all
epochs' documents are shuffled together, then all samples; a dataset with a weight prepares 0.5%
more samples, also if it is the only one of its split; each part of a split is rounded by itself.
SPDX-License-Identifier: MIT
"""

import hashlib
import math

import numpy

LENGTHS = numpy.array([1 + i * 7919 % 523 for i in range(1000)], dtype=numpy.int64)
SEED = 1234


def edges(parts, count):
    shares = [int(round(part / sum(parts) * count)) for part in parts]
    ends = [sum(shares[: i + 1]) for i in range(len(shares))]
    return [0] + [end - (ends[-1] - count) for end in ends]


def arrays(documents, seq_length, num_samples):
    tokens = int(LENGTHS[documents].sum())
    epochs = 1
    while (epochs * tokens - 1) // seq_length < num_samples:
        epochs += 1
    random = numpy.random.RandomState(seed=SEED)
    document = numpy.tile(documents, epochs).astype(numpy.int32)
    random.shuffle(document)
    count = (epochs * tokens - 1) // seq_length
    # Sample i begins seq_length tokens behind the one before; a place at the end of a document is
    # that of its last token, plus one, only for the first token of the next document.
    ends = numpy.cumsum(LENGTHS[document])
    sample = numpy.zeros((count + 1, 2), dtype=numpy.int64)
    for i in range(1, count + 1):
        place = i * seq_length
        row = int(numpy.searchsorted(ends, place + 1))
        sample[i] = row, place - (int(ends[row - 1]) if row > 0 else 0)
    shuffle = numpy.arange(count, dtype=numpy.uint32)
    random.shuffle(shuffle)
    return epochs, count, document, sample, shuffle


def line(case, split, documents, seq_length, num_samples):
    epochs, count, *three = arrays(documents, seq_length, num_samples)
    digests = [hashlib.md5(array.tobytes()).hexdigest() for array in three]
    print(case, split, epochs, count, *digests)


def with_weight(num_samples):
    return math.ceil(num_samples * 1.0 * 1.005)


def main():
    whole = numpy.arange(1000)
    parts = edges([333.4, 333.4, 333.2], 1000)
    train, valid = whole[parts[0] : parts[1]], whole[parts[1] : parts[2]]
    line("split", "train", train, 128, 5000)
    line("split", "valid", valid, 128, 700)
    # Only with the 0.5% does it take a second epoch.
    assert arrays(whole, 128, 2045)[0] == 1
    line("own", "train", whole, 128, with_weight(2045))
    line("own", "valid", whole, 128, with_weight(100))


main()
