// See metrics.h. Tags are Megatron-LM's (training_log, evaluate_and_print_results).
//
// SPDX-License-Identifier: MIT
#include "trainer/log/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>

#include <nlohmann/json.hpp>

#include "libindexed/message.h"
#include "libindexed/output_file.h"

namespace trainer {
namespace {

using nlohmann::json;

// Whether a run that resumes after `iterations` iterations keeps this line. The evaluations at the
// end of a run are repeated by a run that resumes from its last checkpoint.
bool stays(const json& record, int64_t iterations) {
  if (!record.is_object()) return false;
  const int64_t iteration = record.value("iteration", int64_t{0});
  const std::string prefix = record.value("validation", "");
  const bool ends_run = prefix.find(" on ") != std::string::npos;
  return iteration < iterations || (iteration == iterations && !ends_run);
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), path);
}

// An event's line.
std::string event_line(std::string_view what, int64_t iteration,
                       const std::vector<std::pair<std::string, std::string>>& fields) {
  nlohmann::ordered_json record;
  record["event"] = what;
  record["iteration"] = iteration;
  for (const auto& [key, value] : fields) record[key] = value;
  return record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Refuses a file that is no earlier run's: it has something, but no line of metrics, nor the
// beginning of one that was cut off. What a lost disk left is zero bytes.
void refuse_foreign(const std::string& path) {
  std::error_code unknown;  // errors are found when the file is opened to be written.
  if (!std::filesystem::is_regular_file(path, unknown) || unknown) return;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  bool anything = false;
  while (std::getline(in, line)) {
    const size_t begin = line.find_first_not_of('\0');
    if (begin == std::string::npos) continue;
    anything = true;
    const json record = json::parse(line.substr(begin), nullptr, false);
    if (record.is_object() && record.contains("iteration")) return;
    const bool cut = in.eof() && record.is_discarded();
    if (cut && line.compare(begin, 2, "{\"") == 0) return;
  }
  if (!anything || in.bad()) return;
  throw std::runtime_error(
      path +
      ": no line of it is a run's metrics, and a run would remove the other lines: name "
      "another file (--metrics-file), or remove this one");
}

// Lines of a run that are removed, counted from 1.
struct Removed {
  int64_t first = 0, last = 0, count = 0;
  bool later = false;  ///< some are of later iterations, and not only of the end of a run.
  std::string lines = {};

  void add(int64_t number, const std::string& line, bool is_later) {
    if (count++ == 0) first = number;
    last = number;
    later |= is_later;
    lines += line + "\n";
  }
  // "line 7", "lines 7 to 9", "3 of lines 7 to 12"
  std::string text() const {
    if (count == 1) return indexed::message("line ", first);
    const std::string range = indexed::message("lines ", first, " to ", last);
    return count == last - first + 1 ? range : indexed::message(count, " of ", range);
  }
};

// Keeps only the lines of `path` for the first `iterations` iterations; `remove` is told before
// others go. Returns the last of these iterations with an interval's line, or nothing if there is
// no file.
std::optional<int64_t> forget_after(const std::string& path, int64_t iterations,
                                    const std::function<void(const Removed&)>& remove) {
  std::error_code unknown;  // errors are found below.
  const std::filesystem::file_status about = std::filesystem::status(path, unknown);
  if (!unknown && std::filesystem::exists(about) && !std::filesystem::is_regular_file(about))
    return std::nullopt;  // a FIFO or a device has no earlier lines, and may have no end.
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::nullopt;
  if (!in) fail(path, errno == 0 ? EIO : errno);
  std::string kept, line;
  bool changed = false, from_within = false;
  int64_t last = 0;
  Removed removed;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    // A whole line counts, also behind a lost disk's zero bytes or without its end.
    const size_t zeros = std::min(line.find_first_not_of('\0'), line.size());
    line.erase(0, zeros);
    const json record = json::parse(line, nullptr, false);
    const bool keep = stays(record, iterations);
    if (keep) kept += line + "\n";
    if (!keep && record.is_object())
      removed.add(number, line, record.value("iteration", int64_t{0}) > iterations);
    changed |= !keep || zeros > 0 || in.eof();
    from_within |= keep && changed;
    if (keep && record.contains("lm_loss") && !record.contains("validation"))
      last = std::max(last, record.value("iteration", int64_t{0}));
  }
  if (in.bad()) fail(path, EIO);  // lines that could not be read must not be treated as missing.
  if (!changed) return last;
  if (removed.count > 0) remove(removed);
  if (!from_within) {  // needs no room on a full disk.
    if (::truncate(path.c_str(), static_cast<off_t>(kept.size())) != 0) fail(path, errno);
    return last;
  }
  indexed::OutputFile out(path, indexed::Existing::replace);
  out.write(kept);
  out.commit();
  return last;
}

// "metrics.1.jsonl", where lines of "metrics.jsonl" are moved.
std::string numbered(const std::filesystem::path& path, int number) {
  const std::string name =
      indexed::message(path.stem().string(), ".", number, path.extension().string());
  return path.parent_path() / name;
}

