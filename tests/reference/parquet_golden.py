#!/usr/bin/env python3
"""Golden files of parquet-extract: Parquet and Arrow IPC files by pyarrow and datasets, and what
pyarrow reads from them.

    tests/reference/parquet_golden.py            writes tests/golden/columns
Made with pyarrow 26.0.0 and datasets (versions in tests/golden/columns/versions.txt); write_odd's
files with pyarrow 26.0.1.
cases.tsv: file, flags of parquet-extract, file of the expected bytes; tab between them.
"""

import json
import pathlib
import random
import shutil
import tempfile

import datasets
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).resolve().parent.parent / "golden" / "columns"
CASES = []


def texts(count, seed):
    chance = random.Random(seed)
    pieces = [
        "plain words ",
        "café ",
        '"quoted" \\ ',
        "tab\there ",
        "line\nend\r\n",
        "\x01\x1f\x7f ",
        "日本語 ",
        "🙂 ",
        "</a> ",
        "",
    ]
    return [
        "".join(chance.choice(pieces) for _ in range(chance.randrange(12))) for _ in range(count)
    ]


def member(row, name):
    if name in row:
        return row[name]
    for step in name.split("."):
        row = None if row is None else row[step]
    return row


def as_json(table, names):
    lines = []
    for row in table.to_pylist():
        lines.append(
            json.dumps(
                {name: member(row, name) for name in names},
                ensure_ascii=False,
                separators=(",", ":"),
            )
            + "\n"
        )
    return "".join(lines).encode()


def expect(file, names, table, form="json"):
    flags = " ".join("-c " + name for name in names)
    if form == "nul":
        flags += " -0"
        values = [member(row, names[0]) for row in table.to_pylist()]
        bytes_ = b"".join(
            ("\n".join(v) if isinstance(v, list) else v).encode() + b"\0" for v in values
        )
    else:
        bytes_ = as_json(table, names)
    for expected in sorted(HERE.glob("expected.*")):
        if expected.read_bytes() == bytes_:
            break
    else:
        expected = HERE / f"expected.{len(list(HERE.glob('expected.*'))):02}"
        expected.write_bytes(bytes_)
    CASES.append(f"{file}\t{flags}\t{expected.name}\n")


def write_layouts():
    """Layouts that are not read."""
    lists = [["a"], None]
    ends = pa.RunEndEncodedArray.from_arrays([1, 2], ["x", "y"])
    made = pa.table(
        {
            "text": ["x", "y"],
            "view": pa.array(lists, pa.list_view(pa.string())),
            "large": pa.array(lists, pa.large_list_view(pa.string())),
            "inner": pa.array([[["a"]], []], pa.list_(pa.list_view(pa.string()))),
            "ends": ends,
        }
    )
    with ipc.new_file(HERE / "layouts.arrow", made.schema) as writer:
        writer.write_table(made)
    pq.write_table(made.select(["text", "view"]), HERE / "layouts.parquet")


