// derive_and_check: what follows from a configuration, and which requests are refused. The order is
// model, batches, length, learning rate, precision and memory, data and checkpoints, devices. See
// flags.h.
// Source: validate_args and get_optimizer_param_scheduler of Megatron-LM; Megatron-DeepSpeed for
// *_tokens.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/derivation.h"
#include "trainer/config/pai_tokenizer.h"

namespace trainer {

using cli::concat;
using cli::UsageError;

namespace {

// Whether the training data is named: for all splits together, or for each.
bool one_path_given(const TrainConfig& config) {
  return !config.data_path.empty() || !config.data_args_path.empty();
}
bool own_paths_given(const TrainConfig& config) {
  return !config.train_data_path.empty() || !config.valid_data_path.empty() ||
         !config.test_data_path.empty() || !config.per_split_data_args_path.empty();
}

void divides(int64_t divisor, std::string_view divisor_flag, int64_t number,
             std::string_view number_flag) {
  if (number % divisor != 0) {
    throw UsageError(
        concat("--", divisor_flag, " ", divisor, " does not divide --", number_flag, " ", number));
  }
}

void refuse_many(std::string_view flag, int64_t value) {
  if (value > 1) {
    throw UsageError(
        concat("--", flag, " ", value, ": this trainer has no such parallelism; permitted is 1"));
  }
}

// All flags without which nothing can begin; the last is the vocabulary's.
std::vector<cli::Needed> needed_flags(const TrainConfig& config) {
  const bool length = config.train_iters || config.train_samples || config.train_tokens;
  const bool data = own_paths_given(config) || one_path_given(config) || config.dry_run;
  const bool tokenizer = !(config.vocab_file + config.merge_file + config.tokenizer_model).empty();
  return {{config.num_layers.has_value(), "--num-layers"},
          {config.hidden_size.has_value(), "--hidden-size"},
          {config.num_attention_heads.has_value(), "--num-attention-heads"},
          {config.seq_length != 0, "--seq-length"},
          {config.micro_batch_size != 0, "--micro-batch-size"},
          {length, "--train-iters (or --train-samples, or --train-tokens)"},
          {config.lr.has_value() || config.skip_train, "--lr"},
          {data, "--data-path"},
          {tokenizer || config.vocab_size, "--vocab-file (or --tokenizer-model, or --vocab-size)"}};
}

}  // namespace

bool Derivation::changed(std::string_view name) const {
  if (given.find(name) == given.end()) return false;
  TrainConfig now = config, fresh;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), now);
  const std::vector<cli::Row> defaults = cli::bind_rows(flag_table(), fresh);
  return cli::find_row(rows, name)->show() != cli::find_row(defaults, name)->show();
}

void Derivation::idle(std::initializer_list<std::string_view> flags, std::string_view reason) {
  for (const std::string_view flag : flags)
    if (changed(flag)) notes.push_back(concat("--", flag, " changes nothing ", reason));
}

void Derivation::zeros() {
  if (config.save_interval == 0) config.save_interval.reset();
  if (config.exit_interval == 0) config.exit_interval.reset();
  if (config.exit_duration_in_mins == 0.0) config.exit_duration_in_mins.reset();
  config.eval_iters = std::max<int64_t>(config.eval_iters, 0);
}

// A newcomer would otherwise meet them one by one.
void Derivation::missing() const {
  // The vocabulary is find_vocabulary()'s to ask for: alone, it is not missed here.
  const std::vector<cli::Needed> needed = needed_flags(config);
  const auto others = std::span(needed).first(needed.size() - 1);
  if (std::ranges::all_of(others, &cli::Needed::there)) return;
  cli::require_all(needed);
}

