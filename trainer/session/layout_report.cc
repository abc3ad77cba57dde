// See layout_report.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/cli/text.h"
#include "trainer/log/iteration_line.h"
#include "trainer/session/auto_layout.h"
#include "trainer/session/layout_beside.h"

namespace trainer {
namespace {

using cli::concat;
using cli::counted;
using cli::with_commas;

constexpr double kGib = int64_t{1} << 30;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string gib(int64_t bytes) { return format("%.1f GiB", static_cast<double>(bytes) / kGib); }

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

double run_seconds(const Choice& c, const SearchTask& task) {
  return run_seconds(planned_run(task, c.layout), c.report.seconds, task.cluster, task.card);
}

// On one host the trainer starts its ranks; on several hosts a launcher does, run once on each:
// torchrun, or the trainer itself where ranks are to be started again.
std::string command_of(const Choice& choice, const ReportContext& context) {
  const Cluster& cluster = context.task.cluster;
  const TrainConfig& config = context.task.config;
  const bool one_host = cluster.world_size <= cluster.local_size;
  const bool restarts = config.max_restarts > 0 || config.in_memory_checkpoint;
  const int64_t hosts = cluster.world_size / cluster.local_size;
  std::vector<std::string> words;
  if (!one_host && !restarts)
    words.push_back(concat(
        "torchrun --nnodes ", hosts, " --node_rank $RANK --nproc_per_node ", cluster.local_size,
        " --master_addr $MASTER_ADDR --master_port $MASTER_PORT --no-python \\\n "
        ""));
  words.push_back("trainer");
  if (!one_host && restarts)
    words.push_back(concat("--nnodes ", hosts,
                           " --node-rank $RANK --master-addr $MASTER_ADDR --master-port "
                           "$MASTER_PORT"));
  // One rank, too: without it the trainer starts one for each GPU.
  if (one_host || restarts)
    words.push_back(concat("--nproc-per-node ", std::min(cluster.world_size, cluster.local_size)));
  for (const std::string& word : context.words) words.push_back(cli::shell_word(word));
  const std::vector<std::string> layout = words_of(choice.layout, fixed_of(context.task));
  words.insert(words.end(), layout.begin(), layout.end());
  return cli::join(words, " ");
}

std::string choice_text(const Choice& c, size_t place, const ReportContext& context) {
  const StepReport& r = c.report;
  std::string text = format("%2zu  %s\n", place, describe(c.layout).c_str());
  text += format("    memory      %s a GPU of %s\n", gib(c.bytes).c_str(),
                 gib(room_of(context.task.card)).c_str());
  text += format(
      "    step        %.4g s of %s: compute %.1f%%, bubble %.1f%%, exposed communication "
      "%.1f%%\n",
      r.seconds, counted(c.layout.global_batch_size(), "sample").c_str(),
      percent(r.compute, r.seconds), percent(r.bubble, r.seconds), percent(r.exposed, r.seconds));
  text +=
      format("    tokens/s    %s, %s a GPU; MFU %.1f%%; %.3g mJ a token\n",
             with_commas(static_cast<int64_t>(r.tokens_per_second)).c_str(),
             with_commas(static_cast<int64_t>(r.tokens_per_second /
                                              static_cast<double>(context.task.cluster.world_size)))
                 .c_str(),
             100 * r.mfu, 1e3 * r.joules_per_token);
  if (context.has_length)
    text += format("    run         %s, about %s\n", counted(c.train_iters, "step").c_str(),
                   format_duration(run_seconds(c, context.task)).c_str());
  return text;
}

std::string refusals_text(const SearchResult& result) {
  constexpr size_t kShown = 5;
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [words, count] : result.refusals) sorted.emplace_back(-count, words);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  if (sorted.empty()) return text;
  text += format("    %8s  the trainer refuses:\n", with_commas(result.refused()).c_str());
  for (size_t i = 0; i < sorted.size() && i < kShown; ++i)
    text +=
        format("    %8s    %s\n", with_commas(-sorted[i].first).c_str(), sorted[i].second.c_str());
  if (sorted.size() > kShown)
    text += format("    %8s    and %s\n", "",
                   counted(static_cast<int64_t>(sorted.size() - kShown), "other reason").c_str());
  return text;
}

std::string miss_text(const SearchResult& result, const ReportContext& context) {
  if (!result.nearest_miss) return "";
  const SearchResult::Miss& miss = *result.nearest_miss;
  const int64_t room = room_of(context.task.card);
  std::string text =
      concat("nearest miss: ", describe(miss.layout), "\n    needs ", bytes_of(miss.bytes, room));
  if (result.best.empty()) text += context.task.as_given ? "" : ", the least of all layouts";
  if (result.least_plain)
    text += concat("\n    without recomputation and offload the least is ",
                   bytes_of(result.least_plain->bytes, room), ": ",
                   describe(result.least_plain->layout));
  if (miss.fitting && !result.best.empty()) {
    Layout plain = miss.layout;
    const std::vector<std::string> before = words_of(plain, {}),
                                   after = words_of(miss.fitting->layout, {});
    std::vector<std::string> more;
    bool takes = false;
    for (const std::string& word : after) {
      if (word.starts_with("--"))
        takes = std::find(before.begin(), before.end(), word) == before.end();
      if (takes) more.push_back(word);
    }
    const double times = miss.tokens_per_second / miss.fitting->report.tokens_per_second;
    text += format(times < 2 ? "; with %s it fits and takes %.1f%% longer"
                             : "; with %s it fits and takes %.1f times as long",
                   cli::join(more, " ").c_str(), times < 2 ? 100 * (times - 1) : times);
  }
  return text + "\n";
}

nlohmann::ordered_json json_of(const Choice& c, const ReportContext& context) {
  const StepReport& r = c.report;
  const Layout& l = c.layout;
  const PlannedRun run = planned_run(context.task, l);
  const TrainConfig& config = run.config;
  nlohmann::ordered_json json = {
      {"layout", describe(l)},
      {"micro_batch_size", config.micro_batch_size},
      {"num_microbatches", run.options.max_microbatches},
      {"global_batch_size", config.derived.global_batch_size},
      {"tensor_model_parallel_size", config.tensor_model_parallel_size},
      {"sequence_parallel", run.options.sequence_parallel},
      {"pipeline_model_parallel_size", config.pipeline_model_parallel_size},
      {"pipeline_schedule", config.derived.pipeline_schedule},
      {"pipeline_chunks", config.derived.pipeline_chunks},
      {"data_parallel_size", config.derived.data_parallel_size},
      {"zero_stage", run.options.zero_stage},
      {"overlap", run.options.overlap_grad_reduce},
      {"copy_engines",
       copies_data(context.task.card, run.options, run.topology, context.task.cluster)},
      {"recompute", config.derived.recompute},
      {"recompute_num_layers", config.derived.recompute_num_layers},
      {"cpu_offload", config.cpu_offload},
      {"memory_bytes", c.bytes},
      {"step_seconds", r.seconds},
      {"compute_seconds", r.compute},
      {"bubble_seconds", r.bubble},
      {"exposed_communication_seconds", r.exposed},
      {"tokens_per_second", r.tokens_per_second},
      {"mfu", r.mfu},
      {"joules_per_token", r.joules_per_token},
      {"flags", words_of(l, fixed_of(context.task))},
      {"command", command_of(c, context)}};
  if (context.has_length) json["run_seconds"] = run_seconds(c, context.task);
  return json;
}

}  // namespace

