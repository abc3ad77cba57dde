// The keys of GPT-NeoX's configurations that neox.cc transfers, names or refuses by rule; it reads
// all others one by one. Included only by neox.cc. May include: the standard library.
// Source: GPT-NeoX, megatron/neox_arguments/neox_args.py and deepspeed_args.py.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <map>
#include <set>
#include <string_view>

namespace trainer::neox {

// Keys whose flag has another name; for others, in kSame, `_` becomes `-`.
inline const std::map<std::string_view, std::string_view> kFlags = {
    {"checkpoint_factor", "save-interval"},
    {"keep_last_n_checkpoints", "keep-last"},
    {"log_grad_pct_zeros", "log-num-zeros-in-grad"},
    {"log_param_norm", "log-params-norm"},
    {"model_parallel_size", "tensor-model-parallel-size"},
    {"opt_pos_emb_offset", "position-offset"},
    {"override_lr_scheduler", "override-opt_param-scheduler"},
    {"rotary_emb_base", "rotary-base"},
    {"rotary_pct", "rotary-percent"},
    {"use_checkpoint_lr_scheduler", "use-checkpoint-opt_param-scheduler"},
    {"warmup", "lr-warmup-fraction"}};
inline const std::set<std::string_view> kSame = {"attention_dropout",
                                                 "data_impl",
                                                 "data_path",
                                                 "distributed_backend",
                                                 "eod_mask_loss",
                                                 "eval_interval",
                                                 "eval_iters",
                                                 "exit_interval",
                                                 "extra_save_iters",
                                                 "finetune",
                                                 "hidden_dropout",
                                                 "hidden_size",
                                                 "load",
                                                 "log_interval",
                                                 "lr_decay_iters",
                                                 "lr_decay_style",
                                                 "make_vocab_size_divisible_by",
                                                 "max_position_embeddings",
                                                 "merge_file",
                                                 "min_lr",
                                                 "no_load_optim",
                                                 "no_load_rng",
                                                 "no_save_optim",
                                                 "no_save_rng",
                                                 "num_attention_heads",
                                                 "num_layers",
                                                 "save",
                                                 "save_interval",
                                                 "seed",
                                                 "seq_length",
                                                 "sequence_parallel",
                                                 "split",
                                                 "tensorboard_dir",
                                                 "tokenizer_type",
                                                 "train_iters",
                                                 "vocab_file",
                                                 "weight_decay"};

// Keys that change nothing here, whatever their value: about logging elsewhere, starting a job, or
// how the same numbers are computed; or that count only beside a key that is refused, as
// base_shapes_file beside use_mup, and allow_chopped beside a pack_impl other than packed.
inline const std::set<std::string_view> kIdle = {"allow_chopped",
                                                 "apply_query_key_layer_scaling",
                                                 "attention_softmax_in_fp32",
                                                 "base_shapes_file",
                                                 "bias_dropout_fusion",
                                                 "checkpoint_in_cpu",
                                                 "comment",
                                                 "config_files",
                                                 "contiguous_checkpointing",
                                                 "deepspeed_activation_checkpointing",
                                                 "deepspeed_extra_args",
                                                 "deepspeed_mpi",
                                                 "deepspeed_slurm",
                                                 "detect_nvlink_pairs",
                                                 "eval_results_prefix",
                                                 "exclude",
                                                 "force_multi",
                                                 "fp16_lm_cross_entropy",
                                                 "git_hash",
                                                 "hostfile",
                                                 "include",
                                                 "launcher",
                                                 "launcher_args",
                                                 "layernorm_fusion",
                                                 "lazy_mpu_init",
                                                 "local_rank",
                                                 "log_dir",
                                                 "log_grad_norm",
                                                 "master_addr",
                                                 "master_port",
                                                 "memory_profiling_path",
                                                 "mmap_warmup",
                                                 "no_ssh_check",
                                                 "num_gpus",
                                                 "num_nodes",
                                                 "num_workers",
                                                 "onnx_safe",
                                                 "output_layer_parallelism",
                                                 "partition_activations",
                                                 "pipe_partition_method",
                                                 "profile_step_start",
                                                 "profile_step_stop",
                                                 "rope_fusion",
                                                 "save_base_shapes",
                                                 "scaled_masked_softmax_fusion",
                                                 "scaled_upper_triang_masked_softmax_fusion",
                                                 "synchronize_each_layer",
                                                 "use_cpu_initialization",
                                                 "use_flashattn_swiglu",
                                                 "use_shared_fs",
                                                 "use_wandb",
                                                 "user_script",
                                                 "wandb_group",
                                                 "wandb_host",
                                                 "wandb_init_all_ranks",
                                                 "wandb_project",
                                                 "wandb_run_name",
                                                 "wandb_team",
                                                 "weighted_document_limit",
                                                 "weighted_sampler_alpha"};

// Keys for DeepSpeed, and the flag that then overrides each.
inline const std::map<std::string_view, std::string_view> kDeepspeed = {
    {"activation_checkpointing", ""},
    {"bf16", "bf16"},
    {"comms_logger", ""},
    {"communication_data_type", ""},
    {"csv_monitor", ""},
    {"data_types", ""},
    {"dump_state", ""},
    {"flops_profiler", ""},
    {"fp16", "fp16"},
    {"gradient_accumulation_steps", "global-batch-size"},
    {"gradient_clipping", "clip-grad"},
    {"gradient_predivide_factor", ""},
    {"prescale_gradients", ""},
    {"sparse_gradients", ""},
    {"steps_per_print", ""},
    {"tensorboard", ""},
    {"train_batch_size", "global-batch-size"},
    {"train_micro_batch_size_per_gpu", "micro-batch-size"},
    {"wall_clock_breakdown", ""},
    {"wandb", ""},
    {"zero_allow_untested_optimizer", ""},
    {"zero_optimization", "zero-stage"}};

// Keys of which one value, GPT-NeoX's default, asks for nothing.
inline const std::map<std::string_view, std::string_view> kDefaults = {
    {"dataset_impl", "gpt2"}, {"pack_impl", "packed"}, {"train_impl", "normal"}};

// Keys that GPT-NeoX has no more, and what to give instead.
inline const std::map<std::string_view, std::string_view> kGone = {
    {"reset_attention_mask", "--reset-attention-mask"},
    {"reset_position_ids", "--reset-position-ids"}};

/// What the files may leave out, and GPT-NeoX's default for it: since December 2023, and before.
/// Source: GPT-NeoX's pull request 1107.
struct LeftOut {
  std::string_view key, flag, now, before;
};
inline constexpr std::array<LeftOut, 3> kLeftOut = {
    {{"hidden_dropout", "hidden-dropout", "0", "0.1"},
     {"attention_dropout", "attention-dropout", "0", "0.1"},
     {"weight_decay", "weight-decay", "0.1", "0.01"}}};

// Keys of kSame and kFlags that say which model a checkpoint holds, and which text goes with it.
// The values of tokenizer_type.
inline constexpr std::string_view kTokenizers[] = {"GPT2BPETokenizer",   "HFTokenizer",
                                                   "HFGPT2Tokenizer",    "SPMTokenizer",
                                                   "CharLevelTokenizer", "TiktokenTokenizer"};

inline constexpr std::array<std::string_view, 13> kModel = {"attention_dropout",
                                                            "hidden_dropout",
                                                            "hidden_size",
                                                            "make_vocab_size_divisible_by",
                                                            "max_position_embeddings",
                                                            "merge_file",
                                                            "num_attention_heads",
                                                            "num_layers",
                                                            "opt_pos_emb_offset",
                                                            "rotary_emb_base",
                                                            "rotary_pct",
                                                            "tokenizer_type",
                                                            "vocab_file"};
// Keys that ask for another model than any here.
inline constexpr std::array<std::string_view, 5> kOtherModels = {
    "apply_layernorm_1p", "mup", "soft_prompt_tuning", "use_mup", "use_qk_layernorm"};

}  // namespace trainer::neox
