// See start.h. Everything that can be wrong between a command line and a checkpoint is found here.
// Source: Megatron-LM checkpointing.py (check_checkpoint_args) and optimizer_param_scheduler.py.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/start.h"

#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libindexed/format.h"
#include "tools/cli/flags.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/killed_conversion.h"
#include "trainer/config/flags.h"
#include "trainer/data/batch_loader.h"
#include "trainer/session/assembly.h"
#include "trainer/spec/families.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using Record = std::map<std::string, std::string>;

// Whether two texts are equal, as text or as numbers: 5e+05 and 500000.0.
bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  double x = 0, y = 0;
  const std::from_chars_result ends[] = {std::from_chars(a.data(), a.data() + a.size(), x),
                                         std::from_chars(b.data(), b.data() + b.size(), y)};
  return ends[0].ec == std::errc() && ends[0].ptr == a.data() + a.size() &&
         ends[1].ec == std::errc() && ends[1].ptr == b.data() + b.size() && x == y;
}

// Checks what must not differ between a run and the checkpoint from which it resumes.
void check_model(const CheckpointMeta& meta, const ModelSpec& spec, const TrainConfig& config,
                 const std::string& path) {
  static const std::set<std::string> kFree = {"hidden_dropout", "attention_dropout",
                                              "init_method_std", "vocab_size", "family"};
  const Record wanted = model_record(spec), before = model_record({});
  for (const auto& [key, value] : wanted) {
    const Record::const_iterator found = meta.model.find(key);
    const std::string& stored = found != meta.model.end() ? found->second : before.at(key);
    if (kFree.contains(key) || same_value(stored, value)) continue;
    const int64_t ranks = config.tensor_model_parallel_size;
    if (key == "padded_vocab_size" && std::strtoll(stored.c_str(), nullptr, 10) % ranks != 0)
      throw UsageError(concat(path, ": its vocabulary has ", stored, " rows with padding, which ",
                              ranks,
                              " tensor-parallel ranks cannot divide: convert it with "
                              "--make-vocab-size-divisible-by ",
                              ranks, ", or take fewer ranks"));
    throw UsageError(concat(path, ": the model's ", key, " is ", stored, ", this command's is ",
                            value,
                            config.use_checkpoint_args
                                ? ": leave it out, or give the same as the checkpoint"
                                : ": give --use-checkpoint-args, or the same as the checkpoint"));
  }
}

// " (--train-iters 120)", where the command has the schedule's number in another unit.
std::string follows_from(const TrainConfig& config, const std::string& flag) {
  const std::string source = schedule_source(config, flag);
  return source.empty() ? "" : concat(" (", source, ")");
}

// Megatron's rule: both must agree, unless the command says which of the two applies.
void settle_schedule(const TrainConfig& config, const CheckpointMeta& meta, LrSchedule& schedule,
                     const std::string& path) {
  if (config.override_opt_param_scheduler) return;
  if (config.use_checkpoint_opt_param_scheduler) {
    apply_schedule_record(meta.schedule, schedule);
    return;
  }
  const Record wanted = schedule_record(schedule);
  for (const auto& [flag, value] : meta.schedule) {
    const Record::const_iterator now = wanted.find(flag);
    if (now == wanted.end() || same_value(now->second, value)) continue;
    if (flag == "weight-decay-samples" && config.weight_decay_incr_style == "constant") continue;
    const bool constant = config.weight_decay_incr_style == "constant";
    const bool decay = flag == "start-weight-decay" || flag == "end-weight-decay";
    throw UsageError(concat(path, ": --", constant && decay ? "weight-decay" : flag, " is ", value,
                            ", this command's is ", now->second, follows_from(config, flag),
                            ": give --override-opt_param-scheduler to take the command's, or "
                            "--use-checkpoint-opt_param-scheduler to take the checkpoint's"));
  }
}

// Another optimizer has another state, which cannot be used.
void check_optimizer(const TrainConfig& config, const CheckpointMeta& meta, const ModelSpec& spec,
                     const std::string& path) {
  const OptimizerKind kind = config.derived.muon ? OptimizerKind::muon : OptimizerKind::adamw;
  const auto stored = meta.config.find("optimizer");
  const std::string writer = stored == meta.config.end() || stored->second.empty()
                                 ? "another optimizer wrote it"
                                 : concat("it was written with --optimizer ", stored->second[0]);
  for (const StateSpec& state : optimizer_states(kind)) {
    for (const ParamSpec& param : param_table(spec)) {
      if (!keeps(state, param) || meta.find(state.name, param.name) != nullptr) continue;
      throw UsageError(concat("--optimizer ", config.optimizer, ": ", path, " has no ", state.name,
                              " of ", param.name, ": ", writer,
                              "; --no-load-optim takes only its weights"));
    }
  }
}

}  // namespace