std::string bytes_of(int64_t bytes, int64_t room) {
  const auto text = [](int64_t n, int digits) {
    return format("%.*f", digits, static_cast<double>(n) / kGib);
  };
  int digits = 1;
  while (digits < 9 && bytes != room && text(bytes, digits) == text(room, digits)) ++digits;
  return concat(text(bytes, digits), " GiB of ", text(room, digits), " GiB");
}

std::string text_report(const SearchResult& result, const ReportContext& context) {
  const SearchTask& task = context.task;
  std::string text = concat("card        ", basis_of(task.card), "\n");
  text += format("GPUs        %lld, %lld a host; network %.4g GB/s a host\n",
                 static_cast<long long>(task.cluster.world_size),
                 static_cast<long long>(task.cluster.local_size), task.card.network_gb_per_s);
  if (!result.best.empty())
    text += format(
        "parameters  %s\n",
        with_commas(count_parameters(planned_run(task, result.best.front().layout).spec)).c_str());
  text += format("searched    %s in %.2f s\n\n", counted(result.enumerated, "layout").c_str(),
                 result.seconds);
  for (size_t i = 0; i < result.best.size(); ++i)
    text += choice_text(result.best[i], i + 1, context);
  if (result.best.empty())
    text += "no layout fits: more GPUs, larger ones, a smaller batch or a smaller model\n";
  else
    text += concat("\nthe first as a command:\n", command_of(result.best.front(), context), "\n");
  if (!result.best.empty() && !context.lacks.empty())
    text += concat("the trainer also needs: ", cli::join(context.lacks, ", "), "\n");
  if (!result.best.empty())
    if (const std::optional<Choice> fp8 = in_fp8(task, result.best.front()))
      text += format(
          "\nthe first with --fp8-format hybrid, which rounds otherwise (docs/fp8.md):\n"
          "            %s tokens/s, %.2f times as many; %s a GPU\n",
          with_commas(static_cast<int64_t>(fp8->report.tokens_per_second)).c_str(),
          fp8->report.tokens_per_second / result.best.front().report.tokens_per_second,
          gib(fp8->bytes).c_str());
  text += "\nleft out\n" + refusals_text(result);
  text += format("    %8s  do not fit as they are; what makes them fit is slower, or not enough\n",
                 with_commas(result.no_room).c_str());
  text += format("    %8s  fit and come after these\n", with_commas(result.fit_after()).c_str());
  text += format("    %8s  would be slower with any memory: not examined further\n",
                 with_commas(result.slower_by_bound).c_str());
  return text + miss_text(result, context);
}

