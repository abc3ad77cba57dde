"""The samples of a training run, read from Megatron's index files, so that PyTorch can read what
the trainer read."""

import glob

import numpy as np

TOKENS = {8: "<u2", 4: "<i4"}  # the .idx header's dtype codes


class Samples:
    """samples[k] is sample k of the run's training split: seq_length + 1 token ids as int64."""

    def __init__(self, prefix, cache):
        header = np.fromfile(prefix + ".idx", dtype=np.uint8, count=34)
        sequences = int(np.frombuffer(header[18:26].tobytes(), "<u8")[0])
        lengths = np.fromfile(prefix + ".idx", "<i4", sequences, offset=34)
        self.pointers = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.tokens = np.fromfile(prefix + ".bin", TOKENS[int(header[17])])
        self.documents, self.rows, self.order = (
            np.load(glob.glob(f"{cache}/*-train-{name}.npy")[0])
            for name in ("document_index", "sample_index", "shuffle_index")
        )

    def __getitem__(self, number):
        row = int(self.order[number])
        (first, begin), (last, end) = self.rows[row], self.rows[row + 1]
        parts = []
        for k in range(first, last + 1):
            sequence = int(self.documents[k])
            text = self.tokens[self.pointers[sequence] : self.pointers[sequence + 1]]
            parts.append(text[begin if k == first else 0 : end + 1 if k == last else None])
        return np.concatenate(parts).astype(np.int64)

    def batch(self, step, size):
        """The `size` samples of global step `step`, counted from 0: (size, seq_length + 1)."""
        return np.stack([self[step * size + b] for b in range(size)])
