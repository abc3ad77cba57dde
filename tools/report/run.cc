// SPDX-License-Identifier: MIT
// Room: tools/report. Reading a run's files; see run.h.
#include "tools/report/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>

#include "tools/cli/text.h"

namespace report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  try {
    return {std::istreambuf_iterator<char>(file), {}};
  } catch (const std::system_error& error) {  // a folder, or a disk that fails
    throw std::system_error(error.code(), path);
  }
}

// "key = value" lines; section titles and comments are passed over.
std::vector<Setting> settings_of(const std::string& text) {
  std::vector<Setting> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = line.find(" = ");
    if (line.empty() || line[0] == '[' || line[0] == '#' || equals == std::string::npos) continue;
    out.push_back({line.substr(0, equals), line.substr(equals + 3)});
  }
  return out;
}

std::string unquoted(std::string text) {
  if (text.size() < 2 || text.front() != '"') return text;
  text = text.substr(1, text.size() - 2);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    out += text[i] == '\\' && i + 1 < text.size() ? text[++i] : text[i];
  return out;
}

// Where the metrics and the configuration of `path` stand; empty: nowhere.
struct Places {
  std::string metrics, config;
};

Places places_of(const std::string& path) {
  std::error_code none;
  Places places;
  if (!fs::is_directory(path, none)) {
    if (path.ends_with(".jsonl")) places.metrics = path;
    const fs::path beside = fs::path(path).parent_path() / "config.toml";
    if (fs::exists(beside, none)) places.config = beside.string();
    return places;
  }
  const fs::path metrics = fs::path(path) / "metrics.jsonl",
                 config = fs::path(path) / "config.toml";
  if (fs::exists(config, none)) places.config = config.string();
  if (fs::exists(metrics, none)) {
    places.metrics = metrics.string();
  } else if (!places.config.empty()) {
    for (const Setting& setting : settings_of(read_whole(places.config)))
      if (setting.name == "metrics-file") places.metrics = unquoted(setting.value);
  }
  return places;
}

double number(const json& record, const char* name) {
  const auto at = record.find(name);
  return at != record.end() && at->is_number() ? at->get<double>() : kNan;
}

void add_interval(Run& run, const json& record) {
  auto& iterations = run.columns["iteration"];
  const size_t row = iterations.size();
  iterations.push_back(0);
  for (const auto& [name, value] : record.items()) {
    if (!value.is_number() && !value.is_null()) continue;
    std::vector<double>& column = run.columns[name];
    column.resize(row, kNan);
    column.resize(row + 1, kNan);
    if (value.is_number()) column[row] = value.get<double>();
  }
}

// What was written of iterations after `iteration`, by a run that ended before they were saved.
void forget_after(Run& run, double iteration) {
  const std::vector<double>& iterations = run.columns["iteration"];
  const auto keep = static_cast<size_t>(
      std::lower_bound(iterations.begin(), iterations.end(), iteration) - iterations.begin());
  for (auto& [name, column] : run.columns) column.resize(std::min(column.size(), keep));
  std::erase_if(run.validations, [&](const Validation& v) { return v.iteration >= iteration; });
}

void add_line(Run& run, const json& record) {
  const double iteration = number(record, "iteration");
  if (record.contains("event")) {
    std::string text = record["event"].is_string() ? record["event"].get<std::string>() : "";
    for (const auto& [name, value] : record.items())
      if (name != "event" && name != "iteration" && name != "time" && value.is_string())
        text += cli::concat(", ", name, " ", value.get<std::string>());
    run.events.push_back({iteration, text});
  } else if (record.contains("validation")) {
    const std::string prefix =
        record["validation"].is_string() ? record["validation"].get<std::string>() : "";
    const size_t on = prefix.find(" on ");
    run.validations.push_back({on == std::string::npos ? "" : prefix.substr(on + 4), iteration,
                               number(record, "lm_loss")});
  } else {
    const std::vector<double>& iterations = run.columns["iteration"];
    if (!iterations.empty() && iteration <= iterations.back()) forget_after(run, iteration);
    add_interval(run, record);
  }
}

// What is wrong with a line that is `record` as JSON; empty: nothing.
std::string defect_of(std::string_view line, const json& record, bool ends) {
  if (line.find('\0') != std::string_view::npos) return "zero bytes";
  if (record.is_discarded()) return ends ? "not JSON" : "cut: no end of line";
  if (!record.is_object()) return "not a JSON object";
  if (!record.contains("iteration")) return "no \"iteration\"";
  return record["iteration"].is_number() ? "" : "\"iteration\" is not a number";
}

// The lines of metrics.jsonl that are passed over, as few words as possible.
class PassedOver {
 public:
  void add(int64_t line, const std::string& reason) {
    ++lines_;
    if (!spans_.empty() && spans_.back().end == line - 1 && spans_.back().reason == reason)
      spans_.back().end = line;
    else
      spans_.push_back({line, line, reason});
  }

