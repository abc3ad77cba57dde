#!/usr/bin/env python3
"""Goldens of whole models: loss, every gradient, and 20 AdamW steps, by PyTorch in float64.

Written from the definition of each family, not from the trainer: weights are named as the parameter
table names them, dropout masks follow the definition in trainer/ops/dropout.h, with a Philox of
numpy integers written here.
Run: python tests/reference/make_model_goldens.py tests/golden/trainer [NAME]
Each file: "gristmill-golden 1 torch VERSION\n", then for each array "name count\n"
and count fp32 values.
"""

import math
import sys

import numpy as np
import torch

S, B, M, V, PADDED = 10, 2, 2, 29, 32  # M micro-batches of B samples of S tokens
SEED, ITERATION = 1234, 1
FAMILIES = {
    "gpt2": dict(norm="ln", act="gelu_tanh", heads=2, groups=2),
    # Masks are drawn for iteration 1.
    "gpt2_dropout": dict(
        steps=1,
        norm="ln",
        act="gelu_tanh",
        heads=2,
        groups=2,
        hidden_dropout=0.1,
        attention_dropout=0.2,
    ),
    "gpt2_documents": dict(norm="ln", act="gelu_tanh", heads=2, groups=2, documents=True),
    "opt": dict(norm="ln", act="relu", heads=2, groups=2, offset=2),
    # OPT-350m's form, and its projections in a model of the usual form.
    "opt_post": dict(norm="ln", act="relu", heads=2, groups=2, offset=2, post=True, e=8),
    "opt_post_dropout": dict(
        steps=1,
        norm="ln",
        act="relu",
        heads=2,
        groups=2,
        offset=2,
        post=True,
        e=8,
        hidden_dropout=0.1,
        attention_dropout=0.2,
    ),
    "projected": dict(
        norm="rms", act="swiglu", heads=4, groups=2, rotary=1.0, bias="", untied=True, ffn=24, e=24
    ),
    "gpt_neox": dict(
        norm="ln", act="gelu_erf", heads=2, groups=2, rotary=0.25, parallel=True, untied=True
    ),
    "llama": dict(
        norm="rms", act="swiglu", heads=4, groups=2, rotary=1.0, bias="", untied=True, ffn=24
    ),
    "mistral": dict(
        norm="rms",
        act="swiglu",
        heads=4,
        groups=2,
        rotary=1.0,
        bias="",
        untied=True,
        ffn=24,
        window=3,
        d=6,
    ),
    "qwen2": dict(
        norm="rms", act="swiglu", heads=4, groups=2, rotary=1.0, bias="qkv", untied=True, ffn=24
    ),
    "qwen3": dict(
        norm="rms",
        act="swiglu",
        heads=4,
        groups=2,
        rotary=1.0,
        bias="",
        untied=True,
        ffn=24,
        d=6,
        qk_norm=True,
    ),
    "interpolated": dict(
        norm="rms",
        act="swiglu",
        heads=4,
        groups=2,
        rotary=1.0,
        bias="attention",
        untied=True,
        ffn=24,
        rope=dict(linear=2.0),
    ),
    # A LayerNorm of each head, positions scaled as Llama 3.1's are, biases of the MLP alone. One
    # step: where positions turn slowly, a bias of the keys' norm has gradients next to 0, and Adam
    # makes steps of what rounding leaves of them.
    "scaled": dict(
        steps=1,
        norm="ln",
        act="gelu_tanh",
        heads=2,
        groups=1,
        rotary=1.0,
        bias="mlp",
        qk_norm=True,
        rope=dict(factor=4.0, low=0.05, high=0.75, original=6),
    ),
}
NEWER = ["opt_post", "opt_post_dropout", "projected"]
L, H = 2, 16


