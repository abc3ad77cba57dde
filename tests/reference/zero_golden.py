#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goldens of convert: checkpoints that DeepSpeed itself saves with ZeRO, on CPU ranks.

    python3 zero_golden.py tests/golden/convert [CASE...]

zero3: FOLDER/gpt2/zero3, the model of FOLDER/gpt2/v3.pt with stage 3 on three ranks. No parameter's
size is a multiple of three, so the last slices are padded.

The other cases: FOLDER/main_parameters/CASE has a tiny model of 16 bits after two steps (run), and
the same folder with DeepSpeed's own fp32 weights in the place of the model's (exact): those of
zero_to_fp32, for each model-parallel rank by itself, and of safe_get_full_fp32_param in the running
engine. They must agree where both work (the latter takes the wrong order with
round_robin_gradients), and be the model's weights when rounded. zero_to_fp32 knows no pipelines and
no BF16_Optimizer: it gets an empty module, and for the latter a zero_stage of 1 (not without ZeRO,
where the order of the parameters is not saved).

The CPU accelerator does not claim fp16; its operations that a step needs are there all the same.
Gradients are made up (a loss of sines of the weights), the optimizer is SGD, which keeps no other
state, and pipelines are stepped without a batch. Made with deepspeed 0.19, torch 2.15. Starts its
own ranks.
"""

import argparse
import enum
import os
import shutil
import subprocess
import sys
import tempfile
from types import SimpleNamespace

# v3.pt's arguments hold one
AttnBackend = enum.Enum("AttnBackend", "flash fused unfused local auto")

H, N, F, P, V = 4, 2, 8, 4, 24  # of 21 tokens, padded
STEP = 5
WORDS = "word_embeddings.weight"
CASES = {
    "plain_tp2": dict(stage=1, dtype="fp16", layers=1, tp=2, dp=2),
    "plain_frozen": dict(
        stage=2,
        dtype="bf16",
        layers=1,
        dp=3,
        zero={"round_robin_gradients": True},
        nested=True,
    ),
    "pipe_bf16": dict(stage=1, dtype="bf16", pp=2, dp=2, accumulate="fp32"),
    "pipe_no_zero": dict(stage=0, dtype="bf16", pp=2, dp=2),
    "neox_pipe": dict(stage=1, dtype="bf16", pp=2, tp=2, neox=True),
    "neox_sequential": dict(
        stage=2,
        dtype="fp16",
        layers=1,
        dp=2,
        neox=True,
        zero={"parameter_alignment": True, "elastic_checkpoint": True},
    ),
}
DEFAULTS = dict(layers=2, pp=0, tp=1, dp=1, neox=False, zero={}, accumulate=None, nested=False)


def flatten(value, prefix=""):
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if hasattr(item, "items"):
            yield from flatten(item, name)
        else:
            yield name, item


def add_parameter(root, name, tensor):
    import torch

    module = root
    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, torch.nn.Module())
        module = module._modules[part]
    module.register_parameter(last, torch.nn.Parameter(tensor.float()))


def import_deepspeed():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.comm.torch
    from deepspeed.accelerator import get_accelerator

    deepspeed.comm.torch.build_shm_op = lambda: None  # gloo alone; nothing is compiled
    get_accelerator().is_fp16_supported = lambda: True
    return deepspeed


def save_zero3(folder):
    deepspeed = import_deepspeed()
    import torch

    source = torch.load(os.path.join(folder, "gpt2/v3.pt"), weights_only=False)
    root = torch.nn.Module()
    for name, tensor in flatten(source["model"]):
        add_parameter(root, name, tensor)
    config = {
        "train_batch_size": 3,
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=root, config=config)
    engine.save_checkpoint(
        os.path.join(folder, "gpt2/zero3"),
        tag="global_step9",
        client_state={"args": source["args"], "iteration": 9, "checkpoint_version": 3.0},
    )


# --- tiny models with stages 1 and 2 --------------------------------------------------------------


def block():
    return {
        "input_layernorm.weight": (H,),
        "input_layernorm.bias": (H,),
        "attention.query_key_value.weight": (3 * H, H),
        "attention.query_key_value.bias": (3 * H,),
        "attention.dense.weight": (H, H),
        "attention.dense.bias": (H,),
        "post_attention_layernorm.weight": (H,),
        "post_attention_layernorm.bias": (H,),
        "mlp.dense_h_to_4h.weight": (F, H),
        "mlp.dense_h_to_4h.bias": (F,),
        "mlp.dense_4h_to_h.weight": (H, F),
        "mlp.dense_4h_to_h.bias": (H,),
    }


def layers(case):
    """Shapes of each layer of a pipeline, None where one has no parameters."""
    if case.neox:
        embedding = {"word_embeddings.weight": (V, H)}
        last = [None, {"norm.weight": (H,), "norm.bias": (H,)}, {"final_linear.weight": (V, H)}]
        return [embedding, None] + [block() for _ in range(case.layers)] + last
    embedding = {"word_embeddings.weight": (V, H), "position_embeddings.weight": (P, H)}
    last = [None, {"weight": (H,), "bias": (H,)}, "tied"]
    return [None, embedding, None] + [block() for _ in range(case.layers)] + last


def part_shape(case, name, shape):
    whole = ("layernorm", "norm", "position", "dense.bias", "4h_to_h.bias")
    if name in ("weight", "bias") or any(word in name for word in whole):
        return shape
    if name.endswith(("dense.weight", "4h_to_h.weight")):
        return (shape[0], shape[1] // case.tp)
    return (shape[0] // case.tp, *shape[1:])


def value(case, name, shape, layer, tp):
    """The same on all ranks that have it."""
    import torch

    shape = part_shape(case, name, shape)
    divided = shape != part_shape(SimpleNamespace(tp=1), name, shape) or any(
        word in name for word in ("word_", "query", "h_to_4h", "final_linear", "dense.weight")
    )
    seed = sum(ord(c) * (i + 1) for i, c in enumerate(name)) + 1000 * layer
    generator = torch.Generator().manual_seed(seed + (7 * tp if divided else 0))
    return torch.randn(*shape, generator=generator) * 0.3 + (1 if "norm.weight" in name else 0)


def plain_module(case, tp):
    """GPT-NeoX without a pipeline, or Megatron's names."""
    import torch

    root = torch.nn.Module()
    block_number = 0
    for i, names in enumerate(layers(case)):
        if names is None or names == "tied":
            continue
        is_block = any("query" in name for name in names)
        for name, shape in names.items():
            tensor = value(case, name, shape, i, tp)
            if case.neox:
                full = f"sequential.{i}.{name}"
            elif is_block:
                full = f"language_model.encoder.layers.{block_number}.{name}"
            elif "embeddings" in name:
                full = f"language_model.embedding.{name}"
            else:
                full = f"language_model.encoder.final_layernorm.{name}"
            add_parameter(root, full, tensor)
        block_number += is_block
    return root