std::string offer_before(const TrainConfig& config, const std::string& path, int64_t iteration) {
  const auto comes_from = [&](const std::string& given) {
    return !given.empty() && (same_folder(path, given) || lies_in(path, given));
  };
  const bool pretrained = comes_from(config.pretrained_checkpoint) && !comes_from(config.load);
  const std::string& given = pretrained ? config.pretrained_checkpoint : config.load;
  const std::filesystem::path whole = plain_path(path);
  const bool itself = same_folder(path, given);
  std::string root = given;
  if (itself) {
    const std::filesystem::path named = (std::filesystem::path(path) / "").lexically_normal();
    root = named.parent_path().parent_path();
    if (root.empty()) root = ".";
    if (named.parent_path().filename() != whole.filename())
      root = whole.parent_path();  // "." or ".."
  }
  return offer_previous(whole.parent_path(), iteration, [&](int64_t step) {
    if (pretrained)
      return concat("begin from it with --pretrained-checkpoint ",
                    cli::shell_word(iteration_folder(root, step)));
    return concat("go on from it with ",
                  itself ? concat("--load ", cli::shell_word(root), " ") : "", "--ckpt-step ",
                  step);
  });
}

Checkpoint open_checkpoint(const std::string& path, const TrainConfig& config) {
  try {
    return Checkpoint::open(path);
  } catch (const std::exception& error) {
    const std::string name = plain_path(path).filename();
    const std::string digits = name.substr(name.find_last_of('_') + 1);
    const bool numbered =
        !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    const int64_t iteration = numbered ? std::stoll(digits) : 0;
    throw indexed::FormatError(
        concat(cli::describe(error), "; ", offer_before(config, path, iteration)));
  }
}

