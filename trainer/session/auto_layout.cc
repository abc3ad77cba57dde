// See auto_layout.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/auto_layout.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/log/iteration_line.h"
#include "trainer/session/devices.h"
#include "trainer/session/layout_report.h"
#include "trainer/session/start.h"
#include "trainer/session/vocabulary.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;

constexpr double kGib = int64_t{1} << 30;

/// Whether --gpu is the file of a table.
bool names_file(const TrainConfig& config) {
  return !config.gpu.empty() && ops::find_gpu(config.gpu) == nullptr &&
         std::filesystem::is_regular_file(config.gpu);
}

Card named_card(const TrainConfig& config) {
  return names_file(config) ? parse_card(read_text_file(config.gpu), config.gpu)
                            : card_of(*planned_gpu(config));
}

std::optional<double> memory_of_environment() {
  const char* text = std::getenv("DEVICE_MEMORY_GB");
  if (text == nullptr || *text == 0) return std::nullopt;
  try {
    return cli::parse_real(text, 1, 1e5);
  } catch (const UsageError& error) {
    throw UsageError(concat("DEVICE_MEMORY_GB=", text, " in the environment: ", error.what()));
  }
}

/// Takes the layout chosen by the run whose checkpoint `config` loads; false if it had another
/// number of ranks, or chose none.
bool take_stored_layout(TrainConfig& config, Given& given, const Cluster& cluster,
                        cli::Console& console) {
  if (config.load.empty() || config.new_layout || config.finetune) return false;
  const std::optional<std::string> path = find_checkpoint(config.load, config.ckpt_step);
  if (!path) return false;
  const std::map<std::string, std::vector<std::string>> stored =
      open_checkpoint(*path, config).meta().config;
  const auto truth = [&](const char* flag) {
    const auto at = stored.find(flag);
    return at != stored.end() && !at->second.empty() && at->second.front() != "false";
  };
  if (!truth("auto-layout") && !stored.contains("max-global-batch-size")) return false;
  TrainConfig next = config;
  Given next_given = given;
  const cli::Table<TrainConfig>& table = flag_table();
  std::vector<cli::Row> rows = cli::bind_rows(table, next);
  for (const std::string& flag : flags_of_choice()) {
    const auto at = stored.find(flag);
    if (given.contains(flag) || at == stored.end()) continue;
    for (const cli::Row& row : rows)
      if (row.name == flag) row.set(at->second);
    next_given.insert(flag);
  }
  const auto other = [&](auto... why) {
    reopen(config, given);
    console.note(concat(*path, ": its layout does not fit ", why..., "; another is chosen"));
    return false;
  };
  if (config.max_global_batch_size &&
      next.global_batch_size.value_or(0) > *config.max_global_batch_size)
    return other("--max-global-batch-size ", *config.max_global_batch_size);
  const int64_t model =
      next.tensor_model_parallel_size * next.pipeline_model_parallel_size * next.micro_batch_size;
  const int64_t world = cluster.world_size * next.micro_batch_size;
  if (model == 0 || world % model != 0 || !next.global_batch_size ||
      *next.global_batch_size % (world / model * next.micro_batch_size) != 0) {
    if (given.contains("global-batch-size"))
      return other(cluster.world_size, " ranks and --global-batch-size ",
                   next.global_batch_size.value_or(0));
    return other(cluster.world_size, " ranks");
  }
  config = std::move(next);
  given = std::move(next_given);
  console.note(concat(*path, ": the layout chosen for this run is kept"));
  return true;
}

/// "about 12.3 ms"; a step is rarely of whole seconds.
std::string step_time(double seconds) {
  if (seconds < 1e-3) return "under 1 ms";
  if (seconds >= 60) return concat("about ", cli::readable_time(seconds));
  char text[32];
  const bool short_one = seconds < 0.9995;
  std::snprintf(text, sizeof text, short_one ? "about %.3g ms" : "about %.3g s",
                short_one ? 1e3 * seconds : seconds);
  return text;
}

void say(const Choice& choice, const SearchResult& result, const std::vector<std::string>& words,
         const Card& card, cli::Console& console) {
  const auto gib = [](double bytes) { return cli::readable_bytes(bytes); };
  console.note(
      concat("layout chosen in ",
             result.seconds < 1 ? "less than a second" : cli::readable_time(result.seconds), ": ",
             describe(choice.layout)));
  std::string cost = concat("it will take ", gib(static_cast<double>(choice.bytes)), " of ",
                            gib(card.memory_gib * kGib), " a device");
  if (card.multiprocessors > 0)
    cost += concat(" and ", step_time(choice.report.seconds), " a step, ",
                   cli::with_commas(static_cast<int64_t>(choice.report.tokens_per_second)),
                   " tokens/s");
  console.note(concat(cost, " (", basis_of(card), ")"));
  console.note(concat("the same as flags: ", cli::join(words, " ")));
}