void Derivation::model() {
  TrainConfig::Derived& d = derived();
  d.num_layers = *config.num_layers;
  d.hidden_size = *config.hidden_size;
  d.num_attention_heads = *config.num_attention_heads;
  if (!config.kv_channels) {
    divides(d.num_attention_heads, "num-attention-heads", d.hidden_size, "hidden-size");
  }
  d.kv_channels = config.kv_channels.value_or(d.hidden_size / d.num_attention_heads);
  d.num_query_groups =
      config.num_query_groups.value_or(config.group_query_attention ? 1 : d.num_attention_heads);
  divides(d.num_query_groups, "num-query-groups", d.num_attention_heads, "num-attention-heads");
  if (!config.group_query_attention && d.num_query_groups != d.num_attention_heads) {
    notes.push_back(concat("--num-query-groups ", d.num_query_groups,
                           ": heads share keys and values, also without --group-query-attention "
                           "(Megatron-DeepSpeed's reading; Megatron-LM would ignore the number)"));
    config.group_query_attention = true;
  }
  const int64_t plain_width = 4 * d.hidden_size;
  const int64_t gated_width = plain_width * 2 / 3 / 64 * 64;
  const bool gated = config.swiglu || config.activation == "swiglu";
  d.ffn_hidden_size =
      config.ffn_hidden_size.value_or(gated ? std::max<int64_t>(gated_width, 64) : plain_width);
  if (config.normalization == "layernorm") config.normalization = "LayerNorm";
  if (config.normalization == "rmsnorm") config.normalization = "RMSNorm";
  position();
  activation();
}

void Derivation::position() {
  TrainConfig::Derived& d = derived();
  if (config.position_embedding_type == "absolute")
    config.position_embedding_type = "learned_absolute";
  if (config.position_embedding_type == "rotary") config.position_embedding_type = "rope";
  d.position_embedding_type =
      config.use_rotary_position_embeddings ? "rope" : config.position_embedding_type;
  const bool rotary = d.position_embedding_type == "rope";
  const int64_t rotated =
      static_cast<int64_t>(static_cast<double>(d.kv_channels) * config.rotary_percent);
  if (rotary && (rotated < 2 || rotated % 2 != 0)) {
    throw UsageError(concat("--rotary-percent ", config.rotary_percent, " of a head of ",
                            d.kv_channels, " is ", rotated, ": positions rotate an even number"));
  }
  d.max_position_embeddings = config.max_position_embeddings.value_or(config.seq_length);
  if (d.max_position_embeddings < config.seq_length) {
    throw UsageError(concat("--max-position-embeddings ", d.max_position_embeddings,
                            " is less than --seq-length ", config.seq_length));
  }
  if (config.position_offset > 0 && d.position_embedding_type != "learned_absolute") {
    throw UsageError(concat("--position-offset ", config.position_offset,
                            " needs learned positions, and these are ", d.position_embedding_type));
  }
  if (config.no_position_embedding && !rotary) {
    throw UsageError(
        "--no-position-embedding goes with --position-embedding-type rope; for no positions at all "
        "use --position-embedding-type none");
  }
  if (config.use_rope_scaling && config.rotary_seq_len_interpolation_factor != 1) {
    throw UsageError(
        "--use-rope-scaling and --rotary-seq-len-interpolation-factor exclude each other");
  }
  if (config.rope_high_freq_factor <= config.rope_low_freq_factor) {
    throw UsageError(concat("--rope-high-freq-factor ", config.rope_high_freq_factor,
                            " is not above --rope-low-freq-factor ", config.rope_low_freq_factor));
  }
  if (!rotary)
    idle({"rotary-percent", "rotary-base", "rotary-seq-len-interpolation-factor",
          "use-rope-scaling"},
         "without --position-embedding-type rope");
  if (config.reset_position_ids && d.position_embedding_type != "learned_absolute")
    notes.push_back(
        concat("--reset-position-ids changes nothing: positions are ",
               rotary ? "rotary, and run through the sample as in Megatron" : "not learned"));
}

