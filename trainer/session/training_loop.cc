// See training_loop.h. The device works on step k while the host reads the samples of step k + 1,
// which is queued after k's result has come: a bad step ends the run before another uses it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/training_loop.h"
#include "tools/cli/exit_status.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"
#include "trainer/config/outputs.h"
#include "trainer/session/assembly.h"
#include "trainer/session/restart.h"
#include "trainer/spec/model_fields.h"

namespace trainer {
namespace {

using cli::concat;

// Consecutive fp16 steps skipped at the lowest loss scale after which the run fails.
constexpr int64_t kMostSkipped = 20;
// If a wait takes less than this, the device was already idle.
constexpr std::chrono::microseconds kAtOnce{50};

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Sum of squares of all main parameters, and number of zeros among all gradients, of all ranks:
// computed on the host, for two flags, slowly.
struct SlowNumbers {
  double squares = 0;
  int64_t zeros = 0;
};
SlowNumbers count_slowly(Engine& engine, bool norm, bool zeros) {
  SlowNumbers out;
  std::vector<std::byte> host;
  const auto fetch = [&](const Tensor& tensor) {
    host.resize(static_cast<size_t>(tensor.bytes()));
    engine.ops().download(host.data(), tensor);
    engine.ops().wait(engine.ops().mark());
  };
  for (const ParamView& view : engine.parameters()) {
    // A rank counts what it saves, so that each element of the model counts once.
    if (view.saved.count == 0) continue;
    const auto counted = [&](const Tensor& kept) {
      return kept.flat().slice(view.saved.first - view.kept.first, view.saved.count);
    };
    if (norm) {
      fetch(counted(view.main));
      const float* values = reinterpret_cast<const float*>(host.data());
      for (int64_t i = 0; i < view.saved.count; ++i)
        out.squares += double{values[i]} * double{values[i]};
    }
    if (zeros) {
      fetch(counted(view.grad));
      const size_t item = static_cast<size_t>(size_bytes(view.grad.dtype));
      for (size_t at = 0; at < host.size(); at += item) {
        // Zero is all bits but the sign's.
        bool zero = (static_cast<uint8_t>(host[at + item - 1]) & 0x7f) == 0;
        for (size_t i = 0; i + 1 < item; ++i) zero = zero && host[at + i] == std::byte{0};
        out.zeros += zero;
      }
    }
  }
  // Counts are sent as two fp32 numbers, each of which represents 24 bits.
  constexpr int64_t kHalf = int64_t{1} << 20;
  std::array<float, 3> sums = {static_cast<float>(out.squares),
                               static_cast<float>(out.zeros / kHalf),
                               static_cast<float>(out.zeros % kHalf)};
  if (engine.topology().world_size() == 1) return out;
  engine.over_ranks(sums, comm::Reduce::sum);
  return {double{sums[0]}, static_cast<int64_t>(sums[1]) * kHalf + static_cast<int64_t>(sums[2])};
}

// Only the rank that writes the log draws.
LossPlot::Kind plot_kind(const LoopParts& parts) {
  if (!parts.job.speaks()) return LossPlot::Kind::off;
  if (parts.config.plot_ascii) return LossPlot::Kind::ascii;
  return parts.config.plot ? LossPlot::Kind::braille : LossPlot::Kind::off;
}

}  // namespace

TrainingLoop::TrainingLoop(LoopParts parts, Start start)
    : parts_(parts), batches_(parts.config), plot_(plot_kind(parts), parts.console) {
  const TrainConfig& config = parts_.config;
  const std::string loaded = start.checkpoint && !start.in_memory ? start.checkpoint->path() : "";
  const bool elsewhere = !loaded.empty() && !lies_in(loaded, config.save);
  std::optional<CheckpointMeta> meta;
  if (start.checkpoint && !start.weights_only) meta = start.checkpoint->meta();
  // A later start of this run has no other run's lines behind its own checkpoint.
  const bool replaces = parts_.job.speaks() && parts_.job.launch().restarts == 0 &&
                        begins_before_others(config, start);
  begin(std::move(start));
  first_iteration_ = state_.iteration;
  train_ = loader(0);
  if (config.eval_iters > 0) {
    valid_ = loader(1);
    test_ = loader(2);
  }
  if (!config.save.empty() && !config.skip_train) {
    saver_ = std::make_unique<Saver>(
        parts_.engine, SaverOptions{.root = config.save,
                                    .optimizer = !config.no_save_optim,
                                    .background = config.async_save,
                                    .keep_last = config.keep_last.value_or(0),
                                    .only_own = !parts_.from_save,
                                    .ahead = state_.iteration < config.derived.train_iters,
                                    .place = parts_.job.writer_place()});
    if (parts_.job.rank() == 0 && !loaded.empty()) carry_tokenizer(loaded, config);
  }
  const bool has_file = parts_.job.speaks();
  const std::string file = has_file ? config.derived.metrics_file : "";
  if (lies_in(file, config.save)) own_metrics_file(file);
  metrics_ = std::make_unique<Metrics>(
      MetricsOptions{
          .metrics_file = file,
          .descriptor = has_file ? metrics_descriptor(config) : -1,
          .tensorboard_dir = parts_.job.speaks() ? config.tensorboard_dir : "",
          .loss_scale = config.log_loss_scale_to_tensorboard,
          .timers = config.log_timers_to_tensorboard,
          .validation_ppl = config.log_validation_ppl_to_tensorboard,
          .world_size = config.log_world_size_to_tensorboard ? config.derived.world_size : 0,
          .first_iteration = first_iteration_,
          .last_interval = first_iteration_ - state_.interval_steps,
          .from_elsewhere = elsewhere,
          .only_adds = config.skip_train,
          .moves_later = replaces,
          .is_of_others = has_file && has_metrics_of_others(config, parts_.job.launch(),
                                                            meta && !elsewhere ? &*meta : nullptr),
          .say = [this](const std::string& line) { parts_.console.error(line); }},
      wall_clock());
  metrics_->configuration(effective_config(config), first_iteration_, wall_clock());
  if (parts_.memory != nullptr && !config.skip_train)
    copies_.emplace(parts_.engine,
                    SaverOptions{.memory = parts_.memory,
                                 .ahead = state_.iteration < config.derived.train_iters,
                                 .place = parts_.job.writer_place()},
                    *config.in_memory_checkpoint,
                    MemoryCopies::Voice{.speaks = parts_.job.speaks(),
                                        .print = [this](const std::string& line) { print(line); },
                                        .console = parts_.console,
                                        .metrics = *metrics_});
}

void TrainingLoop::print(const std::string& line) {
  if (parts_.console.quiet()) return;
  plot_.clear();
  parts_.out.add(line + "\n");
  parts_.out.flush();
  plot_.draw();
}

void TrainingLoop::begin(Start start) {
  Engine& engine = parts_.engine;
  if (!start.checkpoint) {
    engine.initialise();
    state_.seed = parts_.config.seed;
    return;
  }
  Checkpoint& checkpoint = *start.checkpoint;
  engine.initialise();  // anything that is not loaded then has the values of a new run.
  try {
    load_tensors(engine, checkpoint, start.optimizer);
    indexed::check_mapped_files();  // a cut after a block's checksum was verified shows here
  } catch (const indexed::FormatError& error) {
    throw indexed::FormatError(
        concat(error.what(), "; ",
               offer_before(parts_.config, checkpoint.path(), checkpoint.meta().state.iteration)));
  }
  state_ = start.state();
  if (start.weights_only || parts_.config.no_load_rng) state_.seed = parts_.config.seed;
  if (start.optimizer) {
    engine.set_state(restore_state(state_));
  } else if (!goes_on_without_optimizer(parts_.config, checkpoint)) {
    state_.scheduled_samples = 0;  // as in Megatron, which loads it with the optimizer.
  }
  restored_ = start.in_memory;
  const std::string& run = parts_.job.launch().run;
  if (restored_ && whole_saved_iteration(parts_.config, run) == state_.iteration &&
      tracker_names(parts_.config.save, state_.iteration))
    saved_iteration_ = state_.iteration;
  const std::string folder = iteration_folder(parts_.config.save, state_.iteration);
  if (same_folder(checkpoint.path(), folder) && !start.weights_only) {
    // A kill between renaming a folder and updating the tracker leaves a checkpoint that the
    // tracker does not name.
    unnamed_ = !tracker_names(parts_.config.save, state_.iteration);
    if (!unnamed_) saved_iteration_ = state_.iteration;
  }
  print(concat(" successfully loaded checkpoint from ", checkpoint.path(), " at iteration ",
               state_.iteration, start.weights_only ? " (weights only)" : ""));
}

std::unique_ptr<BatchLoader> TrainingLoop::loader(int64_t split) const {
  const TrainConfig& config = parts_.config;
  const indexed::SplitData* samples = parts_.data.split(split);
  if (!samples) return nullptr;
  return std::make_unique<BatchLoader>(
      parts_.data, *samples,
      BatchLoaderOptions{.seq_length = config.seq_length,
                         .micro_batch_size = config.micro_batch_size,
                         .data_parallel_rank = parts_.job.topology().data_rank,
                         .data_parallel_size = config.derived.data_parallel_size,
                         .vocab_size = parts_.vocabulary.vocab_size,
                         .one_above = parts_.vocabulary.one_above,
                         .eod_id = parts_.vocabulary.eod_id,
                         .eod_mask_loss = config.eod_mask_loss,
                         .reset_position_ids =
                             config.reset_position_ids && parts_.spec.position == Position::learned,
                         .reset_attention_mask = config.reset_attention_mask,
                         .sliding_window = parts_.spec.sliding_window,
                         .starts_over = split == 1});
}

double TrainingLoop::fill(const BatchLoader& loader, int64_t consumed, int64_t num_microbatches) {
  const HostBatch host = parts_.engine.host_batch();
  loader.fill(consumed, num_microbatches,
              {host.tokens, host.labels, host.positions, host.loss_mask, host.first_key});
  const TrainConfig& config = parts_.config;
  if (!config.calculate_per_token_loss || !config.eod_mask_loss) return 1;
  const std::span<float> mask = host.loss_mask.first(
      static_cast<size_t>(num_microbatches * config.micro_batch_size * config.seq_length));
  // Ranks with the same data-parallel rank have the same samples: only the first of them reports.
  const Topology& topology = parts_.engine.topology();
  const bool first = topology.tensor_rank == 0 && topology.first_stage();
  int64_t total = 0;
  for (const std::string& text :
       parts_.job.exchange(first ? std::to_string(counted_tokens(mask)) : ""))
    total += text.empty() ? 0 : std::stoll(text);
  weigh_tokens(mask, num_microbatches, config.derived.data_parallel_size, total);
  return static_cast<double>(total);
}

int TrainingLoop::run() {
  const TrainConfig& config = parts_.config;
  if (config.skip_train) return end();
  const int64_t last = config.derived.train_iters;
  if (state_.iteration > last)
    parts_.console.note(concat("the checkpoint is of step ", state_.iteration,
                               ", this command's last one is ", last, ": nothing is trained"));
  while (true) {
    if (const std::optional<std::string> why = parts_.stop.reason()) return end_early(*why);
    // Also done first by a run that was stopped in the middle of an evaluation.
    if (state_.iteration > 0 && state_.iteration % config.eval_interval == 0 &&
        state_.evaluated_iteration != state_.iteration) {
      if (!evaluate(1, concat("iteration ", state_.iteration))) continue;
      state_.evaluated_iteration = state_.iteration;
    }
    const bool due = config.save_interval && state_.iteration % *config.save_interval == 0;
    const bool extra = std::ranges::find(config.extra_save_iters, state_.iteration) !=
                       config.extra_save_iters.end();
    const bool trained = state_.iteration > first_iteration_;
    if (trained && config.in_memory_checkpoint && state_.iteration < last &&
        state_.iteration % *config.in_memory_checkpoint == 0)
      copy();
    if ((due || extra) && (trained || restored_)) save();
    if (saver_) report_save(saver_->outcome());
    if (copies_) copies_->report();
    if (config.exit_interval && state_.iteration > first_iteration_ && state_.iteration < last &&
        state_.iteration % *config.exit_interval == 0) {
      // Without --save only the end after this many steps was requested.
      if (!saver_) return end();
      return end_early(concat("--exit-interval ", *config.exit_interval));
    }
    if (state_.iteration >= last) return end();
    step();
  }
}

void TrainingLoop::step() {
  Engine& engine = parts_.engine;
  const Clock::time_point begin = Clock::now();
  const std::optional<double> waited = parts_.job.seconds_waited(engine.ops());
  double data_wait = 0;
  const int64_t batch = batches_.global_batch_size(state_.consumed_train_samples);
  const int64_t num_microbatches = batches_.num_microbatches(state_.consumed_train_samples);
  if (filled_for_ != state_.consumed_train_samples) {
    parts_.job.enter(rendezvous::Phase::data, state_.iteration + 1);
    fill(*train_, state_.consumed_train_samples, num_microbatches);
    data_wait += seconds_between(begin, Clock::now());
  }
  const LrSchedule& schedule = parts_.schedule;
  parts_.job.enter(rendezvous::Phase::step, state_.iteration + 1);
  engine.step(state_.iteration + 1, num_microbatches,
              static_cast<float>(learning_rate(schedule, state_.scheduled_samples)),
              static_cast<float>(weight_decay(schedule, state_.scheduled_samples)));
  const int64_t next = state_.consumed_train_samples + batch;
  filled_for_ = -1;
  const Clock::time_point queued = Clock::now();
  if (state_.iteration + 1 < parts_.config.derived.train_iters) {
    fill(*train_, next, batches_.num_microbatches(next));
    filled_for_ = next;
  }
  const Clock::time_point filled = Clock::now();
  parts_.stop.ask();
  const Clock::time_point asked = Clock::now();
  const ops::StepState result = engine.result();
  const Clock::time_point end = Clock::now();
  // If the device finished its step while samples were still being read, it has waited for them.
  if (end - asked < kAtOnce) data_wait += seconds_between(queued, filled);
  if (result.skip && !parts_.config.fp16) refuse_step(result, num_microbatches);
  if (!result.skip) state_.scheduled_samples += batch;
  const std::optional<double> waited_since = parts_.job.seconds_waited(engine.ops());
  clock_.add(seconds_between(begin, end), data_wait,
             waited ? std::optional(*waited_since - *waited) : std::nullopt,
             static_cast<double>(batch * parts_.config.seq_length));
  account(result, batch, learning_rate(schedule, state_.scheduled_samples));
}

// After the step: updates the run's numbers and reports them.
void TrainingLoop::account(const ops::StepState& result, int64_t batch, double lr) {
  const TrainConfig& config = parts_.config;
  state_.iteration += 1;
  state_.consumed_train_samples += batch;
  store_state(result, state_);
  state_.interval_steps += 1;
  if (result.skip) {
    state_.interval_skipped += 1;
    state_.interval_nan += !std::isfinite(result.loss);
    skipped_in_a_row_ =
        state_.loss_scale <= config.min_loss_scale || config.loss_scale ? skipped_in_a_row_ + 1 : 0;
    if (skipped_in_a_row_ >= kMostSkipped) {
      throw std::runtime_error(
          concat("step ", state_.iteration, ": ", kMostSkipped,
                 " steps in a row had gradients that are not finite, at loss scale ",
                 result.used_loss_scale, ", the lowest allowed"));
    }
  } else {
    skipped_in_a_row_ = 0;
    state_.interval_applied += 1;
    state_.interval_loss_sum += double{result.loss};
  }
  IterationRecord now = record(result, batch);
  now.learning_rate = lr;
  if (state_.iteration % config.tensorboard_log_interval == 0) metrics_->points(now);
  if (state_.iteration % config.log_interval == 0) log_interval(std::move(now));
}

IterationRecord TrainingLoop::record(const ops::StepState& result, int64_t batch) const {
  IterationRecord out;
  out.iteration = state_.iteration;
  out.train_iters = parts_.config.derived.train_iters;
  out.consumed_train_samples = state_.consumed_train_samples;
  out.global_batch_size = batch;
  out.lm_loss = double{result.loss};
  out.loss_scale = double{result.used_loss_scale};
  out.grad_norm = double{result.grad_norm};
  out.time = wall_clock();
  return out;
}

void TrainingLoop::log_interval(IterationRecord record) {
  const TrainConfig& config = parts_.config;
  record.lm_loss =
      state_.interval_loss_sum / static_cast<double>(std::max<int64_t>(state_.interval_applied, 1));
  record.skipped_iterations = state_.interval_skipped;
  record.nan_iterations = state_.interval_nan;
  record.seconds_per_iteration = clock_.seconds_per_step();
  record.tokens_per_second = clock_.tokens_per_second();
  record.seconds_left =
      static_cast<double>(record.train_iters - record.iteration) * record.seconds_per_iteration;
  if (config.log_throughput) {
    record.tflops_per_device =
        flops_per_sample(parts_.spec, config.seq_length) * record.tokens_per_second /
        static_cast<double>(config.seq_length * config.derived.world_size) / 1e12;
  }
  if (config.log_params_norm || config.log_num_zeros_in_grad) {
    const SlowNumbers slow =
        count_slowly(parts_.engine, config.log_params_norm, config.log_num_zeros_in_grad);
    if (config.log_params_norm) record.params_norm = std::sqrt(slow.squares);
    if (config.log_num_zeros_in_grad) record.num_zeros = slow.zeros;
  }
  const Engine& engine = parts_.engine;
  const RankTimes own = clock_.times(engine.peak_bytes(), engine.memory_plan().total_bytes);
  parts_.stop.hear();
  std::vector<RankTimes> ranks;
  for (const std::string& text : parts_.job.exchange(own.text()))
    ranks.push_back(RankTimes::from_text(text));
  add_ranks(ranks, record);
  print(format_iteration_line(record));
  plot_.add(record.iteration, record.lm_loss);
  metrics_->interval(record);
  state_.interval_loss_sum = 0;
  state_.interval_steps = state_.interval_applied = state_.interval_skipped = state_.interval_nan =
      0;
  clock_.restart();
}

// In fp32 and bf16 nothing may overflow: the run stops, and says where to look.
void TrainingLoop::refuse_step(const ops::StepState& result, int64_t num_microbatches) {
  const int64_t step = state_.iteration + 1;
  const std::vector<std::string> tensors = parts_.engine.nonfinite_gradients();
  const std::vector<std::string> documents =
      train_->documents(state_.consumed_train_samples, num_microbatches);
  const std::string first = tensors.empty() ? "their sum of squares" : tensors.front();
  metrics_->event(
      "gradients are not finite", step,
      {{"tensors", cli::join(tensors, " ")}, {"documents", cli::join(documents, "; ")}});
  throw std::runtime_error(concat(
      "step ", step, ": gradient of ", first, " is not finite (",
      cli::counted(static_cast<int64_t>(tensors.size()), "tensor"), " in all), loss ", result.loss,
      ": nothing of this step was applied; its samples are of ", cli::join(documents, "; ")));
}

bool TrainingLoop::evaluate(int64_t split, const std::string& prefix) {
  const BatchLoader* loader = split == 1 ? valid_.get() : test_.get();
  if (!loader || parts_.config.eval_iters == 0) return true;
  const int64_t batch = parts_.config.derived.global_batch_size;
  const int64_t num_microbatches =
      batch / (parts_.config.micro_batch_size * parts_.config.derived.data_parallel_size);
  // As in Megatron, --skip-train begins with the first.
  int64_t consumed = split == 1 && !parts_.config.skip_train ? state_.consumed_valid_samples : 0;
  double sum = 0, weights = 0;
  filled_for_ = -1;
  for (int64_t i = 0; i < parts_.config.eval_iters; ++i) {
    parts_.job.enter(rendezvous::Phase::evaluate, state_.iteration);
    if (parts_.stop.reason()) return false;
    const double weight = fill(*loader, consumed, num_microbatches);
    sum += weight * double{parts_.engine.evaluate(num_microbatches)};
    weights += weight;
    consumed += batch;
  }
  if (split == 1) state_.consumed_valid_samples = consumed;
  const ValidationRecord record{
      .prefix = prefix,
      .iteration = state_.iteration,
      .consumed_train_samples = state_.consumed_train_samples,
      .lm_loss = parts_.job.mean_of_last_stages(weights == 0 ? 0 : sum / weights),
      .time = wall_clock()};
  print(format_validation_lines(record));
  metrics_->validation(record);
  return true;
}

CheckpointMeta TrainingLoop::checkpoint_meta() const {
  CheckpointMeta meta;
  meta.writer = concat("gristmill ", cli::version());
  meta.run = parts_.job.launch().run;
  if (train_) {
    meta.last_samples = train_->digest(state_.consumed_train_samples);
    meta.next_samples = train_->places(state_.consumed_train_samples);
  }
  meta.tokenizer_hash = parts_.vocabulary.identity;
  meta.state = state_;
  meta.config = flag_values(parts_.config);
  meta.model = model_record(parts_.spec);
  meta.schedule = schedule_record(parts_.schedule);
  return meta;
}

// In memory: everything that a restart needs, whatever is left out on disk.
void TrainingLoop::copy() {
  if (!copies_) return;
  parts_.job.enter(rendezvous::Phase::save, state_.iteration);
  metrics_->flush();  // these steps are not logged again.
  copies_->start(checkpoint_meta());
}

void TrainingLoop::save() {
  if (!saver_ || state_.iteration == 0 || saved_iteration_ == state_.iteration) return;
  // Weights that have learned from a dataset's lost bytes are not saved: the run ends here.
  indexed::check_mapped_files();
  parts_.job.enter(rendezvous::Phase::save, state_.iteration);
  report_save(saver_->finish());
  metrics_->flush();
  CheckpointMeta meta = checkpoint_meta();
  meta.has_optimizer = !parts_.config.no_save_optim;
  meta.has_generator = !parts_.config.no_save_rng;
  print(concat("saving checkpoint at iteration ", state_.iteration, " to ", parts_.config.save));
  saver_->save(std::move(meta));
  saved_iteration_ = state_.iteration;
  if (!parts_.config.async_save) report_save(saver_->finish());
}

void TrainingLoop::report_save(const std::optional<Saver::Outcome>& outcome) {
  if (!outcome) return;
  save_failed_ = !outcome->error.empty();
  if (!save_failed_) {
    print(concat("  successfully saved checkpoint at iteration ", outcome->iteration, " to ",
                 parts_.config.save));
    if (!outcome->remark.empty())
      parts_.console.note(concat(
          outcome->remark, ": an older checkpoint was not removed; the next save tries again"));
    return;
  }
  // A host whose output is read apart ends with an error, too, and has to say why.
  if (!parts_.job.speaks() && !(ending_ && parts_.job.speaks_for_host())) return;
  parts_.console.error(concat(outcome->error, ": the checkpoint of step ", outcome->iteration,
                              " was not written",
                              ending_ ? "" : "; training continues, the next one will be tried"));
  metrics_->event("checkpoint not written", outcome->iteration, {{"error", outcome->error}});
}

// The last checkpoint of a run is tried once more: a full disk may have room again once the run's
// own older checkpoint is removed.
void TrainingLoop::complete_save() {
  if (copies_) copies_->finish();
  if (!saver_) return;
  parts_.job.enter(rendezvous::Phase::save, state_.iteration);
  ending_ = true;
  report_save(saver_->finish());
  parts_.stop.hear();
  // Rank 0 knows; a rank that waited for it in vain may not.
  save_failed_ = !parts_.job.exchange(save_failed_ ? "failed" : "").front().empty();
  if (!save_failed_ || saved_iteration_ != state_.iteration) return;
  saved_iteration_ = -1;
  save();
  report_save(saver_->finish());
}

int TrainingLoop::end_early(const std::string& why) {
  save();
  complete_save();
  print_plot();
  parts_.job.enter(rendezvous::Phase::end, state_.iteration);
  metrics_->flush();
  if (!saver_ || save_failed_) {
    if (!parts_.job.speaks()) return exit_status::kFailed;
    parts_.console.error(concat(why, ": stopped after step ", state_.iteration,
                                saver_ ? ", and its checkpoint could not be written"
                                       : ", and without --save nothing was saved"));
    return exit_status::kFailed;
  }
  const std::string& change = parts_.to_go_on;
  if (!change.empty() && saved_iteration_ < 0) {
    parts_.console.note(
        concat(why, ": stopped after step ", state_.iteration, ", before anything was saved"));
    return exit_status::kFailed;
  }
  parts_.console.note(concat(why, ": stopped after step ", state_.iteration, "; ",
                             change.empty() ? "the same command continues from there"
                                            : concat(change, " continues from there")));
  // This program's launcher decides for its ranks.
  const bool resumable = change.empty() || parts_.job.launch().by_trainer;
  return resumable ? exit_status::kResumable : exit_status::kFailed;
}

void TrainingLoop::print_plot() {
  std::string curve = plot_.last();
  if (curve.empty()) return;
  curve.pop_back();  // print() ends the line
  print(curve);
}

int TrainingLoop::end() {
  const bool trained = state_.iteration > first_iteration_ || restored_;
  const std::string at = concat("iteration ", state_.iteration);
  if ((trained || unnamed_) && parts_.config.save.size() > 0) save();
  const bool whole = evaluate(1, at + " on validation set") && evaluate(2, at + " on test set");
  complete_save();
  print_plot();
  metrics_->flush();
  if (save_failed_) return exit_status::kFailed;
  if (whole) return exit_status::kComplete;
  // Only the last evaluation is missing: with a checkpoint the same command will do it.
  if (saver_) return end_early(parts_.stop.reason().value_or("stopped"));
  parts_.console.note("the last evaluation was cut short by a request to stop");
  return exit_status::kComplete;
}

}  // namespace trainer