def groups_of(module):
    """Megatron's two groups: with weight decay, and without."""
    from torch.optim import SGD

    trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    bare = [p for n, p in trained if p.dim() < 2]
    return SGD(
        [
            {"params": [p for n, p in trained if p.dim() > 1], "weight_decay": 0.01},
            {"params": bare, "weight_decay": 0.0},
        ],
        lr=0.01,
    )


def config_of(case):
    config = {
        "train_batch_size": case.dp,
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": case.stage, **case.zero},
        "zero_allow_untested_optimizer": True,
        case.dtype: {"enabled": True, **({"loss_scale": 1} if case.dtype == "fp16" else {})},
    }
    if case.accumulate:
        config["data_types"] = {"grad_accum_dtype": case.accumulate}
    return config


def mpu_of(case, rank):
    """Tensor-parallel neighbours, as Megatron's own groups are made."""
    import torch.distributed as dist

    mine = {}
    for kind, members in [
        ("model", [[d * case.tp + t for t in range(case.tp)] for d in range(case.dp)]),
        ("data", [[d * case.tp + t for d in range(case.dp)] for t in range(case.tp)]),
    ]:
        for ranks in members:
            group = dist.new_group(ranks)
            if rank in ranks:
                mine[kind] = (group, ranks.index(rank), len(ranks))
    mpu = SimpleNamespace()
    for kind, (group, index, size) in mine.items():
        setattr(mpu, f"get_{kind}_parallel_group", lambda group=group: group)
        setattr(mpu, f"get_{kind}_parallel_rank", lambda index=index: index)
        setattr(mpu, f"get_{kind}_parallel_world_size", lambda size=size: size)
    return mpu


def nested(flat):
    out = {}
    for name, tensor in flat.items():
        head, _, rest = name.partition(".layers.")
        path = head.split(".") if rest else name.split(".")
        inner = out
        for part in path if rest else path[:-1]:
            inner = inner.setdefault(part, {})
        inner[f"layers.{rest}" if rest else path[-1]] = tensor
    return out


