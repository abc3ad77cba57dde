// See metrics.h. Tags are Megatron-LM's (training_log, evaluate_and_print_results).
//
// SPDX-License-Identifier: MIT
#include "trainer/log/metrics.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "libindexed/output_file.h"

namespace trainer {
namespace {

using nlohmann::json;

// Whether a run that goes on after `iterations` iterations leaves this line alone. The evaluations
// that end a run are done again by whoever goes on from its last checkpoint.
bool stays(const json& record, int64_t iterations) {
  if (!record.is_object()) return false;
  const int64_t iteration = record.value("iteration", int64_t{0});
  const std::string prefix = record.value("validation", "");
  const bool ends_run = prefix.find(" on ") != std::string::npos;
  return iteration < iterations || (iteration == iterations && !ends_run);
}

// Keeps the lines of `path` that belong to the first `iterations` iterations.
void forget_after(const std::string& path, int64_t iterations) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return;
  std::string kept, line;
  bool changed = false;
  while (std::getline(in, line)) {
    const json record = in.eof() ? json() : json::parse(line, nullptr, false);
    const bool keep = stays(record, iterations);
    if (keep) kept += line + "\n";
    changed |= !keep;
  }
  if (!changed) return;
  indexed::OutputFile out(path, indexed::Existing::replace);
  out.write(kept);
  out.commit();
}

}  // namespace

Metrics::Metrics(MetricsOptions options, double time) : options_(std::move(options)) {
  if (!options_.metrics_file.empty()) {
    const std::filesystem::path folder = std::filesystem::path(options_.metrics_file).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    forget_after(options_.metrics_file, options_.first_iteration);
    file_ = std::fopen(options_.metrics_file.c_str(), "ab");
    if (!file_) {
      throw std::system_error(errno, std::generic_category(), options_.metrics_file);
    }
  }
  if (!options_.tensorboard_dir.empty()) {
    tensorboard_ =
        std::make_unique<EventWriter>(options_.tensorboard_dir, time, options_.first_iteration + 1);
  }
}

Metrics::~Metrics() {
  if (file_) std::fclose(file_);
}

void Metrics::points(const IterationRecord& record) {
  if (!tensorboard_) return;
  const auto both = [&](const std::string& tag, double value) {
    tensorboard_->scalar(tag, value, record.iteration, record.time);
    tensorboard_->scalar(tag + " vs samples", value, record.consumed_train_samples, record.time);
  };
  both("learning-rate", record.learning_rate);
  both("batch-size", static_cast<double>(record.global_batch_size));
  both("lm loss", record.lm_loss);
  if (options_.loss_scale) both("loss-scale", record.loss_scale);
  if (options_.world_size > 0) both("world-size", static_cast<double>(options_.world_size));
  both("grad-norm", record.grad_norm);
}

void Metrics::interval(const IterationRecord& record) {
  line(format_iteration_json(record));
  if (!tensorboard_) return;
  if (options_.timers) {
    tensorboard_->scalar("iteration-time", record.seconds_per_iteration, record.iteration,
                         record.time);
    if (record.tflops_per_device) {
      tensorboard_->scalar("throughput", *record.tflops_per_device, record.iteration, record.time);
    }
  }
  const auto point = [&](const char* tag, double value) {
    tensorboard_->scalar(tag, value, record.iteration, record.time);
  };
  const auto both = [&](const std::string& tag, double value) {
    point(tag.c_str(), value);
    tensorboard_->scalar(tag + " vs samples", value, record.consumed_train_samples, record.time);
  };
  if (record.num_zeros) both("num-zeros", static_cast<double>(*record.num_zeros));
  if (record.params_norm) both("params-norm", *record.params_norm);
  point("tokens-per-second", record.tokens_per_second);
  if (record.slowest) {
    point("slowest-rank", static_cast<double>(record.slowest->rank));
    point("slowest-rank-cost", record.slowest->cost_seconds);
    point("exposed-communication-time", record.slowest->communication_seconds);
  }
  point("data-wait-time", record.data_wait_seconds);
  point("peak-memory-bytes", static_cast<double>(record.peak_memory_bytes));
  point("planned-memory-bytes", static_cast<double>(record.planned_memory_bytes));
  tensorboard_->flush();
}

void Metrics::validation(const ValidationRecord& record) {
  line(format_validation_json(record));
  if (!tensorboard_) return;
  const auto both = [&](const std::string& tag, double value) {
    tensorboard_->scalar(tag, value, record.iteration, record.time);
    tensorboard_->scalar(tag + " vs samples", value, record.consumed_train_samples, record.time);
  };
  both("lm loss validation", record.lm_loss);
  if (options_.validation_ppl) both("lm loss validation ppl", perplexity(record.lm_loss));
  tensorboard_->flush();
}

void Metrics::event(std::string_view what, int64_t iteration,
                    const std::vector<std::pair<std::string, std::string>>& fields) {
  nlohmann::ordered_json record;
  record["event"] = what;
  record["iteration"] = iteration;
  for (const auto& [key, value] : fields) record[key] = value;
  line(record.dump(-1, ' ', false, json::error_handler_t::replace));
}

void Metrics::flush() {
  if (file_ && std::fflush(file_) != 0) {
    throw std::system_error(errno, std::generic_category(), options_.metrics_file);
  }
  if (tensorboard_) tensorboard_->flush();
}

void Metrics::line(const std::string& text) {
  if (!file_) return;
  const std::string whole = text + "\n";
  if (std::fwrite(whole.data(), 1, whole.size(), file_) != whole.size() ||
      std::fflush(file_) != 0) {
    throw std::system_error(errno, std::generic_category(), options_.metrics_file);
  }
}

}  // namespace trainer
