// TrainConfig: what the user asked for, and what follows from it. The fields have the names of
// Megatron's arguments; the rows that the user sees (flags, help, configuration file, the copy in a
// checkpoint) are in flags.h, what follows from them is computed in derive.cc. Plain data: nothing
// here opens a file or uses a device. Units: batch sizes and *_samples in samples (sequences of
// seq_length tokens), *_iters in steps, *_tokens in tokens. Source: Megatron-LM
// megatron/training/arguments.py (names, defaults and rules), Megatron-DeepSpeed (its additions).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

/// Everything that was asked for, and, after derive_and_check(), everything that follows. Constant
/// from then on.
struct TrainConfig {
  // Model.
  std::optional<int64_t> num_layers, hidden_size, ffn_hidden_size, num_attention_heads, kv_channels;
  std::optional<int64_t> num_query_groups, max_position_embeddings, vocab_size;
  std::optional<int64_t> padded_vocab_size;
  bool group_query_attention = false;
  std::string position_embedding_type = "learned_absolute";
  bool use_rotary_position_embeddings = false, no_position_embedding = false;
  double rotary_percent = 1.0, rotary_base = 10000, rotary_seq_len_interpolation_factor = 1;
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8;
  double rope_low_freq_factor = 1, rope_high_freq_factor = 4;  ///< ours.
  int64_t rope_original_max_position_embeddings = 8192;        ///< ours.
  int64_t sliding_window = 0;                                  ///< 0: none.
  std::string model_family;                                    ///< ours.
  std::string normalization = "LayerNorm";
  double norm_epsilon = 1e-5;
  bool swiglu = false, openai_gelu = false, bias_gelu_fusion = true;
  std::string
      activation;  ///< ours: gelu_tanh, gelu_erf, relu or swiglu; empty: from the five flags above.
  int64_t position_offset = 0;  ///< ours: rows of the position table before position 0.
  bool add_bias_linear = true, add_qkv_bias = false, parallel_residual = false;
  bool attention_bias = false, mlp_bias = false;  ///< ours.
  bool qk_layernorm = false;
  bool post_norm = false;      ///< ours.
  int64_t embedding_size = 0;  ///< ours; 0: hidden_size.
  bool untie_embeddings_and_output_weights = false;
  int64_t make_vocab_size_divisible_by = 128, extra_vocab_size = 0;
  std::optional<double> output_layer_init_method_std;  ///< else init_method_std / sqrt(2 layers).
  double init_method_std = 0.02, attention_dropout = 0.1, hidden_dropout = 0.1;

  // Tokenizer.
  std::string tokenizer_type, patch_tokenizer_type, vocab_file, merge_file, tokenizer_model;
  std::string tiktoken_pattern;
  std::optional<int64_t> tiktoken_num_special_tokens;
  std::vector<std::string> tiktoken_special_tokens, tokenizer_special_tokens;

  // Batches and length of the run.
  int64_t seq_length = 0, micro_batch_size = 0;
  std::optional<int64_t> global_batch_size, train_iters, train_samples, train_tokens;
  std::vector<std::string> rampup_batch_size;  ///< start, increment, samples.
  std::optional<int64_t>
      max_global_batch_size;  ///< ours: the layout is chosen for at most this many.
  bool auto_layout = false, new_layout = false;  ///< ours: chosen; not the checkpoint's choice.
  std::vector<std::string> chosen_flags;         ///< ours: those of the layout that a choice set.

  // Learning.
  std::optional<double> lr, lr_warmup_fraction, start_weight_decay, end_weight_decay;
  double min_lr = 0, lr_warmup_init = 0, weight_decay = 0.01;
  std::string lr_decay_style = "linear", lr_wsd_decay_style = "exponential",
              weight_decay_incr_style = "constant", optimizer = "adam";
  std::optional<int64_t> lr_decay_iters, lr_decay_samples, lr_decay_tokens, lr_wsd_decay_iters,
      lr_wsd_decay_samples, lr_warmup_tokens;
  int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double muon_momentum = 0.9, muon_extra_scale_factor = 1.0;
  bool muon_nesterov = false, muon_split_qkv = true;
  int64_t muon_num_ns_steps = 5;
  std::string muon_coefficient_type = "quintic", muon_scale_mode = "spectral",
              muon_fp32_matmul_prec = "medium", muon_tp_mode = "blockwise",
              muon_scalar_optimizer = "adam";
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_eps = 1e-8, clip_grad = 1.0;
  int64_t seed = 1234;