def loss_of(module, data_rank):
    total = 0
    for i, (_, parameter) in enumerate(module.named_parameters()):
        if parameter.requires_grad:
            total = total + (parameter.float() * (0.1 + 0.01 * i + 0.03 * data_rank)).sin().sum()
    return total


def arguments(case):
    return argparse.Namespace(
        num_layers=case.layers,
        hidden_size=H,
        ffn_hidden_size=F,
        num_attention_heads=N,
        max_position_embeddings=P,
        padded_vocab_size=V,
        bias_gelu_fusion=True,
        tensor_model_parallel_size=case.tp,
        untie_embeddings_and_output_weights=False,
    )


def client_state(case):
    if not case.neox:
        return {"args": arguments(case), "iteration": STEP, "checkpoint_version": 3.0}
    names = {"num_layers": case.layers, "hidden_size": H, "num_attention_heads": N}
    return {"args": names, "iteration": STEP}


def save_run(case, folder, scratch):
    deepspeed = import_deepspeed()
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    from deepspeed.utils import safe_get_full_fp32_param

    class Layer(torch.nn.Module):
        def __init__(self, names, layer, tp):
            super().__init__()
            for name, shape in names.items():
                add_parameter(self, name, value(case, name, shape, layer, tp))

        def forward(self, x):
            return x

    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    if case.pp:
        topology = PipeModelDataParallelTopology(num_pp=case.pp, num_mp=case.tp, num_dp=case.dp)
        tp, data_rank = topology.get_coord(rank).model, topology.get_coord(rank).data
        specs = []
        for i, names in enumerate(layers(case)):
            if names is None:
                specs.append(lambda x: x)
            elif not case.neox and (names == "tied" or "word_embeddings.weight" in names):
                again = (lambda module, x: x) if names == "tied" else None
                arguments = ("embed", Layer, layers(case)[1], 1, tp)
                specs.append(TiedLayerSpec(*arguments, forward_fn=again, tied_weight_attr=WORDS))
            else:
                specs.append(LayerSpec(Layer, names, i, tp))
        model = PipelineModule(specs, topology=topology, partition_method="parameters")
        mpu = None
    else:
        mpu = mpu_of(case, rank)
        tp, data_rank = mpu.get_model_parallel_rank(), mpu.get_data_parallel_rank()
        model = plain_module(case, tp)
        if case.nested:  # and frozen
            model.language_model.embedding.position_embeddings.weight.requires_grad_(False)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=groups_of(model), config=config_of(case), mpu=mpu
    )
    kind = type(engine.optimizer).__name__
    for _ in range(2):
        loss = loss_of(engine.module, data_rank)
        if not case.pp:
            engine.backward(loss)
            engine.step()
            continue
        loss.backward()
        if kind == "BF16_Optimizer":
            engine.optimizer.update_hp_grads()
        engine._exec_reduce_tied_grads()
        engine._exec_reduce_grads()
        engine._take_model_step({})
    live = {
        name: safe_get_full_fp32_param(parameter).clone().reshape(parameter.shape)
        for name, parameter in engine.module.named_parameters()
        if parameter.requires_grad
    }
    if torch.distributed.get_rank(group=engine.optimizer.dp_process_group) == 0:
        place = dict(kind=kind, tp=tp, rank=engine.checkpoint_mp_rank, weights=live)
        place["rounded"] = {n: p.detach().clone() for n, p in engine.module.named_parameters()}
        torch.save(place, os.path.join(scratch, f"live_{engine.checkpoint_mp_rank:02d}.pt"))
    if case.nested:
        engine.module_state_dict = lambda *_, **__: nested(type(model).state_dict(model))
    engine.save_checkpoint(folder, tag=f"global_step{STEP}", client_state=client_state(case))


def consolidated(step, live, scratch):
    """One model-parallel rank's fp32 weights, as zero_to_fp32 joins them."""
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    root = os.path.join(scratch, f"one_{live['rank']}")
    one = os.path.join(root, "step")
    os.makedirs(one)
    end = f"mp_rank_{live['rank']:02d}"
    for name in sorted(os.listdir(step)):
        state = f"{end}_model_states.pt" == name
        if not state and f"{end}_optim_states.pt" not in name:
            continue
        content = torch.load(os.path.join(step, name), weights_only=False)
        if state and (content["module"] is None or "language_model" in content["module"]):
            content["module"] = {}
        if not state:
            content["optimizer_state_dict"].setdefault("zero_stage", 1)
        torch.save(content, os.path.join(one, name.replace(end, "mp_rank_00")))
    return get_fp32_state_dict_from_zero_checkpoint(root, tag="step")