// GELU follows Megatron: its fused kernel uses the tanh formula, and without biases it has no fused
// kernel.
void Derivation::activation() {
  TrainConfig::Derived& d = derived();
  if (config.swiglu && !config.activation.empty() && config.activation != "swiglu")
    throw UsageError(
        concat("--swiglu and --activation ", config.activation, " exclude each other"));
  if (config.swiglu && config.openai_gelu)
    throw UsageError("--swiglu and --openai-gelu exclude each other");
  const bool fused = config.bias_gelu_fusion && config.add_bias_linear;
  if (!config.activation.empty()) {
    d.activation = config.activation;
  } else if (config.swiglu) {
    d.activation = "swiglu";
  } else {
    d.activation = fused || config.openai_gelu ? "gelu_tanh" : "gelu_erf";
  }
  config.swiglu = d.activation == "swiglu";
}

void Derivation::devices(int64_t world_size) {
  TrainConfig::Derived& d = derived();
  refuse_many("context-parallel-size", config.context_parallel_size);
  refuse_many("expert-model-parallel-size", config.expert_model_parallel_size);
  if (config.num_experts.value_or(1) > 1) {
    throw UsageError(
        concat("--num-experts ", *config.num_experts, ": mixtures of experts are not known here"));
  }
  const int64_t share = config.tensor_model_parallel_size * config.pipeline_model_parallel_size;
  if (world_size % share != 0) {
    throw UsageError(concat("--tensor-model-parallel-size ", config.tensor_model_parallel_size,
                            " times --pipeline-model-parallel-size ",
                            config.pipeline_model_parallel_size, " does not divide the ",
                            world_size, world_size == 1 ? " process" : " processes", " there ",
                            world_size == 1 ? "is" : "are"));
  }
  d.world_size = world_size;
  d.data_parallel_size = world_size / share;
  std::string idle;
  const auto mention = [&](bool used, std::string_view flag) {
    if (used) idle += concat(idle.empty() ? "--" : ", --", flag);
  };
  mention(config.sequence_parallel && config.tensor_model_parallel_size == 1, "sequence-parallel");
  if (d.data_parallel_size == 1) {
    mention(config.use_distributed_optimizer, "use-distributed-optimizer");
    mention(config.zero_stage > 0, "zero-stage");
    mention(config.overlap_grad_reduce, "overlap-grad-reduce");
    mention(config.overlap_param_gather, "overlap-param-gather");
    mention(config.no_copy_engines, "no-copy-engines");
  } else if (config.no_copy_engines && config.zero_stage < 2 && !config.overlap_grad_reduce &&
             !config.overlap_param_gather) {
    notes.push_back("--no-copy-engines changes nothing: no transfer is overlapped");
  }
  if (config.in_memory_checkpoint && (config.max_restarts == 0 || config.save.empty()))
    throw UsageError(concat(
        "--in-memory-checkpoint ", *config.in_memory_checkpoint, " needs ",
        config.save.empty() ? "--save: the memory is lost with this host, or with its launcher"
                            : "--max-restarts: only ranks that are started again find the memory"));
  if (config.max_restarts > 0 && config.save.empty())
    notes.push_back("--max-restarts changes nothing without --save: nothing is kept to continue");
  if (config.allow_fewer_devices && config.max_restarts == 0)
    notes.push_back("--allow-fewer-devices changes nothing without --max-restarts");
  if (!idle.empty()) {
    notes.push_back(idle + (world_size == 1 ? ": nothing to share on one device"
                                            : ": nothing to share in this layout"));
  }
}

// What tensor-parallel ranks divide among themselves.
void Derivation::tensor_parallel() {
  const int64_t size = config.tensor_model_parallel_size;
  const std::string_view flag = "tensor-model-parallel-size";
  divides(size, flag, derived().num_attention_heads, "num-attention-heads");
  divides(size, flag, derived().num_query_groups, "num-query-groups");
  divides(size, flag, derived().ffn_hidden_size, "ffn-hidden-size");
  if (config.sequence_parallel) divides(size, flag, config.seq_length, "seq-length");
}