  // Precision.
  bool fp16 = false, bf16 = false;
  std::optional<double> loss_scale;
  double initial_loss_scale = 4294967296.0, min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000, hysteresis = 2;
  bool accumulate_allreduce_grads_in_fp32 = false, grad_reduce_in_bf16 = false;
  bool fp32_residual_connection = false;
  std::string exp_avg_dtype = "fp32";  ///< of both moments: fp32 or bf16.
  std::string exp_avg_sq_dtype;        ///< empty, or the same.
  std::string fp8_format;              ///< empty, e4m3 or hybrid.
  std::string fp8_recipe = "delayed", fp8_amax_compute_algo = "max";
  int64_t fp8_margin = 0, fp8_amax_history_len = 16;
  bool fp8_power_of_two_scales = true;
  bool fp8_wgrad = true, fp8_param_gather = false, first_last_layers_bf16 = false;
  int64_t num_layers_at_start_in_bf16 = 1, num_layers_at_end_in_bf16 = 1;

  // Memory.
  bool recompute_activations = false, checkpoint_activations = false;
  std::string recompute_granularity, recompute_method;
  std::optional<int64_t> recompute_num_layers;
  bool cpu_offload = false;

  // Data.
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string data_args_path, per_split_data_args_path, split, data_cache_path;
  std::string data_impl = "mmap", dataloader_type = "single";
  std::string sample_order = "megatron";  ///< ours: or gpt-neox.
  double mid_level_dataset_surplus = 0.005;
  bool calculate_per_token_loss = false;
  bool eod_mask_loss = false, reset_position_ids = false, reset_attention_mask = false;
  std::optional<int64_t> eod_id;

  // Checkpoints.
  std::string save, load, pretrained_checkpoint;
  std::optional<int64_t> save_interval, ckpt_step, keep_last;
  std::vector<int64_t> extra_save_iters;  ///< GPT-NeoX's: steps that are saved too.
  bool no_save_optim = false, no_save_rng = false, no_load_optim = false, no_load_rng = false;
  bool finetune = false, exit_on_missing_checkpoint = false, use_checkpoint_args = false;
  bool override_opt_param_scheduler = false, use_checkpoint_opt_param_scheduler = false;
  bool async_save = true;

  // Evaluation, logging, stopping.
  int64_t eval_interval = 1000, eval_iters = 100, log_interval = 100, tensorboard_log_interval = 1;
  bool skip_train = false, log_throughput = false, log_params_norm = false,
       log_num_zeros_in_grad = false;
  bool plot = false, plot_ascii = false;  ///< ours.
  bool log_timers_to_tensorboard = false, log_validation_ppl_to_tensorboard = false,
       log_world_size_to_tensorboard = false, log_loss_scale_to_tensorboard = true;
  std::string tensorboard_dir, metrics_file, stop_file;
  std::optional<int64_t> exit_interval;
  std::optional<double> exit_duration_in_mins;

  // Devices.
  std::string device = "auto";
  std::string distributed_backend;
  std::optional<int64_t> nproc_per_node, cpu_threads;
  std::optional<int64_t> nnodes, node_rank, master_port;
  std::string master_addr;
  int64_t tensor_model_parallel_size = 1, pipeline_model_parallel_size = 1,
          context_parallel_size = 1, expert_model_parallel_size = 1;
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage,
      num_virtual_stages_per_pipeline_rank, num_experts;
  bool account_for_embedding_in_pipeline_split = false, account_for_loss_in_pipeline_split = false;
  std::optional<int64_t> decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers;
  std::string pipeline_schedule;  ///< ours: 1f1b, interleaved, zero-bubble; empty: what fits.
  bool sequence_parallel = false, use_distributed_optimizer = false, overlap_grad_reduce = false,
       overlap_param_gather = false;
  bool no_copy_engines = false;  ///< ours.
  int64_t zero_stage = 0;
  double distributed_timeout_minutes = 10;
  double meeting_timeout_seconds = 60;  ///< ours.
  double hang_timeout_seconds = 45;     ///< ours.
  int64_t max_restarts = 0;             ///< ours: by the trainer's own launcher.
  double rejoin_timeout_minutes = 10;   ///< ours.
  bool allow_fewer_devices = false;     ///< ours: after a restart.
  /// ours: steps between copies in the launcher's memory.
  std::optional<int64_t> in_memory_checkpoint;
  std::string rendezvous, job_secret_file;
  std::optional<int64_t> cuda_graph;  ///< ours: 0 runs every step call by call.

