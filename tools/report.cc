// SPDX-License-Identifier: MIT
// report: runs and datasets as one HTML page, or a run's loss as a curve in the terminal. Not here:
// reading them and the page (tools/report), the pictures (tools/draw).
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "libindexed/manifest.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/output_path.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/dataset/find.h"
#include "tools/dataset/load_tokenizer.h"
#include "tools/dataset/sample_flags.h"
#include "tools/draw/curve.h"
#include "tools/extract/text_output.h"
#include "tools/report/page.h"

namespace {

struct Options {
  std::string output = "-";
  bool force = false;
  std::string title;
  bool plot = false;
  bool ascii = false;
  bool skip_repeated = false;
  int64_t samples = 5;
  int64_t max_tokens = 200;
  std::string tiktoken_encoding = {};
  dataset::SampleFlags tokenizer;
};

/// The flags that say how tokens become text; the others only name files of megatron-core's cache.
cli::Group<dataset::SampleFlags> tokenizer_group() {
  cli::Group<dataset::SampleFlags> group =
      dataset::opened_tokenizer_group("Tokenizer, to show documents as text");
  constexpr std::string_view kUsed[] = {"tokenizer-type", "tokenizer-model",
                                        "vocab-file",     "merge-file",
                                        "vocab-size",     "tiktoken-num-special-tokens"};
  std::erase_if(group.flags, [&](const cli::Flag<dataset::SampleFlags>& flag) {
    return std::ranges::find(kUsed, flag.name) == std::end(kUsed);
  });
  return group;
}

cli::Table<Options> flags() {
  using O = Options;
  return {
      {"The page",
       {{.name = "output",
         .letter = 'o',
         .value = "FILE",
         .help = "Where the page goes; - for standard output.",
         .field = cli::text(&O::output)},
        {.name = "force",
         .letter = 'f',
         .help = "Replace an existing page.",
         .field = cli::on(&O::force)},
        {.name = "title",
         .value = "TEXT",
         .help = "The page's title. Default: the names of what it shows.",
         .field = cli::text(&O::title)}}},
      {"Datasets",
       {{.name = "samples",
         .value = "N",
         .help = "How many documents to show, spread evenly.",
         .field = cli::integer(&O::samples, 0, 1000)},
        {.name = "max-tokens",
         .value = "N",
         .help = "Show at most N tokens of each.",
         .field = cli::integer(&O::max_tokens, 1, 1000000)},
        {.name = "skip-repeated",
         .help = "Do not count documents that are equal to an earlier one: the .bin is not read "
                 "then.",
         .field = cli::on(&O::skip_repeated)},
        {.name = "tiktoken-encoding",
         .value = "NAME",
         .help = "What a .tiktoken model is: gpt2, r50k_base, p50k_base, cl100k_base, "
                 "o200k_base; else its name says so.",
         .field = cli::text(&O::tiktoken_encoding)}}},
      {"Instead of a page",
       {{.name = "plot",
         .help = "Draw each run's loss in the terminal.",
         .field = cli::on(&O::plot)},
        {.name = "ascii",
         .help = "With --plot: draw with ASCII characters.",
         .field = cli::on(&O::ascii)}}},
      cli::lift(tokenizer_group(), &O::tokenizer)};
}

struct Inputs {
  std::vector<report::Run> runs;
  std::vector<std::string> datasets;
};

Inputs look_at(const std::vector<std::string>& operands) {
  if (operands.empty()) throw cli::UsageError("no run and no dataset is given");
  Inputs inputs;
  dataset::NamedDatasets named;
  for (const std::string& operand : operands) {
    const std::string prefix = dataset::prefix_of(operand);
    std::error_code none;
    if (std::filesystem::exists(prefix + ".idx", none)) {
      if (const std::optional<std::string> next = named.take(operand))
        inputs.datasets.push_back(*next);
    } else if (report::is_run(operand)) {
      inputs.runs.push_back(report::read_run(operand));
    } else {
      throw std::runtime_error(cli::concat(
          operand, ": neither a run (a folder with metrics.jsonl, or such a file) nor a dataset (",
          prefix, ".idx does not exist)"));
    }
  }
  report::name_runs(inputs.runs);
  return inputs;
}

void plot(const Inputs& inputs, bool ascii) {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const draw::CurveOptions options{.columns = known ? size.ws_col : 80, .rows = 14, .ascii = ascii};
  for (const report::Run& run : inputs.runs)
    cli::print(
        draw::terminal_curve(cli::one_line(run.name) + " loss", run.points("lm_loss"), options));
}

std::string title_of(const Options& options, const Inputs& inputs) {
  if (!options.title.empty()) return options.title;
  std::vector<std::string> names;
  for (const report::Run& run : inputs.runs) names.push_back(run.name);
  for (const std::string& prefix : inputs.datasets)
    names.push_back(std::filesystem::path(prefix).filename().string());
  return cli::join(names, ", ");
}

// Every file that is read: of a folder with a tokenizer, those that may be.
std::vector<std::string> files_of(const Options& options, const Inputs& inputs) {
  const dataset::SampleFlags& tokenizer = options.tokenizer;
  std::vector<std::string> files = cli::tokenizer_inputs(tokenizer.tokenizer_model);
  files.insert(files.end(), {tokenizer.vocab_file, tokenizer.merge_file});
  for (const report::Run& run : inputs.runs) files.insert(files.end(), {run.path, run.config_path});
  for (const std::string& prefix : inputs.datasets)
    files.insert(files.end(), {prefix + ".idx", prefix + ".bin", indexed::manifest_path(prefix)});
  return files;
}

int make_report(Options& options, cli::Invocation& call) {
  if (options.ascii && !options.plot) throw cli::UsageError("--ascii needs --plot");
  const Inputs inputs = look_at(call.parsed.operands);
  for (const report::Run& run : inputs.runs)
    if (!run.passed_over.empty()) call.console.error(run.passed_over);
  if (options.plot) {
    if (inputs.runs.empty()) throw cli::UsageError("--plot needs a run");
    plot(inputs, options.ascii);
    return 0;
  }
  options.output = cli::output_path(options.output);
  if (options.output == "-" && ::isatty(STDOUT_FILENO) == 1)
    throw cli::UsageError("the page would go to the terminal: give -o FILE");
  cli::refuse_input_as_output("--output", options.output, files_of(options, inputs));
  extract::TextOutput out(
      {.path = options.output,
       .existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse});
  const tokenizer::Opened opened =
      dataset::load_tokenizer(options.tokenizer, options.tiktoken_encoding);
  for (const std::string& note : opened.notes) call.console.note(note);
  std::vector<report::DatasetFacts> facts;
  for (const std::string& prefix : inputs.datasets) {
    facts.push_back(report::read_facts(
        prefix, {.count_repeated = !options.skip_repeated,
                 .samples = options.samples,
                 .sample_tokens = options.max_tokens,
                 .tokenizer = opened.tokenizer ? &*opened.tokenizer : nullptr,
                 .on_progress = [&](int64_t done, int64_t all) {
                   call.console.progress(
                       {.done = done, .total = all, .items = done, .in_items = true});
                 }}));
    const std::string note =
        dataset::other_tokenizer_note(opened, indexed::IndexedDataset::open(prefix));
    if (!note.empty()) call.console.note(note);
  }
  out.write(report::page(title_of(options, inputs), inputs.runs, facts));
  out.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "report",
                                .summary = "shows runs and datasets as one HTML page",
                                .operands = "RUN|DATASET...",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, make_report);
}