// Which layers each stage has, and the order of a step.
void Derivation::pipeline() {
  TrainConfig::Derived& d = derived();
  const int64_t stages = config.pipeline_model_parallel_size;
  if (d.num_layers < stages) {
    throw UsageError(concat("--pipeline-model-parallel-size ", stages,
                            " is more than --num-layers ", d.num_layers));
  }
  pipeline_chunks();
  const bool many = d.pipeline_chunks > 1;
  d.pipeline_schedule = config.pipeline_schedule;
  if (d.pipeline_schedule.empty()) d.pipeline_schedule = many ? "interleaved" : "1f1b";
  if (many != (d.pipeline_schedule == "interleaved")) {
    throw UsageError(concat("--pipeline-schedule ", d.pipeline_schedule, " with ",
                            d.pipeline_chunks, " chunks on a rank: ",
                            many ? "permitted is interleaved"
                                 : "interleaved needs --num-layers-per-virtual-pipeline-stage"));
  }
  if (config.decoder_first_pipeline_num_layers || config.decoder_last_pipeline_num_layers)
    uneven_stages();
  else if (many || head_or_embedding_counted())
    even_parts();
}

int64_t Derivation::head_or_embedding_counted() const {
  return (config.account_for_embedding_in_pipeline_split ? 1 : 0) +
         (config.account_for_loss_in_pipeline_split ? 1 : 0);
}

// How many parts of the model each rank has, by either of the two flags for it.
void Derivation::pipeline_chunks() {
  TrainConfig::Derived& d = derived();
  const int64_t stages = config.pipeline_model_parallel_size;
  const std::optional<int64_t>& layers = config.num_layers_per_virtual_pipeline_stage;
  const std::optional<int64_t>& count = config.num_virtual_stages_per_pipeline_rank;
  d.pipeline_chunks = count.value_or(1);
  if (layers && count) {
    throw UsageError(
        "--num-layers-per-virtual-pipeline-stage and --num-virtual-stages-per-pipeline-rank "
        "exclude each other");
  }
  if ((layers || d.pipeline_chunks > 1) && stages == 1) {
    throw UsageError(concat(
        "--",
        layers ? "num-layers-per-virtual-pipeline-stage" : "num-virtual-stages-per-pipeline-rank",
        " needs --pipeline-model-parallel-size of 2 or more"));
  }
  if (!layers) return;
  const int64_t counted = d.num_layers + head_or_embedding_counted();
  if (counted % (*layers * stages) != 0) {
    throw UsageError(concat("--num-layers-per-virtual-pipeline-stage ", *layers,
                            " times --pipeline-model-parallel-size ", stages, " does not divide ",
                            layers_counted()));
  }
  d.pipeline_chunks = counted / (*layers * stages);
}

// "--num-layers 8", "--num-layers 6 and 2 more for embedding and loss".
std::string Derivation::layers_counted() const {
  const int64_t more = head_or_embedding_counted();
  std::string text = concat("--num-layers ", config.derived.num_layers);
  if (more > 0)
    text += concat(" and ", more, " more for ",
                   more == 2                                   ? "embedding and loss"
                   : config.account_for_loss_in_pipeline_split ? "the loss"
                                                               : "the embedding");
  return text;
}

// The same number of layers in each part; embedding and loss may count as a layer of the first and
// last part.
void Derivation::even_parts() {
  TrainConfig::Derived& d = derived();
  const int64_t parts = config.pipeline_model_parallel_size * d.pipeline_chunks;
  const int64_t counted = d.num_layers + head_or_embedding_counted();
  if (counted % parts != 0) {
    throw UsageError(concat("a pipeline of ", parts, " parts does not divide ", layers_counted()));
  }
  d.pipeline_layers.assign(static_cast<size_t>(parts), counted / parts);
  if (config.account_for_embedding_in_pipeline_split) --d.pipeline_layers.front();
  if (config.account_for_loss_in_pipeline_split) --d.pipeline_layers.back();
  if (d.pipeline_layers.front() < 1 || d.pipeline_layers.back() < 1) {
    throw UsageError(concat("a pipeline of ", parts, " parts of ", layers_counted(),
                            " leaves one end without a layer"));
  }
}

