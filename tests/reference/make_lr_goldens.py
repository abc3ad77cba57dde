#!/usr/bin/env python3
"""Learning rates and weight decays by Megatron-core's own OptimizerParamScheduler.

Run: python tests/reference/make_lr_goldens.py > tests/golden/trainer/lr_schedule.txt
Lines: style init max min warmup decay wsd_style wsd_decay wd_style start_wd end_wd wd_steps |
    steps lr wd ...
"""

import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import megatron.core
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler


class Optimizer:
    param_groups = [{"lr": 0.0, "weight_decay": 0.0, "max_lr": 1.0, "min_lr": 0.0}]


CASES = [
    # style, init, max, min, warmup, decay, wsd style, wsd decay, wd style, start, end, wd steps
    ("constant", 0.0, 6e-4, 6e-5, 100, 1000, "exponential", 0, "constant", 0.1, 0.1, 1000),
    ("linear", 0.0, 6e-4, 6e-5, 100, 1000, "exponential", 0, "linear", 0.01, 0.1, 700),
    ("linear", 1e-5, 1.5e-4, 0.0, 0, 320000, "exponential", 0, "cosine", 0.01, 0.1, 300000),
    ("cosine", 0.0, 1.5e-4, 1e-5, 3200, 320000, "exponential", 0, "constant", 0.01, 0.01, 500000),
    ("cosine", 1e-6, 1.5e-4, 1e-5, 0, 4096, "exponential", 0, "constant", 0.01, 0.01, 500000),
    ("inverse-square-root", 0.0, 1e-3, 1e-5, 100, 5000, "exponential", 0, "constant", 0.0, 0.0, 1),
    ("inverse-square-root", 0.0, 1e-3, 1e-5, 0, 5000, "exponential", 0, "constant", 0.0, 0.0, 1),
] + [
    ("WSD", 0.0, 3e-4, 3e-5, 64, 2000, style, 500, "constant", 0.1, 0.1, 1)
    for style in ("linear", "cosine", "exponential", "minus_sqrt")
]

print(f"# megatron-core {megatron.core.__version__}")
for c in CASES:
    style, init, top, low, warmup, decay, wsd, wsd_decay, wd, wd0, wd1, wd_steps = c
    s = OptimizerParamScheduler(
        Optimizer(),
        init,
        top,
        low,
        warmup,
        decay,
        style,
        wd0,
        wd1,
        wd_steps,
        wd,
        wsd_decay_steps=wsd_decay,
        lr_wsd_decay_style=wsd,
    )
    group = {"max_lr": top, "min_lr": low}
    marks = {
        0,
        1,
        2,
        warmup - 1,
        warmup,
        warmup + 1,
        decay // 3,
        decay - wsd_decay,
        decay - wsd_decay + 1,
        decay - 7,
        decay - 1,
        decay,
        decay + 1,
        3 * decay,
        wd_steps,
        wd_steps + 1,
        wd_steps // 2,
    }
    points = []
    for steps in sorted(m for m in marks if m >= 0):
        s.num_steps = steps
        points.append(f"{steps} {s.get_lr(group)!r} {s.get_wd()!r}")
    print(*c, "|", " ".join(points))
