#!/usr/bin/env python3
"""Goldens of Muon: whole models in float64, and single matrices in bf16, by torch.optim.Muon and by
Megatron's definition.

Models are those of make_model_goldens.py: weights and batches are in FAMILY.golden, here are
losses, norms and weights after STEPS steps. torch.optim.Muon always rounds to bf16 before its
iteration, which turns the smallest components of a gradient into noise. For the models that cast is
replaced by one to float64, so that the rest of torch's own code is compared to the last digit.
Megatron's definition (core/optimizer/emerging_optimizers.py and NVIDIA's Emerging-Optimizers: five
triples of "quintic", fp32 norm, q, k and v apart, three scales) is implemented here again; neither
package is needed.
Run: python tests/reference/make_muon_goldens.py tests/golden/trainer   (torch >= 2.9)
"""

import sys
from unittest import mock

import make_model_goldens as models
import torch
from torch.optim import _muon

STEPS = 5
QUINTIC = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]
SCALES = {
    "spectral": lambda out, inner: max(out, inner) ** 0.5,
    "unit_rms_norm": lambda out, inner: (out / inner) ** 0.5,
    "shape_scaling": lambda out, inner: max(1.0, out / inner) ** 0.5,
}


def orthogonalise(x, dtype):
    """Of a matrix with Frobenius norm 1 at most, in dtype; the norm in x's own."""
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = (x / max(x.norm().item(), 1e-7)).to(dtype)
    for a, b, c in QUINTIC:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class MegatronMuon(torch.optim.Optimizer):
    """split: rows of a group of q, k and v, for the parameters in `packed`."""

    def __init__(
        self, params, lr, momentum, nesterov, weight_decay, scale, dtype, split=None, packed=()
    ):
        super().__init__(params, dict(lr=lr))
        self.momentum, self.nesterov, self.decay, self.scale, self.dtype = (
            momentum,
            nesterov,
            weight_decay,
            SCALES[scale],
            dtype,
        )
        self.split, self.packed = split, {id(p) for p in packed}

    def direction(self, x):
        return orthogonalise(x, self.dtype).to(x.dtype) * self.scale(*x.shape)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.add_(p.grad - buffer, alpha=1 - self.momentum)
                x = p.grad + self.momentum * (buffer - p.grad) if self.nesterov else buffer
                if id(p) in self.packed:
                    parts = x.view(-1, sum(self.split), x.shape[1]).split(self.split, 1)
                    parts = [
                        self.direction(part.reshape(-1, x.shape[1])).view(part.shape)
                        for part in parts
                    ]
                    x = torch.cat(parts, 1).view(x.shape)
                else:
                    x = self.direction(x)
                p.mul_(1 - group["lr"] * self.decay).add_(x, alpha=-group["lr"])


def is_matrix(name, p):
    return p.dim() == 2 and "embedding" not in name and "output_layer" not in name


def train(case, family, make):
    index = list(models.FAMILIES).index(family)
    generator = torch.Generator().manual_seed(100 + index)
    c = models.FAMILIES[family]
    p, data = models.parameters(c, generator), models.batches(c, generator)
    matrices = {name: v for name, v in p.items() if is_matrix(name, v)}
    rest = {name: v for name, v in p.items() if name not in matrices}
    decayed, vectors = (
        [v for v in rest.values() if v.dim() == 2],
        [v for v in rest.values() if v.dim() == 1],
    )
    adamw = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
        lr=1.0,
        betas=(0.9, 0.999),
        eps=1e-6,
    )
    d = models.H // c["heads"]
    muon = make(matrices, [c["heads"] // c["groups"] * d, d, d])
    losses, norms = [], []
    for step in range(STEPS):
        for optimizer in (adamw, muon):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * (1 + step % 3)
            optimizer.zero_grad()
        value = models.loss(c, p, data, True)
        value.backward()
        losses.append(value.item())
        norms.append(torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0).item())
        with mock.patch.object(_muon.torch, "bfloat16", torch.float64):
            for optimizer in (adamw, muon):
                optimizer.step()
    print(case, losses)
    return [
        (f"{case}.loss", torch.tensor(losses, dtype=torch.float64)),
        (f"{case}.norm", torch.tensor(norms, dtype=torch.float64)),
    ] + [(f"{case}.final.{name}", v) for name, v in p.items()]


def by_torch(momentum, nesterov, adjust):
    return lambda matrices, split: torch.optim.Muon(
        matrices.values(),
        lr=1.0,
        weight_decay=0.1,
        momentum=momentum,
        nesterov=nesterov,
        adjust_lr_fn=adjust,
    )


def by_megatron(scale, momentum, nesterov, split_qkv):
    return lambda matrices, split: MegatronMuon(
        matrices.values(),
        1.0,
        momentum,
        nesterov,
        0.1,
        scale,
        torch.float64,
        split,
        [v for name, v in matrices.items() if split_qkv and "linear_qkv" in name],
    )


def matrices_in_bf16():
    """Three steps of random gradients, fp32 weights and momentum."""
    arrays, generator = [], torch.Generator().manual_seed(7)
    for rows, columns in ((16, 48), (48, 16), (20, 36), (9, 34)):
        at = f"bf16_{rows}x{columns}."
        start = 0.1 * torch.randn(rows, columns, generator=generator)
        grads = [torch.randn(rows, columns, generator=generator) for _ in range(3)]
        arrays += [(at + "start", start), (at + "grads", torch.stack(grads))]
        for name, nesterov in (("torch", True), ("megatron", False)):
            p = start.clone().requires_grad_()
            if name == "torch":
                optimizer = torch.optim.Muon(
                    [p],
                    lr=0.02,
                    weight_decay=0.1,
                    momentum=0.95,
                    nesterov=nesterov,
                    adjust_lr_fn="original",
                )
            else:
                optimizer = MegatronMuon([p], 0.02, 0.9, nesterov, 0.1, "spectral", torch.bfloat16)
            for grad in grads:
                p.grad = grad.clone()
                optimizer.step()
            arrays.append((at + name, p))
    return arrays


def main(folder):
    arrays = train("torch_gpt2", "gpt2", by_torch(0.95, True, "match_rms_adamw"))
    arrays += train("torch_llama", "llama", by_torch(0.9, False, "original"))
    arrays += train("megatron_gpt2", "gpt2", by_megatron("spectral", 0.9, False, True))
    arrays += train("megatron_llama", "llama", by_megatron("unit_rms_norm", 0.9, True, True))
    arrays += train(
        "megatron_gpt_neox", "gpt_neox", by_megatron("shape_scaling", 0.9, False, False)
    )
    models.write(f"{folder}/muon.golden", arrays + matrices_in_bf16())


if __name__ == "__main__":
    main(sys.argv[1])
