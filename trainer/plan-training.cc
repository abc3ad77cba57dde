// plan-training: chooses the layout of a training run. Flag rows become a trainer's command and a
// cluster, the search finds layouts, the report is printed. With --calibrate it measures this
// machine's GPUs instead.
// Not here: the search (session/layout_search.h), the report (session/layout_report.h).
//
// SPDX-License-Identifier: MIT
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/fields.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/tokenizer/open_tokenizer.h"
#include "trainer/config/flags.h"
#include "trainer/config/outputs.h"
#include "trainer/session/auto_layout.h"
#include "trainer/session/calibrate.h"
#include "trainer/session/checkpoint_args.h"
#include "trainer/session/devices.h"
#include "trainer/session/foreign.h"
#include "trainer/session/layout_report.h"
#include "trainer/session/neox_files.h"
#include "trainer/session/vocabulary.h"

namespace {

using namespace trainer;
using cli::concat;
using cli::UsageError;

const cli::Program kProgram = {.name = "plan-training",
                               .summary = "choose the layout of a training run",
                               .operands = "",
                               .config_file = true,
                               .yaml_flag = "neox-config",
                               .version_note = gpu_support};

struct PlanOptions {
  TrainConfig train;
  std::optional<int64_t> world_size, local_world_size, tokens;
  std::optional<double> device_memory_gb;
  int64_t top = 3;
  bool json = false, as_given = false;
  std::string calibrate;
  double seconds = 15;
};

constexpr int64_t kUsualHost = 8, kMostGpus = 1 << 20;
/// GPT-2's, used if the tokenizer's files are elsewhere.
constexpr int64_t kUsualVocabulary = 50257, kUsualPadded = 50304;

// Flags that the trainer has under the same name are in the trainer's groups.
cli::Table<PlanOptions> flags() {
  using O = PlanOptions;
  cli::Table<O> table = {
      {"What to plan",
       {{.name = "world-size",
         .value = "N",
         .help = "Total number of GPUs. Default: --nnodes times --nproc-per-node, else those of "
                 "this machine, else 1.",
         .field = cli::integer(&O::world_size, 1, kMostGpus)},
        {.name = "local-world-size",
         .value = "N",
         .help = "GPUs per host. Default: --nproc-per-node, else all of them, at most 8.",
         .field = cli::integer(&O::local_world_size, 1, 1 << 10)},
        {.name = "device-memory-gb",
         .value = "GB",
         .help = "Nominal memory of a GPU. Default: DEVICE_MEMORY_GB of the environment, or "
                 "the card's own.",
         .field = cli::real(&O::device_memory_gb, 1, 1e5)},
        {.name = "tokens",
         .value = "TOKENS",
         .help = "Length of the run, like the trainer's --train-tokens.",
         .field = cli::integer(&O::tokens, 1, cli::kMaxInteger)},
        {.name = "top",
         .value = "N",
         .help = "Number of layouts to print, the best first.",
         .field = cli::integer(&O::top, 1, 1000)},
        {.name = "as-given",
         .help = "Do not search: estimate the layout that the flags give.",
         .field = cli::on(&O::as_given)},
        {.name = "json", .help = "Print the result as JSON.", .field = cli::on(&O::json)}}},
      {"Measuring",
       {{.name = "calibrate",
         .value = "FILE",
         .help = "Do not plan: measure the GPUs of this machine, in up to a minute, and "
                 "write their table to FILE (or standard output, -), for --gpu FILE.",
         .field = cli::text(&O::calibrate)},
        {.name = "seconds",
         .value = "SECONDS",
         .help = "How long --calibrate measures operations, not counting the choice of algorithms, "
                 "collectives and the power limit.",
         .field = cli::real(&O::seconds, 1, 3600)}}}};
  for (const cli::Group<TrainConfig>& group : flag_table())
    table.push_back(cli::lift(group, &O::train));
  return table;
}

// The words of the command for the trainer: its flags as given, in the table's order. A switch that
// a file sets to false is none.
std::vector<std::string> trainer_words(TrainConfig config, const Given& given) {
  static const char* const kOwn[] = {"max-global-batch-size",
                                     "global-batch-size",
                                     "gpu",
                                     "network-gb-per-s",
                                     "auto-layout",
                                     "new-layout",
                                     "chosen-flags",
                                     "dry-run",
                                     "nproc-per-node",
                                     "nnodes",
                                     "node-rank",
                                     "master-addr",
                                     "master-port"};
  std::vector<std::string> words;
  for (const cli::Row& row : cli::bind_rows(flag_table(), config)) {
    if (!given.contains(row.name) || !row.show) continue;
    if (std::ranges::find(kOwn, row.name) != std::end(kOwn)) continue;
    const cli::Values values = row.show();
    if (row.arity == cli::Arity::none) {
      if (values.front() == "true") words.push_back(concat("--", row.name));
      continue;
    }
    if (values.empty()) continue;
    words.push_back(concat("--", row.name));
    words.insert(words.end(), values.begin(), values.end());
  }
  return words;
}

// What the trainer would ask for besides the words and a layout.
std::vector<std::string> lacking(TrainConfig config) {
  config.micro_batch_size = 1;
  config.dry_run = false;
  return missing_flags(config);
}

// The GPUs of a host by each of its flags; none if there is no such flag.
std::optional<int64_t> given_local(const PlanOptions& o) {
  const std::optional<int64_t> started = o.train.nproc_per_node;
  if (o.local_world_size && started && *o.local_world_size != *started)
    throw UsageError(concat("--local-world-size ", *o.local_world_size, ", but --nproc-per-node ",
                            *started, ": both are the GPUs of a host"));
  return started ? started : o.local_world_size;
}

// Where the command line says how many GPUs there are, a file's number is that of another run.
template <class Names>
void forget_files_cluster(PlanOptions& o, const Names& on_line) {
  const char* const kFlags[] = {"world-size", "local-world-size", "nproc-per-node", "nnodes"};
  std::optional<int64_t>* const values[] = {&o.world_size, &o.local_world_size,
                                            &o.train.nproc_per_node, &o.train.nnodes};
  const auto is_on_line = [&](const char* flag) { return on_line.contains(flag); };
  if (std::ranges::none_of(kFlags, is_on_line)) return;
  for (size_t i = 0; i < std::size(kFlags); ++i)
    if (!is_on_line(kFlags[i])) values[i]->reset();
}

// A command that starts ranks says how many: --nnodes times --nproc-per-node.
Cluster cluster_of(const PlanOptions& o) {
  const int here = visible_gpus(o.train);
  const std::optional<int64_t> nodes = o.train.nnodes;
  std::optional<int64_t> local = given_local(o), world = o.world_size;
  if (nodes) {
    if (!local && world && *world % *nodes != 0)
      throw UsageError(concat("--nnodes ", *nodes, " does not divide --world-size ", *world));
    if (!local && world) local = *world / *nodes;
    if (!local && here > 0) local = here;
    if (!local)
      throw UsageError(concat("--nnodes ", *nodes,
                              ", but not how many GPUs a host has: give "
                              "--nproc-per-node, or --world-size"));
    if (world && *world != *nodes * *local)
      throw UsageError(
          concat("--world-size ", *world, ", but --nnodes ", *nodes, " of ", *local, " GPUs each"));
    world = *nodes * *local;
  }
  if (!world) world = o.train.nproc_per_node.value_or(std::max(1, here));
  const int64_t of_host = local.value_or(std::min(*world, kUsualHost));
  if (*world > kMostGpus) throw UsageError(concat(*world, " GPUs: expected at most ", kMostGpus));
  if (*world % of_host != 0 && *world > of_host)
    throw UsageError(concat(o.train.nproc_per_node ? "--nproc-per-node " : "--local-world-size ",
                            of_host, local ? "" : ", the usual number,",
                            " does not divide --world-size ", *world));
  return {.world_size = *world, .local_size = std::min(of_host, *world)};
}

// The tokenizer's size; GPT-2's if its files are on another machine.
int64_t vocabulary_of(const TrainConfig& config, cli::Console& console) {
  if (!config.vocab_size) {
    const tokenizer::Flags named = tokenizer::counting({.type = config.tokenizer_type,
                                                        .model = config.tokenizer_model,
                                                        .vocab_file = config.vocab_file,
                                                        .merge_file = config.merge_file});
    for (const std::string& file : {named.vocab_file, named.merge_file, named.model}) {
      if (file.empty() || std::filesystem::exists(file)) continue;
      console.note(concat(file, ": not here; planned for a vocabulary of ",
                          cli::with_commas(kUsualVocabulary)));
      // Without the tokenizer, nobody knows by what Pai's rows divide.
      if (!config.patch_tokenizer_type.empty()) return kUsualPadded;
      return kUsualVocabulary + config.extra_vocab_size;
    }
  }
  const Vocabulary vocabulary = find_vocabulary(config);
  if (!vocabulary.note.empty()) console.note(vocabulary.note);
  return vocabulary.vocab_size;
}

// --tokens is --train-tokens; the command line's counts before a file's.
template <class Names>
void take_tokens(PlanOptions& o, Given& given, const Names& on_line) {
  if (!o.tokens) return;
  std::optional<int64_t>& tokens = o.train.train_tokens;
  const bool first = on_line.contains("tokens"), second = on_line.contains("train-tokens");
  if (first == second && tokens && *tokens != *o.tokens)
    throw UsageError(concat("--tokens ", *o.tokens, ", but --train-tokens ", *tokens,
                            ": both are the length of the run"));
  if (!second) tokens = o.tokens;
  given.insert("train-tokens");
}

// All that no plan can be made without, in one message.
void check_needed(const TrainConfig& config, bool as_given) {
  const bool tokenizer = !(config.vocab_file + config.merge_file + config.tokenizer_model).empty();
  const bool batch = config.max_global_batch_size || config.global_batch_size;
  const cli::Needed needed[] = {
      {config.num_layers.has_value(), "--num-layers"},
      {config.hidden_size.has_value(), "--hidden-size"},
      {config.num_attention_heads.has_value(), "--num-attention-heads"},
      {config.seq_length != 0, "--seq-length"},
      {config.vocab_size || tokenizer, "--vocab-file (or --tokenizer-model, or --vocab-size)"},
      {as_given || batch, "--max-global-batch-size (or --global-batch-size)"},
      {!as_given || config.micro_batch_size > 0, "--micro-batch-size"}};
  cli::require_all(needed);
}

// The model of the checkpoint in --load, as the trainer takes it. Any other need not be here.
void take_checkpoints_model(TrainConfig& config, Given& given, cli::Console& console) {
  if (!config.use_checkpoint_args) return;
  refuse_foreign(config);
  if (const std::string note = take_checkpoint_args(config, given); !note.empty())
    console.note(note);
}

// The trainer's default: one micro-batch for each data-parallel rank.
void default_batch(TrainConfig& config, const Cluster& cluster) {
  if (config.global_batch_size || config.max_global_batch_size) return;
  const int64_t model = config.tensor_model_parallel_size * config.pipeline_model_parallel_size;
  config.global_batch_size = config.micro_batch_size *
                             std::max<int64_t>(cluster.world_size / model, 1) *
                             config.gradient_accumulation_steps.value_or(1);
}

// The card of the plan. Where no precision is given, bf16 will be chosen, so FP8 is possible.
std::optional<CardChoice> card_for(const PlanOptions& o) {
  TrainConfig config = o.train;
  if (!o.as_given && !config.fp16) config.bf16 = true;
  return find_card(config);
}

int plan(PlanOptions& o, cli::Invocation& call) {
  if (!o.calibrate.empty()) {
    std::vector<std::string> inputs = input_files(o.train);
    inputs.insert(inputs.end(), call.config_files.begin(), call.config_files.end());
    cli::refuse_input_as_output("--calibrate", o.calibrate, inputs);
    return calibrate_here(o.train, o.calibrate, o.seconds, call.console);
  }
  TrainConfig& config = o.train;
  Given given = call.parsed.given;
  take_tokens(o, given, call.parsed.on_line);
  take_neox(config, given, call.console);
  forget_chosen(config, call.parsed.on_line);
  if (config.new_layout) reopen(config, given);
  if (!config.deepspeed_config.empty())
    apply_deepspeed(config, given, read_text_file(config.deepspeed_config),
                    config.deepspeed_config);
  take_checkpoints_model(config, given, call.console);
  std::vector<std::string> lacks = lacking(config);
  config.dry_run = true;
  const bool has_length = config.train_iters || config.train_samples || config.train_tokens;
  if (!has_length) config.train_iters = 1;
  if (!config.lr) config.lr = std::max(1e-4, config.min_lr);
  check_needed(config, o.as_given);
  if (config.device == "cpu" && config.gpu.empty())
    throw UsageError(
        "--device cpu: plans are for GPUs; trainer --auto-layout plans for processors");
  std::optional<CardChoice> card = card_for(o);
  if (!card) {
    config.gpu = "h100-80gb";
    card = card_for(o);
    card->note = concat("no GPU here and no --gpu: planned for ", config.gpu);
  }
  if (!card->note.empty()) call.console.note(card->note);
  if (o.device_memory_gb) set_device_memory(card->card, *o.device_memory_gb);
  forget_files_cluster(o, call.parsed.on_line);
  const Cluster cluster = cluster_of(o);
  if (config.max_restarts > 0 && cluster.world_size > cluster.local_size) {
    if (config.save.empty()) lacks.push_back("--save");
    if (config.load.empty()) lacks.push_back("--load");
  }
  if (o.as_given) default_batch(config, cluster);
  SearchTask task =
      search_task(config, given, cluster, card->card, vocabulary_of(config, call.console));
  task.top = o.top;
  task.as_given = o.as_given;
  const SearchResult result = search_layouts(task);
  const ReportContext context{.task = task,
                              .words = trainer_words(config, given),
                              .has_length = has_length,
                              .lacks = lacks};
  const std::string report = o.json ? json_report(result, context) : text_report(result, context);
  cli::print(report);
  cli::finish_stdout();
  return result.best.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A search makes and drops large lists all the time: freed memory is kept, as long as it is less
  // than 1 GiB, since giving it back takes more time than filling it.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  static const cli::Table<PlanOptions> table = flags();
  return cli::run(kProgram, table, argc, argv, plan);
}
