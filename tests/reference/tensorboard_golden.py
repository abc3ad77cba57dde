#!/usr/bin/env python3
"""Real TensorBoard reads tests/golden/trainer/events.tfevents, which trainer_log_test wrote
(UPDATE_GOLDEN=1).

Checks every point and writes what was seen, with TensorBoard's version, to events.json beside it.
"""

import json
import pathlib
import shutil
import struct
import tempfile

import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

golden = pathlib.Path(__file__).parent.parent / "golden" / "trainer"
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(golden / "events.tfevents", folder + "/events.out.tfevents.1700000000.host.1.0")
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
seen = {
    tag: [(e.wall_time, e.step, e.value) for e in events.Scalars(tag)]
    for tag in events.Tags()["scalars"]
}


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


expected = [(1.7e9 + step, step, float32(10.0 / step)) for step in range(1, 301)]
assert seen["lm loss"] == expected, seen["lm loss"][:3]
assert seen["lm loss vs samples"] == [(t, 512 * s, v) for t, s, v in expected]
texts = [
    (e.wall_time, e.step, [s.decode() for s in e.tensor_proto.string_val])
    for e in events.Tensors("configuration/text_summary")
]
assert texts == [(1.7e9, 2, ["```toml\nlr = 0.1 # \u00e9\n```\n"])], texts
assert events.SummaryMetadata("configuration/text_summary").plugin_data.plugin_name == "text"
(golden / "events.json").write_text(
    json.dumps(
        {
            "tensorboard": tensorboard.__version__,
            "file_version": events.file_version,
            "points": {tag: len(points) for tag, points in seen.items()},
            "first": {tag: points[0] for tag, points in seen.items()},
            "texts": texts,
            "last": {tag: points[-1] for tag, points in seen.items()},
        },
        indent=1,
    )
    + "\n"
)