// The first and the last stage have their own numbers of layers, and the others share the rest.
void Derivation::uneven_stages() {
  TrainConfig::Derived& d = derived();
  const int64_t stages = config.pipeline_model_parallel_size;
  const std::optional<int64_t>& first = config.decoder_first_pipeline_num_layers;
  const std::optional<int64_t>& last = config.decoder_last_pipeline_num_layers;
  if (stages == 1) {
    throw UsageError(concat("--decoder-", first ? "first" : "last",
                            "-pipeline-num-layers needs several pipeline stages"));
  }
  if (head_or_embedding_counted() > 0 || config.num_layers_per_virtual_pipeline_stage) {
    throw UsageError(concat(
        "--decoder-", first ? "first" : "last", "-pipeline-num-layers excludes --",
        config.num_layers_per_virtual_pipeline_stage     ? "num-layers-per-virtual-pipeline-stage"
        : config.account_for_embedding_in_pipeline_split ? "account-for-embedding-in-pipeline-split"
                                                         : "account-for-loss-in-pipeline-split"));
  }
  const int64_t open = stages - (first ? 1 : 0) - (last ? 1 : 0);
  const int64_t left = d.num_layers - first.value_or(0) - last.value_or(0);
  if (open > 0 ? left < open || left % open != 0 : left != 0) {
    throw UsageError(concat("the first and the last stage's layers leave ", left, " for ", open,
                            " other stages: no equal share"));
  }
  std::vector<int64_t> of_stages(static_cast<size_t>(stages), open > 0 ? left / open : 0);
  if (first) of_stages.front() = *first;
  if (last) of_stages.back() = *last;
  for (const int64_t layers : of_stages) {
    if (layers % d.pipeline_chunks == 0) continue;
    throw UsageError(concat("--num-virtual-stages-per-pipeline-rank ", d.pipeline_chunks,
                            " does not divide the ", layers, " layers of a stage"));
  }
  for (int64_t chunk = 0; chunk < d.pipeline_chunks; ++chunk)
    for (const int64_t layers : of_stages) d.pipeline_layers.push_back(layers / d.pipeline_chunks);
}

void Derivation::recompute() {
  TrainConfig::Derived& d = derived();
  std::string what = config.recompute_granularity;
  if (config.recompute_activations) {
    if (what == "full")
      throw UsageError(
          "--recompute-activations is selective: it excludes --recompute-granularity full");
    what = "selective";
  }
  if (config.checkpoint_activations) {
    if (what == "selective")
      throw UsageError("--checkpoint-activations is full: it excludes selective recomputation");
    what = "full";
  }
  if (what != "full" && !config.recompute_method.empty()) {
    throw UsageError("--recompute-method needs --recompute-granularity full");
  }
  if (what != "full" && config.recompute_num_layers)
    notes.push_back("--recompute-num-layers changes nothing without --recompute-granularity full");
  d.recompute = what.empty() ? "none" : what;
  d.recompute_block = config.recompute_method == "block";
  d.recompute_num_layers = what == "full" ? config.recompute_num_layers.value_or(1) : 0;
  if (d.recompute_num_layers > d.num_layers) {
    throw UsageError(concat("--recompute-num-layers ", d.recompute_num_layers,
                            " is more than --num-layers ", d.num_layers));
  }
}