namespace {

/// Whether two texts of BatchLoader::places() agree about the samples that both know.
bool agree(std::string_view a, std::string_view b) {
  const size_t both = std::min(a.size(), b.size());  // checksums are of one length
  return both < 8 || a.substr(both - 8, 8) == b.substr(both - 8, 8);
}

using Flags = std::map<std::string, std::vector<std::string>>;

// "--seed was 1, is 2", of each of these flags that has changed.
std::vector<std::string> changes_of(const std::vector<const char*>& flags, const Flags& before,
                                    const Flags& now) {
  std::vector<std::string> changes;
  for (const char* flag : flags) {
    const auto stored = before.find(flag), given = now.find(flag);
    if (stored == before.end() || given == now.end() || given->second.empty()) continue;
    const std::string was = cli::join(stored->second, " "), is = cli::join(given->second, " ");
    if (!same_value(was, is)) changes.push_back(concat("--", flag, " was ", was, ", is ", is));
  }
  return changes;
}

// With the flags that are not given and have no value then: they are off.
Flags with_those_off(Flags flags) {
  for (const char* flag : {"fp8-format", "loss-scale"}) flags.try_emplace(flag, 1, "off");
  return flags;
}

void note_settings(const TrainConfig& config, const CheckpointMeta& meta, cli::Console& console) {
  if (config.skip_train || meta.config.empty()) return;
  const Flags before = with_those_off(meta.config), now = with_those_off(flag_values(config));
  std::vector<const char*> flags = {"fp16",
                                    "bf16",
                                    "fp8-format",
                                    "exp-avg-dtype",
                                    "grad-reduce-in-bf16",
                                    "accumulate-allreduce-grads-in-fp32",
                                    "adam-beta1",
                                    "adam-beta2",
                                    "adam-eps",
                                    "clip-grad",
                                    "hidden-dropout",
                                    "attention-dropout",
                                    "eod-mask-loss",
                                    "reset-position-ids",
                                    "reset-attention-mask",
                                    "calculate-per-token-loss"};
  // Those that count only beside `main`, where that has not changed.
  const auto add = [&](bool counts, const char* main, std::vector<const char*> more) {
    if (counts && changes_of({main}, before, now).empty())
      flags.insert(flags.end(), more.begin(), more.end());
  };
  add(config.fp16, "fp16", {"loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"});
  add(!config.fp8_format.empty(), "fp8-format",
      {"fp8-recipe", "fp8-margin", "fp8-amax-history-len", "fp8-amax-compute-algo", "no-fp8-wgrad",
       "first-last-layers-bf16"});
  add(config.derived.muon, "optimizer",
      {"muon-momentum", "muon-nesterov", "muon-no-split-qkv", "muon-num-ns-steps",
       "muon-scale-mode", "muon-extra-scale-factor"});
  const std::vector<std::string> changes = changes_of(flags, before, now);
  if (!changes.empty())
    console.note(concat(cli::join(changes, "; "), ": from here on the command's counts"));
}

void note_order(const TrainConfig& config, const CheckpointMeta& meta,
                const indexed::TrainingData& data, cli::Console& console) {
  if (data.split(0) == nullptr) return;
  const BatchLoader loader(data, *data.split(0), {.seq_length = config.seq_length});
  const int64_t consumed = meta.state.consumed_train_samples;
  if (!meta.last_samples.empty() && loader.digest(consumed) == meta.last_samples &&
      agree(loader.places(consumed), meta.next_samples))
    return;
  const Flags now = flag_values(config);
  std::vector<std::string> changes =
      changes_of({"data-path", "train-data-path", "seed", "seq-length", "split", "sample-order"},
                 meta.config, now);
  // These change the number of epochs, and with it the order, only sometimes.
  if (!meta.last_samples.empty())
    for (std::string& change :
         changes_of({"train-iters", "train-samples", "global-batch-size"}, meta.config, now))
      changes.push_back(std::move(change));
  if (changes.empty() && meta.last_samples.empty()) return;
  if (changes.empty()) changes.push_back("the data has changed");
  console.note(concat(cli::join(changes, "; "),
                      ": samples will come in another order than they would have"));
}

// A blend without weights has as many samples as its datasets, whatever the run needs: this is
// reported now, not when they run out.
void check_samples(const TrainConfig& config, const RunState& state,
                   const indexed::TrainingData& data, cli::Console& console) {
  const auto check = [&](int64_t split, int64_t needed, const char* what) {
    const indexed::SplitData* samples = data.split(split);
    if (samples == nullptr || samples->num_samples() >= needed) return;
    throw indexed::FormatError(concat("the ", what, " data has ", samples->num_samples(),
                                      " samples, the run needs ", needed,
                                      ": give weights with --data-path, or fewer steps"));
  };
  if (data.split(0) == nullptr && !config.skip_train)
    throw indexed::FormatError(
        concat("--split ", config.derived.split, " leaves no samples for training"));
  if (!config.skip_train && state.iteration < config.derived.train_iters)
    check(0, samples_of_run(config, state), "training");
  if (config.eval_iters == 0) return;
  for (const std::string& split : splits_asked(config)) {
    if (split == "train" || data.split(split == "valid" ? 1 : 2) != nullptr) continue;
    console.note(concat("--split ", config.derived.split, " leaves no document for ", split,
                        ": there is no such evaluation"));
  }
  const std::array<int64_t, 3> wanted = requested_samples(config);
  check(1, wanted[1], "validation");
  check(2, wanted[2], "test");
}

}  // namespace

bool begins_before_others(const TrainConfig& config, const Start& start) {
  try {
    const std::vector<int64_t> stored = stored_iterations(config.save);
    return !stored.empty() && stored.back() > start.state().iteration;
  } catch (const std::exception&) {
    return false;
  }
}

int64_t samples_of_run(const TrainConfig& config, const RunState& state) {
  return BatchSchedule(config).samples_after(
      std::max<int64_t>(config.derived.train_iters - state.iteration, 0),
      state.consumed_train_samples);
}

void settle_start(TrainConfig& config, EngineOptions& options, const Start& start) {
  if (!start.checkpoint || start.weights_only) return;
  const RunState state = start.state();
  TrainConfig::Derived& d = config.derived;
  d.train_iters = steps_of_run(config, state.iteration, state.consumed_train_samples);
  // After a change of the batch size, weighted data must last for what is ahead.
  d.train_samples = std::max(d.train_samples, samples_of_run(config, state));
  if (!config.no_load_rng) options.seed = static_cast<uint32_t>(state.seed);
}

