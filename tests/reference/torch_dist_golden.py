#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goldens of convert: small checkpoints in Megatron-core's torch_dist format, written by
Megatron-core itself on CPU ranks.

    python3 torch_dist_golden.py FOLDER

Needs megatron-core 0.19 and torch. Each case is a folder as `--ckpt-format torch_dist` writes it,
with the arguments that megatron.training's own parser makes, and expected.json: the logits that
Megatron-core computes on one rank after it has loaded that folder. Runs itself under torchrun for
the cases of several ranks.
"""

import contextlib
import io
import json
import os
import subprocess
import sys

CASES = {  # family, tensor ranks, pipeline stages, more arguments
    "gpt2_tp2_pp2": ("gpt2", 2, 2, []),
    "gpt2_layers_apart": ("gpt2", 1, 2, ["--non-homogeneous"]),
    "llama_tp2": ("llama", 2, 1, []),
}
VOCAB, PADDED, LENGTH = 263, 272, 12
TOKENS = [3, 1, 4, 1, 5, 92, 65, 35, 8, 262]


def arguments(family, tp, pp):
    """What megatron.training would have saved as args."""
    from megatron.training.arguments import parse_args

    line = [
        *"--num-layers 2 --hidden-size 16 --ffn-hidden-size 20 --num-attention-heads 4".split(),
        "--seq-length",
        str(LENGTH),
        "--max-position-embeddings",
        str(LENGTH),
        "--micro-batch-size",
        "1",
        "--tensor-model-parallel-size",
        str(tp),
        "--pipeline-model-parallel-size",
        str(pp),
        *"--ckpt-format torch_dist --attention-dropout 0 --hidden-dropout 0".split(),
        *"--kv-channels 4 --tokenizer-type GPT2BPETokenizer".split(),
    ]
    if family == "llama":
        line += [
            *"--swiglu --disable-bias-linear --normalization RMSNorm".split(),
            *"--untie-embeddings-and-output-weights --position-embedding-type rope".split(),
            *"--group-query-attention --num-query-groups 2 --norm-epsilon 1e-6".split(),
        ]
    sys.argv = ["pretrain_gpt.py"] + line
    args = parse_args()
    args.padded_vocab_size = PADDED
    return args


def make_model(args, tp, pp, layers_apart=False):
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        ffn_hidden_size=args.ffn_hidden_size,
        num_attention_heads=args.num_attention_heads,
        kv_channels=args.kv_channels,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        num_query_groups=args.num_query_groups if args.group_query_attention else None,
        normalization=args.normalization,
        layernorm_epsilon=args.layernorm_epsilon,
        add_bias_linear=args.add_bias_linear,
        gated_linear_unit=args.swiglu,
        activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        pipeline_dtype=torch.float32,
        params_dtype=torch.float32,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=not args.swiglu,  # its GELU is the one with tanh
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        hetereogenous_dist_checkpoint=layers_apart,
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(normalization=args.normalization),
        vocab_size=PADDED,
        max_sequence_length=LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type=args.position_embedding_type,
        rotary_base=args.rotary_base,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        parallel_output=False,
    )


def start_ranks(tp, pp):
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    # its saver waits for a device, which CPU ranks have not
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda tensor, *_: tensor
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp
    )


def save(folder, family, tp, pp, more):
    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    start_ranks(tp, pp)
    args = arguments(family, tp, pp)
    model = make_model(args, tp, pp, "--non-homogeneous" in more)
    torch.manual_seed(1 + dist.get_rank())
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if name.endswith("norm.weight") or name.endswith(
                "norm.bias"
            ):  # copies on every tensor rank: alike
                parameter.add_(torch.linspace(-0.2, 0.3, parameter.numel()))
            elif parameter.dim() == 1:
                parameter.copy_(torch.linspace(-0.5, 0.4, parameter.numel()))
            else:
                parameter.normal_(0, 0.3)
    if (
        not args.untie_embeddings_and_output_weights and pp > 1
    ):  # the stages' copies of the embedding, alike
        tied = [
            p for n, p in model.named_parameters() if "word_embeddings" in n or "output_layer" in n
        ]
        torch.manual_seed(100 + dist.get_rank() % tp)
        for parameter in tied:
            with torch.no_grad():
                parameter.normal_(0, 0.3)
    if "position_embeddings" in "".join(n for n, _ in model.named_parameters()):
        torch.manual_seed(7)
        with torch.no_grad():
            model.embedding.position_embeddings.weight.normal_(0, 0.3)
    state = {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": model.sharded_state_dict(),
        "rng_state": [{"random": 5}],
    }
    os.makedirs(folder, exist_ok=True)
    dist_checkpointing.save(state, folder)
    dist.barrier()


def expect(folder, family):
    import torch
    from megatron.core import dist_checkpointing
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    start_ranks(1, 1)
    args = arguments(family, 1, 1)
    model = make_model(args, 1, 1, "layers_apart" in folder)
    state = dist_checkpointing.load({"model": model.sharded_state_dict()}, folder)
    model.load_state_dict(state["model"])
    model.eval()
    get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()  # of dropout, which is 0
    tokens = torch.tensor([TOKENS])
    mask = torch.triu(torch.ones(1, 1, len(TOKENS), len(TOKENS), dtype=torch.bool), 1)
    with torch.no_grad():
        logits = model(tokens, torch.arange(len(TOKENS))[None], mask)[0]
    with open(os.path.join(folder, "expected.json"), "w") as out:
        json.dump(
            {
                "tokens": TOKENS,
                "logits": [[float(f"{x:.6g}") for x in row[:VOCAB]] for row in logits.tolist()],
            },
            out,
        )
        out.write("\n")


def make_older(folder):
    """Moves the common state into common.pt, where Megatron-core before 0.19 had it."""
    import pickle

    import torch

    path = os.path.join(folder, ".metadata")
    with open(path, "rb") as file:
        metadata = pickle.load(file)
    index = next(i for i in metadata.storage_data if i.fqn.startswith("common_state"))
    info = metadata.storage_data.pop(index)
    del metadata.state_dict_metadata[index.fqn]
    with open(os.path.join(folder, info.relative_path), "rb") as file:
        file.seek(info.offset)
        common = torch.load(io.BytesIO(file.read(info.length)), weights_only=False)
    torch.save(common[0], os.path.join(folder, "common.pt"))
    with open(path, "wb") as file:
        pickle.dump(metadata, file)


def main():
    if len(sys.argv) > 2:
        word, folder, name = sys.argv[1:4]
        family, tp, pp, more = CASES[name]
        save(folder, family, tp, pp, more) if word == "save" else expect(folder, family)
        return
    root = sys.argv[1]
    for name, (_, tp, pp, _) in CASES.items():
        folder = os.path.join(root, name)
        for word, ranks in (("save", tp * pp), ("expect", 1)):
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "torch.distributed.run",
                    "--nproc-per-node",
                    str(ranks),
                    __file__,
                    word,
                    folder,
                    name,
                ],
                check=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        if name == "gpt2_layers_apart":
            make_older(folder)


if __name__ == "__main__":
    main()