std::string json_report(const SearchResult& result, const ReportContext& context) {
  nlohmann::ordered_json json;
  const SearchTask& task = context.task;
  json["card"] = {{"name", task.card.name},
                  {"product", task.card.product},
                  {"source", task.card.source},
                  {"measured", task.card.measured},
                  {"measured_transfers", task.card.measured_transfers},
                  {"memory_bytes", room_of(task.card)},
                  {"network_gb_per_s", task.card.network_gb_per_s}};
  json["world_size"] = task.cluster.world_size;
  json["local_world_size"] = task.cluster.local_size;
  if (!result.best.empty())
    json["parameters"] = count_parameters(planned_run(task, result.best.front().layout).spec);
  json["layouts"] = result.enumerated;
  json["best"] = nlohmann::ordered_json::array();
  for (const Choice& c : result.best) json["best"].push_back(json_of(c, context));
  if (!result.best.empty())
    if (const std::optional<Choice> fp8 = in_fp8(task, result.best.front()))
      json["first_in_fp8"] = {{"memory_bytes", fp8->bytes},
                              {"step_seconds", fp8->report.seconds},
                              {"tokens_per_second", fp8->report.tokens_per_second}};
  json["missing_flags"] = context.lacks;
  json["refused_layouts"] = result.refused();
  json["refused"] = result.refusals;
  json["examined"] = result.costed;
  json["do_not_fit"] = result.no_room;
  json["fit_and_after"] = result.fit_after();
  json["slower_by_bound"] = result.slower_by_bound;
  if (result.nearest_miss) {
    const SearchResult::Miss& miss = *result.nearest_miss;
    json["nearest_miss"] = {{"layout", describe(miss.layout)},
                            {"memory_bytes", miss.bytes},
                            {"tokens_per_second", miss.tokens_per_second}};
    if (miss.fitting) json["nearest_miss"]["fitting"] = json_of(*miss.fitting, context);
    if (result.best.empty()) json["least_memory_bytes"] = miss.bytes;
  }
  if (result.least_plain)
    json["least_without_recomputation"] = {{"layout", describe(result.least_plain->layout)},
                                           {"memory_bytes", result.least_plain->bytes}};
  return json.dump(2) + "\n";
}

}  // namespace trainer