def write_odd():
    """Columns in which a writer found no value, lists of them, and two members of one name."""
    nothing = pa.table({"text": pa.nulls(2), "list": [[], [None]], "named": ["x", "y"]})
    pq.write_table(nothing, HERE / "nothing.parquet")
    member = pa.array([1])
    pair = pa.StructArray.from_arrays([member, member], names=["k", "k"])
    pq.write_table(pa.table({"text": ["x"], "pair": pair}), HERE / "twice.parquet")


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    rows = 60
    chance = random.Random(1)
    floats = [
        0.0,
        -0.0,
        1.5,
        1e16,
        1e-5,
        123456789.125,
        float("inf"),
        float("-inf"),
        3.1e-300,
        2.0**70,
    ]
    table = pa.table(
        {
            "text": texts(rows, 1),
            "id": pa.array([chance.randrange(-(2**63), 2**63) for _ in range(rows)], pa.int64()),
            "byte": pa.array([i % 256 for i in range(rows)], pa.uint8()),
            "huge": pa.array([2**64 - 1 - i for i in range(rows)], pa.uint64()),
            "score": pa.array(
                [None if i % 7 == 3 else floats[i % len(floats)] for i in range(rows)], pa.float64()
            ),
            "single": pa.array([i / 7 for i in range(rows)], pa.float32()),
            "kept": pa.array([None if i % 5 == 2 else i % 2 == 0 for i in range(rows)]),
            "parts": pa.array([texts(i % 4, i) for i in range(rows)], pa.list_(pa.string())),
            "meta": pa.array(
                [
                    None
                    if i % 11 == 5
                    else {
                        "url": f"https://a/{i}",
                        "more": {"n": [i, None], "t": None if i % 3 else "x"},
                    }
                    for i in range(rows)
                ]
            ),
            "a.b": texts(rows, 2),
            "nothing": pa.nulls(rows),
        }
    )
    for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
        pq.write_table(
            table if codec == "zstd" else table.select(["text", "a.b"]),
            HERE / f"{codec}.parquet",
            compression=codec,
            row_group_size=25,
            data_page_version="2.0" if codec == "zstd" else "1.0",
            write_page_checksum=codec == "zstd",
        )
        expect(f"{codec}.parquet", ["text"], table)
    everything = "text id byte huge score single kept parts meta a.b nothing".split()
    expect("zstd.parquet", everything, table)
    expect("zstd.parquet", ["parts", "kept"], table)
    expect("zstd.parquet", ["parts"], table, "nul")
    expect("zstd.parquet", ["text"], table, "nul")
    # a member of a struct goes along; the dotted name of a whole column comes first
    nested = pa.table(
        {"doc": pa.array([{"body": t, "lang": "en", "n": i} for i, t in enumerate(texts(rows, 3))])}
    )
    pq.write_table(nested, HERE / "nested.parquet", row_group_size=7)
    expect("nested.parquet", ["doc.body", "doc.n"], nested)
    expect("snappy.parquet", ["a.b"], table)
    # every way in which a string may be kept
    body = texts(rows, 4)
    kinds = {
        "string": pa.string(),
        "large": pa.large_string(),
        "binary": pa.binary(),
        "coded": pa.dictionary(pa.int32(), pa.string()),
    }
    for name, kind in kinds.items():
        plain = pa.array(body).cast(kind) if name != "coded" else pa.array(body).dictionary_encode()
        pq.write_table(pa.table({"text": plain}), HERE / f"{name}.parquet", row_group_size=50)
        expect(f"{name}.parquet", ["text"], pa.table({"text": body}))
    views = pa.table({"text": pa.array(body, pa.string_view()), "id": pa.array(range(rows))})
    for name, made, options in [
        ("stream", table, None),
        ("packed", table, ipc.IpcWriteOptions(compression="zstd")),
        ("views", views, None),
    ]:
        with ipc.new_stream(HERE / f"{name}.arrow", made.schema, options=options) as writer:
            writer.write_table(made, max_chunksize=25)
    with ipc.new_file(HERE / "footed.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    for name in ["stream", "packed", "footed"]:
        expect(f"{name}.arrow", everything, table)
        expect(f"{name}.arrow", ["text"], table, "nul")
    expect("views.arrow", ["text", "id"], pa.table({"text": body, "id": list(range(rows))}))
    # as the datasets package keeps it
    with tempfile.TemporaryDirectory() as folder:
        data = datasets.Dataset.from_dict(
            {"text": body, "label": [i % 3 for i in range(rows)]},
            features=datasets.Features(
                {"text": datasets.Value("string"), "label": datasets.ClassLabel(3)}
            ),
        )
        data.save_to_disk(folder)
        shutil.copy(next(pathlib.Path(folder).glob("*.arrow")), HERE / "datasets.arrow")
        expect(
            "datasets.arrow",
            ["text", "label"],
            pa.table({"text": body, "label": [i % 3 for i in range(rows)]}),
        )
    # bad rows: a null, bytes that are no UTF-8, a NUL, a null in a list
    bad = pa.table(
        {
            "text": pa.array([b"good", None, b"\xff\xfe", b"a\0b", b"last"], pa.binary()).cast(
                pa.binary()
            ),
            "list": pa.array([["a"], ["b", None], [], None, ["c", "d"]]),
            "when": pa.array([0, 1, 2, 3, 4], pa.timestamp("us")),
            "n": [1, 2, 3, 4, 5],
        }
    )
    pq.write_table(bad, HERE / "bad.parquet", row_group_size=2)
    pq.write_table(table.slice(0, 0), HERE / "empty.parquet")
    expect("empty.parquet", ["text"], table.slice(0, 0))
    write_layouts()
    write_odd()
    (HERE / "cases.tsv").write_text("".join(CASES))
    (HERE / "versions.txt").write_text(
        f"pyarrow {pa.__version__}\ndatasets {datasets.__version__}\n"
    )


if __name__ == "__main__":
    main()