def write_exact(case, step, exact, scratch):
    """The weights by DeepSpeed in files of the same layout."""
    import torch

    os.makedirs(exact)
    files = {}
    for name in sorted(os.listdir(scratch)):
        if not name.startswith("live_"):
            continue
        live = torch.load(os.path.join(scratch, name))
        weights = live["weights"]
        if case.stage > 0:
            weights = {k: v.float() for k, v in consolidated(step, live, scratch).items()}
            for k, v in live["weights"].items():
                in_order = not case.zero.get("round_robin_gradients")
                assert not in_order or torch.equal(v, weights[k]), f"two answers for {k}"
                assert torch.equal(weights[k].to(live["rounded"][k].dtype), live["rounded"][k]), k
        print(f"{live['kind']}: rank {live['rank']}, {len(weights)} parameters")
        for k, v in weights.items():
            v = v.clone().reshape(v.shape)
            if not case.pp:
                files.setdefault(f"mp_rank_{live['rank']:02d}_model_states.pt", {})[k] = v
                continue
            layer, _, rest = k.partition(".")
            if layer == "tied_modules":
                layer, rest = "1", rest.partition(".")[2]
            part = f"layer_{int(layer):02d}-model_{live['tp']:02d}-model_states.pt"
            files.setdefault(part, {}).setdefault(rest, v)
    for name, weights in files.items():
        views = torch.cat([v.flatten() for v in weights.values()]).split(
            [v.numel() for v in weights.values()]
        )  # of one storage: a smaller file
        weights = {k: view.view(v.shape) for view, (k, v) in zip(views, weights.items())}
        whole = weights if case.pp else {"module": weights, **client_state(case)}
        torch.save(whole, os.path.join(exact, name))
    if case.pp:
        torch.save({"module": None, **client_state(case)}, f"{exact}/mp_rank_00_model_states.pt")


def write_configs(case, step):
    os.makedirs(f"{step}/configs")
    with open(f"{step}/configs/model.yml", "w") as file:
        file.write(
            f"{{num-layers: {case.layers}, hidden-size: {H}, num-attention-heads: {N}, "
            f"seq-length: {P}, max-position-embeddings: {P}, pos-emb: rotary, rotary-pct: 1.0, "
            "norm: layernorm, no-weight-tying: true, gpt-j-residual: false, "
            "output-layer-parallelism: column}\n"
        )


def make(case, name, folder):
    made = os.path.join(folder, "main_parameters", name)
    shutil.rmtree(made, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        launch(max(case.pp, 1) * case.tp * case.dp, name, made + "/run", scratch)
        step = f"{made}/run/global_step{STEP}"
        for file in os.listdir(made + "/run"):
            if file.endswith((".py", "latest_universal")):
                os.remove(f"{made}/run/{file}")
        write_exact(case, step, f"{made}/exact/global_step{STEP}", scratch)
    if case.neox:
        for kind in ("run", "exact"):
            write_configs(case, f"{made}/{kind}/global_step{STEP}")


def launch(ranks, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    subprocess.run(
        [*command, __file__, *arguments], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def make_zero3(folder):
    launch(3, "zero3", folder)
    made = os.path.join(folder, "gpt2/zero3")
    for step, _, files in os.walk(made):
        for name in files:  # programs of DeepSpeed, and copies that no reader opens
            if name.endswith(".py") or ("model_states" in name and "zero_pp_rank_0" not in name):
                os.remove(os.path.join(step, name))


if __name__ == "__main__":
    cases = {name: SimpleNamespace(**{**DEFAULTS, **case}) for name, case in CASES.items()}
    if "RANK" in os.environ and sys.argv[1] == "zero3":
        save_zero3(sys.argv[2])
    elif "RANK" in os.environ:
        save_run(cases[sys.argv[1]], *sys.argv[2:])
    else:
        for wanted in sys.argv[2:] or ["zero3", *cases]:
            if wanted == "zero3":
                make_zero3(sys.argv[1])
            else:
                make(cases[wanted], wanted, sys.argv[1])