void check_data(const TrainConfig& config, const Start& start, const indexed::TrainingData& data,
                cli::Console& console) {
  if (start.checkpoint && !start.weights_only) {
    note_order(config, start.checkpoint->meta(), data, console);
    note_settings(config, start.checkpoint->meta(), console);
  }
  check_samples(config, start.state(), data, console);
}

void follow_checkpoint(const TrainConfig& config, const Vocabulary& vocabulary, ModelSpec& spec,
                       cli::Console& console, const Checkpoint* in_memory) {
  std::optional<std::string> path;
  if (in_memory != nullptr) path = in_memory->path();
  if (!path && !config.load.empty()) path = find_checkpoint(config.load, config.ckpt_step);
  if (!path && !config.pretrained_checkpoint.empty())
    path = find_checkpoint(config.pretrained_checkpoint, std::nullopt);
  if (!path) return;
  const CheckpointMeta meta = in_memory ? in_memory->meta() : open_checkpoint(*path, config).meta();
  if (in_memory == nullptr && !console.quiet())
    if (const std::string note = other_tokenizer_note(*path, meta, vocabulary); !note.empty())
      console.note(note);
  if (const Record::const_iterator family = meta.model.find("family");
      family != meta.model.end() && config.model_family.empty()) {
    ModelSpec said = spec;
    said.family = family->second;
    if (const ModelFamily* holds = find_family_of(said)) spec.family = holds->name;
  }
  const Record::const_iterator stored = meta.model.find("padded_vocab_size");
  if (stored == meta.model.end()) return;
  const int64_t padded = std::strtoll(stored->second.c_str(), nullptr, 10);
  if (padded == spec.padded_vocab_size || padded < spec.vocab_size ||
      padded % config.tensor_model_parallel_size != 0)
    return;
  console.note(concat("vocabulary padded to ", padded, " as in ", *path,
                      "; this command alone would pad it to ", spec.padded_vocab_size));
  spec.padded_vocab_size = padded;
}

Start find_start(const TrainConfig& config, const ModelSpec& spec, LrSchedule& schedule,
                 cli::Console& console, std::optional<Checkpoint> in_memory) {
  Start start;
  if (in_memory) {
    check_model(in_memory->meta(), spec, config, in_memory->path());
    check_optimizer(config, in_memory->meta(), spec, in_memory->path());
    settle_schedule(config, in_memory->meta(), schedule, in_memory->path());
    start.in_memory = true;
    start.checkpoint = std::move(in_memory);
    return start;
  }
  std::optional<std::string> path;
  if (!config.load.empty()) path = find_checkpoint(config.load, config.ckpt_step);
  start.weights_only = config.finetune;
  if (!path && config.exit_on_missing_checkpoint) {
    throw std::runtime_error(concat(config.load, ": no checkpoint there"));
  }
  if (const std::string killed = config.load.empty() ? "" : killed_conversion(config.load);
      !path && !killed.empty())
    throw std::runtime_error(concat(config.load, ": no checkpoint there", killed));
  if (!path && !config.load.empty() && config.pretrained_checkpoint.empty()) {
    console.note(concat(config.load, ": no checkpoint there, starting from the beginning"));
  }
  if (!path && !config.pretrained_checkpoint.empty()) {
    path = find_checkpoint(config.pretrained_checkpoint, std::nullopt);
    start.weights_only = true;
    if (!path)
      throw std::runtime_error(concat(config.pretrained_checkpoint, ": no checkpoint there"));
  }
  if (!path) return start;
  start.checkpoint.emplace(open_checkpoint(*path, config));
  const CheckpointMeta& meta = start.checkpoint->meta();
  check_model(meta, spec, config, *path);
  start.optimizer = !start.weights_only && !config.no_load_optim && meta.has_optimizer;
  if (!start.weights_only && !config.no_load_optim && !meta.has_optimizer) {
    throw UsageError(concat(*path, ": has no optimizer: give --no-load-optim or --finetune"));
  }
  if (!start.weights_only && !meta.has_optimizer)
    console.note(concat(*path, ": has no optimizer: its states start from zero"));
  if (start.optimizer) check_optimizer(config, meta, spec, *path);
  if (start.optimizer) settle_schedule(config, meta, schedule, *path);
  return start;
}

}  // namespace trainer