void Derivation::data() {
  TrainConfig::Derived& d = derived();
  const bool own_paths = own_paths_given(config);
  if (!config.schedule_svg.empty() && !config.dry_run)
    throw UsageError("--schedule-svg needs --dry-run");
  if (own_paths && (one_path_given(config) || !config.split.empty())) {
    throw UsageError("--train-data-path and its like exclude --data-path and --split");
  }
  if (!config.data_path.empty() && !config.data_args_path.empty()) {
    throw UsageError("--data-path and --data-args-path exclude each other");
  }
  if (config.sample_order == "gpt-neox")
    idle({"data-cache-path", "mid-level-dataset-surplus"}, "with --sample-order gpt-neox");
  d.split = config.split.empty() && !own_paths ? "969, 30, 1" : config.split;
}

void Derivation::checkpoints() {
  if (config.override_opt_param_scheduler && config.use_checkpoint_opt_param_scheduler) {
    throw UsageError(
        "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each "
        "other");
  }
  if (config.ckpt_step && config.load.empty()) throw UsageError("--ckpt-step needs --load");
  if (config.exit_on_missing_checkpoint && config.load.empty()) {
    throw UsageError("--exit-on-missing-checkpoint needs --load");
  }
  if (config.save_interval && config.save.empty()) {
    notes.push_back("--save-interval without --save: no checkpoint will be written");
  }
  if (config.load.empty() && (config.save.empty() || config.max_restarts == 0))
    idle({"no-load-optim", "no-load-rng"}, "in a start without --load");
  if (config.tensorboard_dir.empty())
    idle({"tensorboard-log-interval", "log-timers-to-tensorboard",
          "log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard",
          "no-log-loss-scale-to-tensorboard"},
         "without --tensorboard-dir");
  if (config.keep_last && config.save.empty()) throw UsageError("--keep-last needs --save");
  if (config.finetune && config.load.empty() && config.pretrained_checkpoint.empty())
    throw UsageError("--finetune needs --load or --pretrained-checkpoint");
  const bool in_save = config.metrics_file.empty() && !config.save.empty() && !config.skip_train;
  derived().metrics_file = in_save ? config.save + "/metrics.jsonl" : config.metrics_file;
}

std::vector<std::string> derive_and_check(TrainConfig& config, const Given& given,
                                          int64_t world_size) {
  config.derived = {};
  Derivation derivation{config, given, {}};
  derivation.zeros();
  derivation.missing();
  derivation.model();
  derivation.devices(world_size);
  derivation.tensor_parallel();
  derivation.pipeline();
  derivation.batches();
  derivation.length();
  derivation.learning_rate();
  derivation.weight_decay();
  derivation.optimizer();
  derivation.precision();
  derivation.recompute();
  derivation.data();
  derivation.checkpoints();
  return std::move(derivation.notes);
}

std::vector<std::string> missing_flags(const TrainConfig& config) {
  std::vector<std::string> out;
  for (const cli::Needed& flag : needed_flags(config))
    if (!flag.there) out.emplace_back(flag.flag);
  return out;
}

int64_t pad_vocab_size(const TrainConfig& config, int64_t vocab_size) {
  const int64_t ranks = config.tensor_model_parallel_size;
  const PaiTokenizer* pai = find_pai_tokenizer(config);
  if (pai && !pai->padded && !config.padded_vocab_size) {
    if (vocab_size % ranks == 0) return vocab_size;
    throw UsageError(
        concat("--patch-tokenizer-type ", pai->name, ": ", vocab_size,
               " rows, not padded, as in Pai-Megatron-Patch, and --tensor-model-parallel-size ",
               ranks, " does not divide them: give ",
               pai->extra ? "another --extra-vocab-size, or " : "", "--padded-vocab-size"));
  }
  const int64_t multiple = config.make_vocab_size_divisible_by * ranks;
  const int64_t rows =
      config.padded_vocab_size.value_or((vocab_size + multiple - 1) / multiple * multiple);
  if (rows < vocab_size || rows % ranks != 0) {
    throw UsageError(concat("--padded-vocab-size ", rows, ": expected a multiple of ", ranks,
                            " that is at least the vocabulary's ", vocab_size));
  }
  return rows;
}

}  // namespace trainer