/// Sets the best layout that fits.
void search_layout(TrainConfig& config, Given& given, const Cluster& cluster,
                   cli::Console& console) {
  const bool on_gpu = config.device != "cpu" && (visible_gpus(config) > 0 || !config.gpu.empty());
  std::optional<CardChoice> found;
  if (on_gpu) found = find_card(config);
  const Card card = found ? found->card : processor_card(cluster.local_size);
  SearchTask task = search_task(config, given, cluster, card, find_vocabulary(config).vocab_size);
  const SearchResult result = search_layouts(task);
  if (result.best.empty())
    throw UsageError(concat("no layout of ", cli::with_commas(result.enumerated), " fits on ",
                            cli::counted(cluster.world_size, "device"), ": the nearest, ",
                            describe(result.nearest_miss->layout), ", needs ",
                            bytes_of(result.nearest_miss->bytes, room_of(card)), " each"));
  const Choice& best = result.best.front();
  const Fixed fixed = fixed_by(given);
  apply(best.layout, fixed, config, given);
  say(best, result, words_of(best.layout, fixed), card, console);
}

}  // namespace

std::string basis_of(const Card& card) {
  const std::string source = cli::one_line(card.source);
  if (card.multiprocessors == 0)
    return card.measured ? concat("of this processor: ", source) : "of a processor: not measured";
  return concat(cli::one_line(card.product), ": ", source, card.measured ? "" : "; not measured",
                card.measured && !card.measured_transfers ? "; collectives not measured" : "");
}

void set_device_memory(Card& card, double gib) { card.memory_gib = 0.99 * gib; }

std::optional<CardChoice> find_card(const TrainConfig& config) {
  CardChoice out;
  if (!config.gpu.empty()) {
    out.card = named_card(config);
  } else if (const std::string product = gpu_product(config); !product.empty()) {
    const ops::Gpu* gpu = find_product(product);
    if (gpu == nullptr)
      throw UsageError(
          concat("no table and no data sheet of ", product,
                 ": measure it with plan-training --calibrate FILE and give --gpu FILE"));
    out.card = card_of(*gpu);
    out.note = concat("planned for this machine's GPU, ", product);
  } else {
    return std::nullopt;
  }
  if (const std::optional<double> gib = memory_of_environment()) set_device_memory(out.card, *gib);
  if (config.network_gb_per_s) out.card.network_gb_per_s = *config.network_gb_per_s;
  return out;
}

void check_planned_gpu(const TrainConfig& config) {
  if (names_file(config))
    static_cast<void>(named_card(config));
  else
    planned_gpu(config);
}

Card processor_card(int64_t ranks_on_host) {
  Card card;
  card.name = "cpu";
  card.product = "a processor";
  card.source = "not measured";
  const double ranks = static_cast<double>(std::max<int64_t>(ranks_on_host, 1));
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  card.memory_gib = 0.8 * pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / kGib / ranks;
  card.watts = 100;
  card.watts_waiting = 50;
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  card.peak_tflops = 0.05 * cores / ranks;
  card.memory_tb_per_s = 0.02;
  card.fp32_share = 1;
  card.host_gb_per_s = 20;
  card.link_gb_per_s = 2;
  card.link_us = 50;
  card.network_gb_per_s = 1;
  card.network_us = 50;
  return card;
}

bool wants_layout(const TrainConfig& config) noexcept {
  return config.auto_layout || config.max_global_batch_size.has_value();
}

SearchTask search_task(const TrainConfig& config, const Given& given, const Cluster& cluster,
                       Card card, int64_t vocab_size) {
  SearchTask task{.config = config,
                  .given = given,
                  .cluster = cluster,
                  .card = std::move(card),
                  .vocab_size = vocab_size};
  if (config.max_global_batch_size &&
      config.global_batch_size.value_or(0) > *config.max_global_batch_size)
    throw UsageError(concat("--global-batch-size ", *config.global_batch_size,
                            " is more than --max-global-batch-size ",
                            *config.max_global_batch_size));
  if (!config.max_global_batch_size && !config.global_batch_size)
    throw UsageError("a layout is chosen for --max-global-batch-size or --global-batch-size");
  task.exactly = config.global_batch_size.has_value();
  task.most_samples = task.exactly ? *config.global_batch_size : *config.max_global_batch_size;
  task.bf16 = task.card.multiprocessors > 0;
  task.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  return task;
}

void choose_layout(TrainConfig& config, Given& given, const Cluster& cluster,
                   cli::Console& console) {
  if (!wants_layout(config)) {
    if (config.new_layout) console.note("--new-layout changes nothing without --auto-layout");
    return;
  }
  std::vector<std::string> chosen = config.chosen_flags;
  for (const std::string& name : open_flags(given))
    if (std::ranges::find(chosen, name) == chosen.end()) chosen.push_back(name);
  if (config.new_layout) {
    reopen(config, given);
    if (chosen.empty())
      console.note("--new-layout changes nothing: every flag of the layout is given");
  }
  if (!take_stored_layout(config, given, cluster, console))
    search_layout(config, given, cluster, console);
  // For the configuration that is saved: a start from it keeps this choice, or makes it anew.
  config.chosen_flags = std::move(chosen);
  config.new_layout = false;
}

}  // namespace trainer