  std::string words(const std::string& path, int64_t lines) const {
    if (spans_.empty()) return "";
    constexpr size_t kMost = 8;
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min(spans_.size(), kMost); ++i) {
      const Span& span = spans_[i];
      parts.push_back(
          span.begin == span.end
              ? cli::concat("line ", span.begin, " (", span.reason, ")")
              : cli::concat("lines ", span.begin, " to ", span.end, " (", span.reason, ")"));
    }
    if (spans_.size() > kMost) parts.push_back(cli::concat(spans_.size() - kMost, " more places"));
    return cli::concat(path, ": passed over ", cli::with_commas(lines_), " of ",
                       cli::counted(lines, "line"), ": ", cli::join(parts, ", "));
  }

 private:
  struct Span {
    int64_t begin, end;
    std::string reason;
  };
  std::vector<Span> spans_;
  int64_t lines_ = 0;
};

// Reads all lines. Zero bytes before a whole line are left out: a file that grew, but whose data
// the disk lost, has them.
void read_lines(Run& run, const std::string& text) {
  PassedOver passed_over;
  int64_t line = 0, taken = 0;
  std::string first;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++line;
    const std::string_view all = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (all.empty()) continue;
    const size_t zeros = std::min(all.find_first_not_of('\0'), all.size());
    const std::string_view words = all.substr(zeros);
    const json record = json::parse(words, nullptr, false);
    const std::string defect =
        words.empty() ? "zero bytes" : defect_of(words, record, end < text.size());
    if (!defect.empty()) {
      if (first.empty())
        first = cli::concat(run.path, ":", line, ": ", cli::quote(words.substr(0, 200)),
                            " is not a line of trainer's metrics: ", defect);
      passed_over.add(line, defect);
      continue;
    }
    if (zeros > 0) passed_over.add(line, "zero bytes, all before a whole line, which was read");
    add_line(run, record);
    ++taken;
  }
  if (taken == 0 && line > 0 && !first.empty())
    throw std::runtime_error(
        cli::concat(first, ", nor is any other of its ", cli::counted(line, "line")));
  run.passed_over = passed_over.words(run.path, line);
}

std::vector<double> finite(const Run& run, const std::string& column) {
  std::vector<double> out;
  const auto at = run.columns.find(column);
  if (at != run.columns.end())
    std::copy_if(at->second.begin(), at->second.end(), std::back_inserter(out),
                 [](double v) { return std::isfinite(v); });
  return out;
}

}  // namespace

draw::Points Run::points(const std::string& column, double factor) const {
  const auto at = columns.find(column);
  if (at == columns.end()) return {};
  draw::Points out{columns.at("iteration"), at->second};
  for (double& y : out.y) y *= factor;
  return out;
}

draw::Points Run::validation_points() const {
  draw::Points out;
  for (const Validation& v : validations)
    if (v.set.empty()) out.x.push_back(v.iteration), out.y.push_back(v.lm_loss);
  return out;
}

double Run::last(const std::string& column) const {
  const std::vector<double> values = finite(*this, column);
  return values.empty() ? kNan : values.back();
}

double Run::median(const std::string& column) const {
  std::vector<double> values = finite(*this, column);
  if (values.empty()) return kNan;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Run::sum(const std::string& column) const {
  double total = 0;
  for (const double value : finite(*this, column)) total += value;
  return total;
}

std::vector<Pause> Run::pauses() const {
  std::vector<Pause> out;
  const auto time = columns.find("time"), pace = columns.find("seconds_per_iteration");
  if (time == columns.end() || pace == columns.end()) return out;
  const std::vector<double>& iterations = columns.at("iteration");
  for (size_t i = 1; i < iterations.size(); ++i) {
    const double own = (iterations[i] - iterations[i - 1]) * pace->second[i];
    const double gap = time->second[i] - time->second[i - 1] - own;
    if (gap > 30 + own / 2) out.push_back({iterations[i - 1], gap});
  }
  return out;
}

bool is_run(const std::string& path) { return !places_of(path).metrics.empty(); }

Run read_run(const std::string& path) {
  const Places places = places_of(path);
  Run run;
  run.path = places.metrics;
  run.config_path = places.config;
  run.columns["iteration"] = {};
  read_lines(run, read_whole(run.path));
  for (auto& [name, column] : run.columns) column.resize(run.columns["iteration"].size(), kNan);
  if (!run.config_path.empty()) run.settings = settings_of(read_whole(run.config_path));
  return run;
}

void name_runs(std::vector<Run>& runs) {
  const auto end_of = [](const Run& run, int parts) {
    fs::path path = fs::path(run.path).lexically_normal();
    if (path.filename() == "metrics.jsonl" && path.has_parent_path()) path = path.parent_path();
    std::vector<std::string> all;
    for (const fs::path& part : path) all.push_back(part.string());
    const auto from = std::max<int64_t>(0, static_cast<int64_t>(all.size()) - parts);
    return cli::join({all.begin() + from, all.end()}, "/");
  };
  for (int parts = 1; parts < 64; ++parts) {
    std::set<std::string> names;
    for (Run& run : runs) names.insert(run.name = end_of(run, parts));
    if (names.size() == runs.size()) return;
  }
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name += cli::concat(" (", i + 1, ")");
}

}  // namespace report
