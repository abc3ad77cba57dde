// SPDX-License-Identifier: MIT
// Room: tools/report. The page's sections about runs: numbers side by side, curves, what happened,
// settings.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/cli/text.h"
#include "tools/draw/chart.h"
#include "tools/report/page.h"

namespace report {
namespace {

using cli::concat;
using draw::escape_html;
using draw::short_number;

std::string key(int color, bool dotted) {
  return concat("<svg class=\"key c", color % static_cast<int>(draw::kColors.size()),
                dotted ? " dotted" : "",
                "\" viewBox=\"0 0 32 10\" aria-hidden=\"true\"><path d=\"M0 5H32\"/></svg> ");
}

// A number, or a dash where there is none.
std::string cell(double value, const std::string& unit = "") {
  return std::isfinite(value) ? short_number(value) + unit : "\u2013";
}

// A curve that every run may have.
struct Curve {
  const char* title;
  const char* column;
  double factor = 1;
  bool log = false, from_zero = false;
  bool only_if_it_changes = false;
  const char* second = nullptr;  ///< a column that is drawn with fine dots,
  const char* second_name = "";  ///< and what is added to the run's name for it
};

constexpr double kMilli = 1e3, kGib = 1.0 / (int64_t{1} << 30);
constexpr Curve kCurves[] = {
    {"Gradient norm", "grad_norm", 1, true},
    {"Learning rate", "learning_rate", 1, false, true},
    {"Tokens per second", "tokens_per_second", 1, false, true},
    {"Tflop/s of each device", "tflops_per_device", 1, false, true},
    {"Slowest rank's work beyond the mean, ms a step", "slowest_rank_cost_seconds", kMilli, false,
     true},
    {"Exposed communication, ms a step", "exposed_communication_seconds", kMilli, false, true},
    {"Waiting for data, ms a step", "data_wait_seconds", kMilli, false, true},
    {"Peak memory, GiB", "peak_memory_bytes", kGib, false, true, false, "planned_memory_bytes",
     ", planned"},
    {"Loss scale", "loss_scale", 1, true, false, true},
    {"Skipped iterations of an interval", "skipped_iterations", 1, false, true, true},
    {"Iterations with a loss that is not finite", "nan_iterations", 1, false, true, true},
    {"Global batch size", "global_batch_size", 1, false, true, true},
    {"Norm of the parameters", "params_norm"},
    {"Zeros among the gradients", "num_zeros", 1, false, true},
};

bool changes(const std::vector<Run>& runs, const char* column) {
  for (const Run& run : runs) {
    const std::vector<double> y = run.points(column).y;
    const draw::Range range = draw::range_of({&y});
    if (!y.empty() && range.high > range.low) return true;
  }
  return false;
}

std::string values_table(const draw::Chart& chart) {
  constexpr size_t kRows = 12;
  std::string out = "<details><summary>Values</summary>";
  for (const draw::Series& series : chart.series) {
    std::vector<std::vector<std::string>> rows;
    const size_t n = series.points.x.size(), shown = std::min(n, kRows);
    for (size_t i = 0; i < shown; ++i) {
      const size_t at = shown == 1 ? 0 : i * (n - 1) / (shown - 1);
      rows.push_back({short_number(series.points.x[at]), cell(series.points.y[at])});
    }
    out += table(series.name, {"iteration", escape_html(series.name)}, rows);
  }
  return out + "</details>";
}

// A picture with its title, its legend if there are `several` runs or curves, and its values.
std::string figure(const draw::Chart& chart, bool several) {
  const std::string picture = draw::line_chart(chart);
  if (picture.empty()) return "";
  std::string legend;
  if (several || chart.series.size() > 1)
    for (const draw::Series& series : chart.series)
      legend += concat("<li>", key(series.color, series.dotted), escape_html(series.name), "</li>");
  return concat("<figure><figcaption><h3>", escape_html(chart.title), "</h3>",
                legend.empty() ? "" : concat("<ul class=\"legend\">", legend, "</ul>"),
                "</figcaption>", picture, "<output aria-live=\"off\"></output>",
                values_table(chart), "</figure>\n");
}

std::string loss_figure(const std::vector<Run>& runs) {
  draw::Chart chart{.title = "Loss", .series = {}};
  int color = 0;
  for (const Run& run : runs) {
    chart.series.push_back({run.name, run.points("lm_loss"), color});
    draw::Points validation = run.validation_points();
    if (!validation.x.empty()) {
      const bool few = validation.x.size() <= 100;
      chart.series.push_back({run.name + ", validation", std::move(validation), color, true, few});
    }
    ++color;
  }
  return figure(chart, runs.size() > 1);
}

std::string curves(const std::vector<Run>& runs) {
  std::string out = loss_figure(runs);
  for (const Curve& curve : kCurves) {
    if (curve.only_if_it_changes && !changes(runs, curve.column)) continue;
    draw::Chart chart{
        .title = curve.title, .log = curve.log, .from_zero = curve.from_zero, .series = {}};
    int color = 0;
    for (const Run& run : runs) {
      draw::Points points = run.points(curve.column, curve.factor);
      if (!points.x.empty()) chart.series.push_back({run.name, std::move(points), color});
      if (curve.second != nullptr) {
        points = run.points(curve.second, curve.factor);
        if (!points.x.empty())
          chart.series.push_back({run.name + curve.second_name, std::move(points), color, true});
      }
      ++color;
    }
    out += figure(chart, runs.size() > 1);
  }
  return out;
}

double seconds_in_steps(const Run& run) {
  const auto pace = run.columns.find("seconds_per_iteration");
  if (pace == run.columns.end()) return std::nan("");
  double total = 0, before = 0;
  const std::vector<double>& iterations = run.columns.at("iteration");
  for (size_t i = 0; i < iterations.size(); ++i) {
    if (std::isfinite(pace->second[i])) total += (iterations[i] - before) * pace->second[i];
    before = iterations[i];
  }
  return total;
}

std::string validation_cell(const Run& run, const std::string& set) {
  const Validation* best = nullptr;
  for (const Validation& v : run.validations)
    if (v.set == set && std::isfinite(v.lm_loss) && (!best || v.lm_loss < best->lm_loss)) best = &v;
  if (best == nullptr) return cell(std::nan(""));
  return concat(short_number(best->lm_loss),
                set.empty() ? concat(" at ", short_number(best->iteration)) : "");
}

// Which rank was slowest most often.
std::string slowest_cell(const Run& run) {
  const auto at = run.columns.find("slowest_rank");
  if (at == run.columns.end()) return cell(std::nan(""));
  std::map<double, int64_t> counts;
  for (const double rank : at->second)
    if (std::isfinite(rank)) ++counts[rank];
  if (counts.empty()) return cell(std::nan(""));
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return concat("rank ", short_number(most->first), " in ", most->second, " of ", at->second.size(),
                " intervals");
}

std::string pauses_cell(const Run& run) {
  double seconds = 0;
  const std::vector<Pause> pauses = run.pauses();
  for (const Pause& pause : pauses) seconds += pause.seconds;
  if (pauses.empty()) return "none";
  return concat(cli::counted(static_cast<int64_t>(pauses.size()), "pause"), ", ",
                cli::readable_time(seconds));
}

std::string summary(const std::vector<Run>& runs) {
  std::vector<std::string> head = {"<span class=\"faint\">run</span>"};
  for (size_t i = 0; i < runs.size(); ++i)
    head.push_back(key(static_cast<int>(i), false) + escape_html(runs[i].name));
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const char* name, const std::function<std::string(const Run&)>& of) {
    std::vector<std::string> cells = {name};
    bool any = false;
    for (const Run& run : runs) {
      cells.push_back(of(run));
      any |= cells.back() != cell(std::nan(""));
    }
    if (any) rows.push_back(std::move(cells));
  };
  const auto time = [](double seconds) {
    return std::isfinite(seconds) ? cli::readable_time(seconds) : cell(seconds);
  };
  const auto bytes = [](double value) {
    return std::isfinite(value) ? cli::readable_bytes(value) : cell(value);
  };
  row("iterations", [](const Run& r) {
    return cell(r.last("iteration")) + " of " + cell(r.last("train_iters"));
  });
  row("samples", [](const Run& r) { return cell(r.last("consumed_train_samples")); });
  row("last loss", [](const Run& r) { return cell(r.last("lm_loss")); });
  row("best validation loss", [](const Run& r) { return validation_cell(r, ""); });
  row("validation set at the end",
      [](const Run& r) { return validation_cell(r, "validation set"); });
  row("test set at the end", [](const Run& r) { return validation_cell(r, "test set"); });
  row("tokens per second, median",
      [](const Run& r) { return cell(r.median("tokens_per_second")); });
  row("time in steps", [&](const Run& r) { return time(seconds_in_steps(r)); });
  row("time left", [&](const Run& r) { return time(r.last("seconds_left")); });
  row("pauses, restarts among them", pauses_cell);
  row("skipped iterations", [](const Run& r) { return cell(r.sum("skipped_iterations")); });
  row("losses that were not finite", [](const Run& r) { return cell(r.sum("nan_iterations")); });
  row("peak memory", [&](const Run& r) { return bytes(r.last("peak_memory_bytes")); });
  row("planned memory", [&](const Run& r) { return bytes(r.last("planned_memory_bytes")); });
  row("exposed communication, median", [](const Run& r) {
    return cell(1e3 * r.median("exposed_communication_seconds"), " ms a step");
  });
  row("slowest rank, most often", slowest_cell);
  std::string out = table("Runs side by side", head, rows);
  for (const Run& run : runs)
    if (!run.passed_over.empty()) out += concat("<p>", escape_html(run.passed_over), "</p>\n");
  return out;
}

std::string happenings(const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> rows;
  for (const Run& run : runs) {
    for (const Pause& pause : run.pauses())
      rows.push_back({escape_html(run.name), short_number(pause.iteration),
                      concat("paused for ", cli::readable_time(pause.seconds))});
    for (const Event& event : run.events)
      rows.push_back(
          {escape_html(run.name), short_number(event.iteration), escape_html(event.text)});
  }
  if (rows.empty()) return "";
  constexpr size_t kMost = 200;
  const size_t all = rows.size();
  rows.resize(std::min(all, kMost));
  return concat("<section><h2>What happened</h2>",
                table("What happened", {"run", "after iteration", "what"}, rows),
                all > kMost ? concat("<p>", all - kMost, " more are in the runs' files.</p>") : "",
                "</section>\n");
}

std::string value_of(const Run& run, const std::string& name) {
  for (const Setting& setting : run.settings)
    if (setting.name == name) return setting.value;
  return "";
}

std::string settings(const std::vector<Run>& runs) {
  std::vector<std::string> names, head = {"setting"};
  std::string commands;
  for (const Run& run : runs) {
    head.push_back(escape_html(run.name));
    if (!run.config_path.empty())
      commands += concat("<pre>trainer --config ", escape_html(cli::shell_word(run.config_path)),
                         "</pre>\n");
    for (const Setting& setting : run.settings)
      if (std::find(names.begin(), names.end(), setting.name) == names.end())
        names.push_back(setting.name);
  }
  if (names.empty()) return "";
  std::vector<std::vector<std::string>> different, all;
  for (const std::string& name : names) {
    std::vector<std::string> row = {escape_html(name)};
    bool same = true;
    for (const Run& run : runs) {
      row.push_back(escape_html(value_of(run, name)));
      same &= row.back() == row[1];
    }
    if (!same) different.push_back(row);
    all.push_back(std::move(row));
  }
  std::string out = "<section><h2>Settings</h2>\n";
  if (runs.size() > 1)
    out += different.empty() ? "<p>All settings are the same.</p>\n"
                             : table("Settings that differ", head, different);
  out += concat("<details><summary>All ", all.size(), " settings</summary>",
                table("All settings", head, all), "</details>\n");
  return out + concat("<p>", runs.size() > 1 ? "The commands" : "The command", ":</p>", commands,
                      "</section>\n");
}

}  // namespace

std::string run_sections(const std::vector<Run>& runs) {
  if (runs.empty()) return "";
  return concat("<section><h2>", runs.size() > 1 ? "Runs" : "Run", "</h2>\n", summary(runs),
                "</section>\n<section><h2>Curves</h2><div class=\"grid\">\n", curves(runs),
                "</div></section>\n", happenings(runs), settings(runs));
}

}  // namespace report