// Writes `lines` into a new file beside `path`, and returns its name.
std::string move_aside(const std::string& path, const std::string& lines) {
  for (int number = 1;; ++number) {
    const std::string name = numbered(path, number);
    std::error_code error;
    const auto type = std::filesystem::symlink_status(name, error).type();
    if (type == std::filesystem::file_type::none) fail(name, error.value());
    if (type != std::filesystem::file_type::not_found) continue;
    indexed::OutputFile out(name, indexed::Existing::refuse);
    out.write(lines);
    out.commit();
    return name;
  }
}

}  // namespace

void own_metrics_file(const std::string& path) {
  std::error_code none;
  const bool is_link = std::filesystem::is_symlink(path, none);
  const bool is_there = std::filesystem::exists(path, none);
  if (is_there && !std::filesystem::is_regular_file(path, none)) return;
  if (!is_link && (!is_there || std::filesystem::hard_link_count(path, none) < 2)) return;
  std::string lines;
  if (is_there) {
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(path, errno == 0 ? EIO : errno);
    lines.assign(std::istreambuf_iterator<char>(in), {});
    if (in.bad()) fail(path, EIO);
  }
  indexed::OutputFile out(path, indexed::Existing::replace_link);
  out.write(lines);
  out.commit();
}

Metrics::Metrics(MetricsOptions options, double time) : options_(std::move(options)) {
  if (!options_.metrics_file.empty()) {
    if (options_.descriptor < 0) refuse_foreign(options_.metrics_file);
    file_ = std::make_unique<LogFile>(LogFileOptions{
        .path = options_.metrics_file,
        .descriptor = options_.descriptor,
        .exclusive = !options_.only_adds,  // it may evaluate beside the run that trains.
        .prepare = [this] { return take_over(); },
        .gap =
            [](int64_t lost, int64_t iteration) {
              return event_line("lines lost", iteration, {{"lines", std::to_string(lost)}});
            },
        .say = options_.say,
        .most_kept_bytes = options_.most_kept_bytes});
  }
  if (!options_.tensorboard_dir.empty()) {
    tensorboard_ =
        std::make_unique<EventWriter>(options_.tensorboard_dir, time, options_.first_iteration + 1,
                                      options_.say, options_.most_kept_bytes);
  }
}

// Lines that could not be written are lost if the run was killed: returns the line that replaces
// them, or nothing.
std::string Metrics::take_over() const {
  const std::string& path = options_.metrics_file;
  if (options_.only_adds) {
    forget_after(path, std::numeric_limits<int64_t>::max(), [](const Removed&) {});
    return "";
  }
  const int64_t begins = options_.first_iteration;
  const auto remove = [&](const Removed& lines) {
    const std::string_view verb = lines.count == 1 ? " is" : " are";
    if (options_.is_of_others)
      throw std::runtime_error(indexed::message(
          path, ": ", lines.text(), verb, " of another run, and a run that begins at step ", begins,
          " would remove ", lines.count == 1 ? "it" : "them",
          ": name another file (--metrics-file), or remove this one"));
    if (!lines.later) return;
    std::string what = "removed";
    if (options_.moves_later) what = "moved to " + move_aside(path, lines.lines);
    if (options_.say)
      options_.say(indexed::message(path, ": ", lines.text(), verb, " ", what,
                                    ": this run begins at step ", begins));
  };
  const std::optional<int64_t> last = forget_after(path, begins, remove);
  if (last && *last > 0 && options_.from_elsewhere && options_.say)
    options_.say(indexed::message(path, ": its lines of iterations 1 to ", options_.first_iteration,
                                  " stay: they are another run's, unless it is the file of the run "
                                  "whose checkpoint this one begins from"));
  if (!last || *last >= options_.last_interval || options_.from_elsewhere) return "";
  const std::string which = indexed::message(*last + 1, " to ", options_.last_interval);
  std::error_code none;
  if (const std::string moved = numbered(path, 1); std::filesystem::exists(moved, none)) {
    if (options_.say)
      options_.say(indexed::message(path, ": the lines of iterations ", which, " are missing: an ",
                                    "earlier start moved lines to ", moved));
    return event_line("lines moved", options_.last_interval, {{"iterations", which}});
  }
  if (options_.say)
    options_.say(indexed::message(path, ": the lines of iterations ", which,
                                  " are missing: the run that made them ended before its disk "
                                  "took them"));
  return event_line("lines lost", options_.last_interval, {{"iterations", which}});
}

void Metrics::configuration(const std::string& toml, int64_t iteration, double time) {
  if (!tensorboard_) return;
  // A fence longer than any run of backquotes in the text: nothing in it ends the block.
  std::string fence = "```";
  while (toml.find(fence) != std::string::npos) fence += '`';
  tensorboard_->text("configuration/text_summary", fence + "toml\n" + toml + fence + "\n",
                     iteration, time);
  tensorboard_->flush();
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
  line(format_iteration_json(record) + "\n", record.iteration);
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
  line(format_validation_json(record) + "\n", record.iteration);
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
  line(event_line(what, iteration, fields), iteration);
}

void Metrics::flush() {
  if (file_) file_->flush();
  if (tensorboard_) tensorboard_->flush();
}

void Metrics::line(const std::string& text, int64_t iteration) {
  if (!file_) return;
  file_->add(text, iteration);
  file_->flush();
}

}  // namespace trainer
