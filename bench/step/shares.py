#!/usr/bin/env python3
"""How close a step on one H200 comes to the measured upper limits, and where the rest goes: the
table of bench/history/training.md.

Nothing is measured here. A row's step, and its parts where they were timed separately, are figures
of bench/training.md (bench-step --engine, bench-step --shares). The limits were measured on the
same kind of card by programs that were not kept: all products of the step under the power limit by
cuBLASLt's best of 32; only cuDNN's causal attention (forward, deterministic backward, TFLOP/s); and
the minimum time of a step, which adds to both the time to read and write each tensor once at the
rate of a device copy, 4.19 TB/s. 774M's attention was not measured; 1558M's rate is used instead.
"""

import dataclasses


@dataclasses.dataclass
class Row:
    name: str
    layers: int
    hidden: int
    length: int
    tokens: int
    step: float  # ms, measured
    floor: float  # tokens/s, ceiling
    products: float  # ms, ceiling
    attention: tuple  # TFLOP/s forward and backward, ceiling
    # ms of products, attention, rest; measured call by call, their sum is not the step's
    parts: tuple = ()

    def attention_ms(self):
        # causal: half of 4
        forward = 2 * self.length * self.hidden * self.tokens * self.layers / 1e9
        return forward / self.attention[0] + 2.5 * forward / self.attention[1]


ROWS = [
    Row("124M", 12, 768, 1024, 65536, 109.8, 644e3, 74.4, (349, 233), (76.9, 20.2, 11.4)),
    Row("345M", 24, 1024, 1024, 32768, 151.9, 231e3, 107.5, (341, 231)),
    Row("774M", 36, 1280, 1024, 16384, 166.2, 105e3, 121.7, (336, 223)),
    Row("1558M", 48, 1600, 1024, 16384, 309.4, 55e3, 236.0, (336, 223), (242.4, 43.5, 32.3)),
    Row("1.3B", 24, 2048, 2048, 16384, 249.8, 68e3, 197.0, (545, 390), (195.7, 33.8, 22.7)),
]

print(
    "| model | step | floor | share | products | attention | bytes | above the floor | "
    "of it products, attention, rest |"
)
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
for row in ROWS:
    floor, attention = row.tokens / row.floor * 1e3, row.attention_ms()
    ceilings = (row.products, attention, floor - row.products - attention)
    beyond = ", ".join(f"{is_ - best:+.1f}" for is_, best in zip(row.parts, ceilings)) or "-"
    print(
        f"| {row.name} | {row.step:.1f} | {floor:.1f} | {floor / row.step:.0%} | "
        + " | ".join(f"{part:.1f}, {part / row.step:.0%}" for part in ceilings)
        + f" | {row.step - floor:.1f} | {beyond} |"
    )
