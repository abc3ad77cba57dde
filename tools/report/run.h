// SPDX-License-Identifier: MIT
// Room: tools/report. A training run as its files tell it: metrics.jsonl and config.toml, which
// trainer writes into --save. Read only; a run that is still running may be read. Units: seconds
// and bytes as in metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/draw/scale.h"

namespace report {

/// Values of one evaluation.
struct Validation {
  std::string set;  ///< "" of those between steps; "validation set", "test set" of those at the end
  double iteration = 0, lm_loss = 0;
};

/// Something that a run wrote about itself besides numbers.
struct Event {
  double iteration = 0;
  std::string text;
};

/// Time between two logged intervals in which no iteration ran: a restart, a long save.
struct Pause {
  double iteration = 0, seconds = 0;
};

/// A setting of config.toml, its value as it stands there.
struct Setting {
  std::string name, value;
};

/// One run.
struct Run {
  std::string name;         ///< short, and different from other runs' on the same page
  std::string path;         ///< of metrics.jsonl
  std::string config_path;  ///< empty if there is none
  /// Numbers of the logged intervals by their names in metrics.jsonl, each as long as "iteration";
  /// NaN where a line has none.
  std::map<std::string, std::vector<double>> columns;
  std::vector<Validation> validations;
  std::vector<Event> events;
  std::vector<Setting> settings;
  std::string passed_over;  ///< file, lines and why, such as a line that is cut; empty: all is read

  /// Iterations and a column, each value times `factor`; empty if no line has it.
  draw::Points points(const std::string& column, double factor = 1) const;
  /// The evaluations between steps.
  draw::Points validation_points() const;
  /// The last finite value of a column; NaN if there is none.
  double last(const std::string& column) const;
  /// The middle of a column's finite values; NaN if there is none.
  double median(const std::string& column) const;
  /// Sum of a column's finite values.
  double sum(const std::string& column) const;
  /// Gaps of more than half a minute beyond the interval's own time and half of it.
  std::vector<Pause> pauses() const;
};

/// Whether `path` is a run: a folder with metrics.jsonl, one with a config.toml that names a file
/// of metrics, or a file whose name ends in .jsonl.
bool is_run(const std::string& path);

/// Reads a run. Lines of an iteration that comes again later (the run was resumed from before it)
/// are replaced by the later ones. Lines that cannot be read are told in `passed_over`: a cut one
/// (the run is writing it, or was killed), those that a full or failing disk left damaged or zero,
/// those without a number "iteration".
/// Errors: std::system_error; std::runtime_error if no line can be read, naming the first.
Run read_run(const std::string& path);

/// Gives the runs names that differ: the shortest ends of their paths.
void name_runs(std::vector<Run>& runs);

}  // namespace report