  // The command itself.
  std::optional<int64_t> gradient_accumulation_steps;  ///< Of --deepspeed_config's file.
  std::string deepspeed_config;
  std::vector<std::string> neox_config;  ///< --config's files of GPT-NeoX.
  bool dry_run = false;
  std::string schedule_svg;                ///< ours: where --dry-run draws the schedule.
  std::string gpu;                         ///< ours: the card to plan for, by name or as a file.
  std::optional<double> network_gb_per_s;  ///< ours: of a host.

  // Derived values; set by derive_and_check() and constant from then on.
  struct Derived {
    int64_t world_size = 1, data_parallel_size = 1;
    int64_t pipeline_chunks = 1;    ///< parts of the model on each pipeline rank.
    std::string pipeline_schedule;  ///< 1f1b, interleaved or zero-bubble.
    /// Layers of each part, in the order of the model; empty: balanced with the output layer.
    std::vector<int64_t> pipeline_layers;
    int64_t num_layers = 0, hidden_size = 0, ffn_hidden_size = 0, num_attention_heads = 0,
            kv_channels = 0, num_query_groups = 0, max_position_embeddings = 0;
    std::string position_embedding_type, activation;
    int64_t global_batch_size = 0;  ///< at the end of a ramp-up.
    int64_t train_iters =
        0;  ///< steps of the whole run; for a run by samples, counted through the ramp-up.
    int64_t train_samples = 0;  ///< samples that the steps consume.
    double lr_warmup_samples = 0, lr_decay_samples = 0,
           lr_wsd_decay_samples = 0;  ///< may be fractional.
    double start_weight_decay = 0, end_weight_decay = 0;
    bool muon = false;                 ///< --optimizer muon or dist_muon.
    std::string recompute;             ///< none, selective or full.
    int64_t recompute_num_layers = 0;  ///< layers recomputed together (uniform) or in total
                                       ///< (block).
    bool recompute_block = false;      ///< --recompute-method block.
    std::string split;
    std::string metrics_file;  ///< --metrics-file, or metrics.jsonl in --save; empty: none.
    int64_t rampup_start = 0, rampup_increment = 0, rampup_samples = 0;  ///< zeros: no ramp-up.
  } derived;
};

/// Which samples a step takes: the ramp-up of the global batch.
/// Source: Megatron-LM core/num_microbatches_calculator.py
/// (RampupBatchsizeNumMicroBatchesCalculator).
class BatchSchedule {
 public:
  /// A constant size, or a ramp from the configuration's `derived`.
  explicit BatchSchedule(const TrainConfig& config);

  /// Global batch size in samples of the step that starts after `consumed_samples`.
  int64_t global_batch_size(int64_t consumed_samples) const noexcept;

  /// Micro-batches of that step on each data-parallel rank.
  int64_t num_microbatches(int64_t consumed_samples) const noexcept {
    return global_batch_size(consumed_samples) / samples_per_microbatch_;
  }

  /// Steps until `train_samples` are consumed, from `consumed` of them on; the last, partial step
  /// does not count.
  int64_t steps_for(int64_t train_samples, int64_t consumed = 0) const noexcept;

  /// Samples that are consumed `steps` steps after `consumed` are.
  int64_t samples_after(int64_t steps, int64_t consumed = 0) const noexcept;

  /// How many of the `steps` steps after `consumed` samples have each number of micro-batches.
  std::map<int64_t, int64_t> steps_by_microbatches(int64_t steps, int64_t consumed = 0) const;

 private:
  int64_t equal_steps(int64_t consumed_samples) const noexcept;

  int64_t samples_per_microbatch_;  ///< micro-batch size times data-parallel size.
  int64_t full_, start_, increment_, ramp_samples_;
};

/// Steps of the whole run, of which `done` are done and have consumed `consumed_samples`, whatever
/// their batch sizes were: --train-samples and --train-tokens are those of the whole run. The last,
/// partial step counts for tokens only. Needs everything that BatchSchedule needs.
int64_t steps_of_run(const TrainConfig& config, int64_t done = 0, int64_t consumed_samples = 0);

}  // namespace trainer