def philox(counter, key):
    """Philox4x32-10 over arrays of uint64 that hold 32-bit words."""
    c, (k0, k1), mask = (
        [np.asarray(x, dtype=np.uint64) for x in counter],
        key,
        np.uint64(0xFFFFFFFF),
    )
    k0, k1 = np.uint64(k0), np.uint64(k1)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ k0,
            p1 & mask,
            (p0 >> np.uint64(32)) ^ c[3] ^ k1,
            p0 & mask,
        ]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return c


def mask(p, site, first_sample, columns):
    """(S, B, columns) factors."""
    if p == 0:
        return 1.0
    i, s, b = np.meshgrid(np.arange(columns), np.arange(S), np.arange(B), indexing="ij")
    words = np.stack(
        philox((i // 8, s, b + first_sample, np.full_like(i, ITERATION)), (SEED, site))
    )
    word = np.take_along_axis(words, ((i % 8) // 2)[None], 0)[0]
    lane = np.where(i % 2 == 0, word & np.uint64(0xFFFF), word >> np.uint64(16))
    threshold = round(np.float32(p) * 65536)
    factors = np.where(lane < threshold, 0.0, 1 / (1 - threshold / 65536))
    return torch.from_numpy(np.transpose(factors, (1, 2, 0)).copy())


def site(layer, kind):
    return (layer << 18) | (kind << 16)


def parameters(c, generator):
    """In the order of the table; values that fp32 represents exactly."""
    p, h, d = {}, H, head_size(c)
    qkv, ffn = (c["heads"] + 2 * c["groups"]) * d, c.get("ffn", 4 * H)
    fc1, bias = (2 * ffn if c["act"] == "swiglu" else ffn), c.get("bias", "attention mlp")

    def add(name, *shape, mean=0.0):
        value = mean + 0.25 * torch.randn(*shape, generator=generator, dtype=torch.float32)
        p[name] = value.double().requires_grad_()

    def norm(name, size=h):
        add(name + ".weight", size, mean=1.0)
        if c["norm"] == "ln":
            add(name + ".bias", size)

    def linear(name, out, inner, *of):
        add(name + ".weight", out, inner)
        if any(kind in bias for kind in of):
            add(name + ".bias", out)

    e = c.get("e", h)
    add("embedding.word_embeddings.weight", PADDED, e)
    if "rotary" not in c:
        add("embedding.position_embeddings.weight", S + 3 + c.get("offset", 0), h)
    if e != h:
        add("embedding.project_in.weight", h, e)
    for layer in range(L):
        at = f"decoder.layers.{layer}."
        if layer > 0 or not c.get("post"):
            norm(at + "input_layernorm")
        linear(at + "self_attention.linear_qkv", qkv, h, "qkv", "attention")
        if c.get("qk_norm"):
            norm(at + "self_attention.q_layernorm", d)
            norm(at + "self_attention.k_layernorm", d)
        linear(at + "self_attention.linear_proj", h, c["heads"] * d, "attention")
        norm(at + "pre_mlp_layernorm")
        linear(at + "mlp.linear_fc1", fc1, h, "mlp")
        linear(at + "mlp.linear_fc2", h, ffn, "mlp")
    norm("decoder.final_layernorm")
    if e != h:
        add("project_out.weight", e, h)
    if c.get("untied"):
        add("output_layer.weight", PADDED, e)
    return p


def head_size(c):
    return c.get("d", H // c["heads"])


def rates(half, rope):
    """The angle of each pair for one position; `rope` as transformers scales it: linear, or
    llama3."""
    rate = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half) / rope.get("linear", 1.0)
    if "factor" not in rope:
        return rate
    wave, original, low, high = 2 * math.pi / rate, rope["original"], rope["low"], rope["high"]
    smooth = (original / wave - low) / (high - low)
    scaled = torch.where(
        wave > original / low,
        rate / rope["factor"],
        (1 - smooth) * rate / rope["factor"] + smooth * rate,
    )
    return torch.where(wave < original / high, rate, scaled)


def rotate(x, positions, dims, rope):
    """First `dims` of the last dimension, pairs (i, i + dims/2); x (S, B, N, D)."""
    half = dims // 2
    angle = positions[..., None].double() * rates(half, rope)
    cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
    a, b = x[..., :half], x[..., half:dims]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., dims:]], -1)


def token_losses(c, p, batch, m, training):
    """(S, B)."""
    n, g, d = c["heads"], c["groups"], head_size(c)
    hd, ad = (c.get("hidden_dropout", 0), c.get("attention_dropout", 0)) if training else (0, 0)
    first = m * B
    positions = batch["positions"]

    def norm(x, name):
        w = p[name + ".weight"]
        if c["norm"] == "ln":
            return torch.nn.functional.layer_norm(x, w.shape, w, p[name + ".bias"], 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def linear(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def attention(x, layer):
        at = f"decoder.layers.{layer}.self_attention."
        qkv = linear(x, at + "linear_qkv").view(S, B, g, n // g + 2, d)
        q, k, v = qkv[:, :, :, :-2].reshape(S, B, n, d), qkv[:, :, :, -2], qkv[:, :, :, -1]
        if c.get("qk_norm"):
            q, k = norm(q, at + "q_layernorm"), norm(k, at + "k_layernorm")
        if "rotary" in c:
            dims, rope = int(c["rotary"] * d) // 2 * 2, c.get("rope", {})
            q, k = rotate(q, positions, dims, rope), rotate(k, positions, dims, rope)
        k, v = k.repeat_interleave(n // g, 2), v.repeat_interleave(n // g, 2)
        scores = torch.einsum("sbnd,tbnd->bnst", q, k) / math.sqrt(d)
        t = torch.arange(S)
        seen = (t[None, :] <= t[:, None])[None].expand(B, S, S)
        if "window" in c or c.get("documents"):
            seen = seen & (t[None, None, :] >= batch["first_key"].T[:, :, None])
        probabilities = torch.softmax(scores.masked_fill(~seen[:, None], -torch.inf), -1)
        if ad:
            masks = [mask(ad, site(layer, 1) + head, first, S) for head in range(n)]  # (S, B, keys)
            probabilities = probabilities * torch.stack(masks, 0).permute(2, 0, 1, 3)
        out = torch.einsum("bnst,tbnd->sbnd", probabilities, v).reshape(S, B, n * d)
        return linear(out, at + "linear_proj")

    def mlp(x, layer):
        at = f"decoder.layers.{layer}.mlp."
        x = linear(x, at + "linear_fc1")
        if c["act"] == "swiglu":
            gate, up = x.chunk(2, -1)
            x = torch.nn.functional.silu(gate) * up
        elif c["act"] == "relu":
            x = torch.relu(x)
        else:
            x = torch.nn.functional.gelu(
                x, approximate="tanh" if c["act"] == "gelu_tanh" else "none"
            )
        return linear(x, at + "linear_fc2")

    x = p["embedding.word_embeddings.weight"][batch["tokens"]]
    if "e" in c:
        x = linear(x, "embedding.project_in")
    if "rotary" not in c:
        x = x + p["embedding.position_embeddings.weight"][positions + c.get("offset", 0)]
    x = x * mask(hd, site(0, 0), first, H)
    for layer in range(L):
        at = f"decoder.layers.{layer}."
        if c.get("parallel"):
            x = (
                x
                + attention(norm(x, at + "input_layernorm"), layer)
                + mlp(norm(x, at + "pre_mlp_layernorm"), layer)
            )
            continue
        if c.get("post"):
            after = (
                f"decoder.layers.{layer + 1}.input_layernorm"
                if layer + 1 < L
                else "decoder.final_layernorm"
            )
            x = norm(
                x + attention(x, layer) * mask(hd, site(layer, 2), first, H),
                at + "pre_mlp_layernorm",
            )
            x = norm(x + mlp(x, layer) * mask(hd, site(layer, 3), first, H), after)
            continue
        x = x + attention(norm(x, at + "input_layernorm"), layer) * mask(
            hd, site(layer, 2), first, H
        )
        x = x + mlp(norm(x, at + "pre_mlp_layernorm"), layer) * mask(hd, site(layer, 3), first, H)
    if not c.get("post"):
        x = norm(x, "decoder.final_layernorm")
    if "e" in c:
        x = linear(x, "project_out")
    logits = (
        x @ p["output_layer.weight" if c.get("untied") else "embedding.word_embeddings.weight"].T
    )
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, PADDED), batch["labels"].reshape(-1), reduction="none"
    ).view(S, B)


def loss(c, p, batches, training):
    total = 0
    for m, batch in enumerate(batches):
        weights = batch["loss_mask"].double()
        total = total + (token_losses(c, p, batch, m, training) * weights).sum() / weights.sum() / M
    return total


def batches(c, generator):
    result = []
    for _ in range(M):
        tokens = torch.randint(0, V, (S + 1, B), generator=generator)
        positions = torch.arange(S)[:, None].expand(S, B).clone()
        first_key = torch.zeros(S, B, dtype=torch.int64)
        if c.get("documents"):
            for b, cut in enumerate((4, 7)):
                positions[cut:, b] -= cut
                first_key[cut:, b] = cut
        if "window" in c:
            first_key = (
                (torch.arange(S) - c["window"] + 1).clamp(min=0)[:, None].expand(S, B).clone()
            )
        result.append(
            dict(
                tokens=tokens[:-1],
                labels=tokens[1:],
                positions=positions,
                first_key=first_key,
                loss_mask=(torch.rand(S, B, generator=generator) > 0.2).float(),
            )
        )
    return result


def write(path, arrays):
    with open(path, "wb") as f:
        f.write(f"gristmill-golden 1 torch {torch.__version__}\n".encode())
        for name, value in arrays:
            flat = np.ascontiguousarray(
                torch.as_tensor(value).detach().double().numpy().astype("<f4")
            ).ravel()
            f.write(f"{name} {flat.size}\n".encode() + flat.tobytes())


def main(folder, *only):
    old = [family for family in FAMILIES if family not in NEWER]  # whose seeds are their places
    for family, c in FAMILIES.items():
        index = old.index(family) if family in old else len(FAMILIES) + NEWER.index(family)
        if only and family not in only:
            continue
        generator = torch.Generator().manual_seed(100 + index)
        p, data, arrays = parameters(c, generator), batches(c, generator), []
        for key in ("tokens", "labels", "positions", "first_key", "loss_mask"):
            arrays.append((key, torch.stack([b[key] for b in data])))
        arrays += [("init." + name, v.clone()) for name, v in p.items()]
        arrays.append(("evaluation", loss(c, p, data, False)))
        decayed = [v for name, v in p.items() if v.dim() == 2]
        rest = [v for name, v in p.items() if v.dim() == 1]
        optimizer = torch.optim.AdamW(
            [dict(params=decayed, weight_decay=0.1), dict(params=rest, weight_decay=0.0)],
            lr=1.0,
            betas=(0.9, 0.999),
            eps=1e-6,
        )
        losses, norms = [], []
        for step in range(c.get("steps", 20)):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * (1 + step % 3)
            optimizer.zero_grad()
            value = loss(c, p, data, True)
            value.backward()
            if step == 0:
                arrays += [("grad." + name, v.grad.clone()) for name, v in p.items()]
            losses.append(value.item())
            norms.append(torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0).item())
            optimizer.step()
        arrays += [
            ("loss", torch.tensor(losses, dtype=torch.float64)),
            ("norm", torch.tensor(norms, dtype=torch.float64)),
        ]
        arrays += [("final." + name, v) for name, v in p.items()]
        write(f"{folder}/{family}.golden", arrays)
        print(family, losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
