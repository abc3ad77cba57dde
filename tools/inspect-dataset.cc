// SPDX-License-Identifier: MIT
// inspect-dataset: shows what a dataset contains, checks it, and finds where its documents came
// from; and makes the one repair that can be proved. Text on stdout. Not here: checks and summaries
// (tools/dataset/describe, repair), decoding (libtok).
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include "libindexed/dataset.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libindexed/training_data.h"
#include "libtok/tokenizer.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "tools/dataset/describe.h"
#include "tools/dataset/find.h"
#include "tools/dataset/load_tokenizer.h"
#include "tools/dataset/repair.h"
#include "tools/dataset/sample_flags.h"

namespace {

struct Options {
  dataset::SampleFlags samples;
  bool multimodal = false;
  bool repair = false;
  std::optional<int64_t> document;
  std::optional<int64_t> sample;
  std::string sample_split = "train";
  int64_t count = 1;
  int64_t max_tokens = 512;
  bool ids = false;
  std::optional<int64_t> eod_token;
  std::string tiktoken_encoding = {};
};

cli::Table<Options> flags() {
  using O = Options;
  return {
      {"What to inspect",
       {{.name = "document",
         .value = "K",
         .help = "peek, where: document K, from 0. Without it peek begins at 0.",
         .field = cli::integer(&O::document)},
        {.name = "sample",
         .value = "I",
         .help = "peek, where: sample I of a training run, with that run's flags.",
         .field = cli::integer(&O::sample)},
        {.name = "sample-split",
         .value = "SPLIT",
         .help = "With --sample: its split.",
         .field = cli::choice(&O::sample_split, {"train", "valid", "test"})},
        {.name = "count",
         .value = "N",
         .help = "peek: how many documents or samples.",
         .field = cli::integer(&O::count, 1)},
        {.name = "max-tokens",
         .value = "N",
         .help = "peek: show at most N tokens of each; 0 for all.",
         .field = cli::integer(&O::max_tokens)},
        {.name = "ids",
         .help = "peek: show token ids, even with a tokenizer.",
         .field = cli::on(&O::ids)},
        {.name = "multimodal",
         .help = "The dataset has a mode byte for each sequence.",
         .field = cli::on(&O::multimodal)},
        {.name = "eod-token",
         .value = "ID",
         .help = "verify: every document must end with this token. Without it the manifest's. "
                 "--repair: the token that is not counted; a single document needs it.",
         .field = cli::integer(&O::eod_token)},
        {.name = "tiktoken-encoding",
         .value = "NAME",
         .help = "What a .tiktoken model is: gpt2, r50k_base, p50k_base, cl100k_base, o200k_base; "
                 "else its name says so.",
         .field = cli::text(&O::tiktoken_encoding)},
        {.name = "repair",
         .help = "quick, verify: if the end-of-document tokens are not counted, as in the output "
                 "of preprocess_data.py of mid-2023, write a new .idx.",
         .field = cli::on(&O::repair)}}},
      cli::lift(dataset::sample_group(), &O::samples),
      cli::lift(dataset::opened_tokenizer_group(
                    "Tokenizer, to show documents as text; with --sample, as the training run "
                    "names it (megatron-core makes it part of the cache's name)"),
                &O::samples)};
}

int64_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

using cli::print;

// The text or the ids of some tokens, with a line end.
std::string show(const Options& options, const tok::Tokenizer* tokenizer,
                 std::vector<int64_t> ids) {
  const auto all = static_cast<int64_t>(ids.size());
  const int64_t shown = options.max_tokens > 0 ? std::min(all, options.max_tokens) : all;
  ids.resize(static_cast<size_t>(shown));
  std::string text = dataset::shown_text(tokenizer, ids) + "\n";
  if (shown < all) text += cli::concat("... ", cli::counted(all - shown, "more token"), "\n");
  return text;
}

void append_ids(const indexed::TokenView& view, std::vector<int64_t>& ids) {
  for (int64_t i = 0; i < view.size(); ++i) ids.push_back(view[i]);
}

indexed::IndexedDataset open(const Options& options, const std::string& prefix) {
  return indexed::IndexedDataset::open(
      prefix, {.multimodal = options.multimodal, .permuted = options.samples.permuted});
}

// The data that the training flags describe, with PREFIX as --data-path if none is given, to look
// up the run's samples.
struct Run {
  indexed::TrainingData data;
  const indexed::SplitData* split;
};

Run open_run(Options& options, const std::vector<std::string>& prefixes) {
  const bool named = !options.samples.train_data_path.empty() ||
                     !options.samples.data_args_path.empty() ||
                     !options.samples.per_split_data_args_path.empty();
  if (options.samples.data_path.empty() && !named) options.samples.data_path = prefixes;
  indexed::TrainingDataOptions work = dataset::training_data_options(options.samples);
  work.skip_empty_evaluation = true;  // as in the trainer.
  Run run{indexed::TrainingData::build(work), nullptr};
  for (int64_t i = 0; i < 3; ++i) {
    if (indexed::kSplitNames[static_cast<size_t>(i)] == options.sample_split)
      run.split = run.data.split(i);
  }
  if (run.split == nullptr)
    throw indexed::FormatError(cli::concat("the run has no ", options.sample_split, " split"));
  if (*options.sample >= run.split->num_samples()) {
    throw indexed::FormatError(cli::concat("sample ", *options.sample, ", but the ",
                                           options.sample_split, " split has ",
                                           cli::counted(run.split->num_samples(), "sample")));
  }
  return run;
}

std::vector<int64_t> ids_of_sample(const Run& run, int64_t i) {
  const indexed::SplitData::Place place = run.split->place(i);
  const indexed::IndexedDataset& data = run.data.datasets()[place.member->dataset];
  std::vector<indexed::SamplePiece> pieces;
  place.member->index.pieces(place.sample, data, pieces);
  std::vector<int64_t> ids;
  for (const indexed::SamplePiece& piece : pieces)
    append_ids(data.sequence(piece.sequence, piece.offset, piece.num_tokens), ids);
  return ids;
}

void check_document(const indexed::IndexedDataset& data, int64_t k) {
  if (k >= data.num_documents()) {
    throw indexed::FormatError(cli::concat(data.prefix(), ".idx: document ", k, ", but there are ",
                                           cli::with_commas(data.num_documents())));
  }
}

void quick(const Options& options, const std::string& prefix, cli::Console&) {
  const dataset::Sizes sizes = dataset::quick_check(prefix, options.multimodal);
  print(cli::concat(cli::one_line(prefix), ": ", sizes.dtype, ", ",
                    cli::counted(sizes.num_documents, "document"), ", ",
                    cli::counted(sizes.num_sequences, "sequence"), ", ",
                    cli::counted(sizes.num_tokens, "token"), "\n"));
}

void verify(const Options& options, const std::string& prefix, cli::Console& console) {
  const std::string checked =
      dataset::verify(prefix, {.multimodal = options.multimodal,
                               .permuted = options.samples.permuted,
                               .vocab_size = options.samples.vocab_size.value_or(0),
                               .eod_token = options.eod_token,
                               .on_progress = [&](int64_t done, int64_t total) {
                                 console.progress({.done = done, .total = total});
                               }});
  console.clear_progress();
  print(cli::concat(cli::one_line(prefix), ": good: ", checked, "\n"));
}

void stats(const Options& options, const std::string& prefix) {
  const indexed::IndexedDataset data = open(options, prefix);
  print(cli::concat(cli::one_line(prefix), "\n", dataset::statistics(data, terminal_columns()),
                    "\n", dataset::provenance_lines(indexed::read_manifest(prefix))));
}

void peek(Options& options, const std::string& prefix, cli::Console& console) {
  tokenizer::Opened opened;
  if (!options.ids) opened = dataset::load_tokenizer(options.samples, options.tiktoken_encoding);
  if (!options.sample)
    for (const std::string& note : opened.notes) console.note(note);
  const tok::Tokenizer* tokenizer = opened.tokenizer ? &*opened.tokenizer : nullptr;
  const auto compare = [&](const indexed::IndexedDataset& data) {
    const std::string note = dataset::other_tokenizer_note(opened, data);
    if (!note.empty()) console.note(note);
  };
  if (options.sample) {
    const Run run = open_run(options, {prefix});
    for (const indexed::IndexedDataset& data : run.data.datasets()) compare(data);
    const int64_t end = std::min(*options.sample + options.count, run.split->num_samples());
    for (int64_t i = *options.sample; i < end; ++i) {
      const std::vector<int64_t> ids = ids_of_sample(run, i);
      print(cli::concat("sample ", i, ": ", cli::counted(static_cast<int64_t>(ids.size()), "token"),
                        "\n", show(options, tokenizer, ids)));
    }
    return;
  }
  const indexed::IndexedDataset data = open(options, prefix);
  indexed::refuse_floats(data);
  compare(data);
  const int64_t first = options.document.value_or(0);
  check_document(data, first);
  for (int64_t k = first; k < std::min(first + options.count, data.num_documents()); ++k) {
    std::vector<int64_t> ids;
    for (int64_t i = data.document_indices()[static_cast<size_t>(k)];
         i < data.document_indices()[static_cast<size_t>(k) + 1]; ++i)
      append_ids(data.sequence(i), ids);
    print(cli::concat("document ", k, ": ", cli::counted(static_cast<int64_t>(ids.size()), "token"),
                      "\n", show(options, tokenizer, ids)));
  }
}

void where(Options& options, const std::string& prefix) {
  if (options.sample) {
    const Run run = open_run(options, {prefix});
    const indexed::SplitData::Place place = run.split->place(*options.sample);
    const indexed::IndexedDataset& data = run.data.datasets()[place.member->dataset];
    dataset::SourceFinder finder(data);
    std::vector<indexed::SamplePiece> pieces;
    place.member->index.pieces(place.sample, data, pieces);
    int64_t at = 0;
    for (const indexed::SamplePiece& piece : pieces) {
      const int64_t k = dataset::document_of(data, piece.sequence);
      print(cli::concat("tokens ", at, " to ", at + piece.num_tokens - 1, ": ",
                        cli::one_line(data.prefix()), " document ", k, " from token ", piece.offset,
                        ": ", finder.where(k), "\n"));
      at += piece.num_tokens;
    }
    return;
  }
  if (!options.document) throw cli::UsageError("where: --document or --sample is missing");
  const indexed::IndexedDataset data = open(options, prefix);
  check_document(data, *options.document);
  print(cli::concat(dataset::SourceFinder(data).where(*options.document), "\n"));
}

// True if the dataset has the damage of 2023; then it is repaired or reported.
bool look_for_uncounted_eod(const Options& options, const std::string& prefix,
                            cli::Console& console) {
  const std::optional<dataset::UncountedEod> found =
      dataset::find_uncounted_eod(prefix, options.eod_token);
  if (!found) return false;
  const std::string what =
      cli::concat(prefix, ": the end-of-document token ", found->eod_token, " of ",
                  cli::counted(found->non_empty, "document"), " is not counted in the .idx");
  if (!options.repair)
    throw indexed::FormatError(what + ": preprocess_data.py of mid-2023; --repair corrects it");
  dataset::mend_uncounted_eod(prefix, *found);
  console.note(what + ": mended");
  return true;
}

// If a check fails, tests whether the damage is the known one, and checks again once it is
// repaired.
void check(void (*run)(const Options&, const std::string&, cli::Console&), const Options& options,
           const std::string& prefix, cli::Console& console) {
  try {
    run(options, prefix, console);
  } catch (const indexed::FormatError&) {
    if (!look_for_uncounted_eod(options, prefix, console)) throw;
    run(options, prefix, console);
  }
}

constexpr std::string_view kCommands[] = {"quick", "verify", "stats", "peek", "where"};

// A first word that is near a command, and no dataset, is a typing error.
void refuse_unknown_command(const std::string& word) {
  const std::string near = cli::nearest_word(kCommands, word);
  if (near.empty() || std::filesystem::exists(word) || std::filesystem::exists(word + ".idx") ||
      std::filesystem::exists(word + ".bin"))
    return;
  throw cli::UsageError(cli::concat("unknown command ", word, ": did you mean ", near));
}

int inspect(Options& options, cli::Invocation& call) {
  std::vector<std::string> words = call.parsed.operands;
  std::string command = "quick";
  if (!words.empty() && std::ranges::find(kCommands, words[0]) != std::end(kCommands)) {
    command = words[0];
    words.erase(words.begin());
  } else if (words.size() > 1) {
    refuse_unknown_command(words[0]);
  }
  if (words.empty() && !options.samples.data_path.empty())
    words.push_back(options.samples.data_path.back());
  if (words.empty())
    throw cli::UsageError("no dataset is named: [quick|verify|stats|peek|where] PREFIX...");
  const bool checks = command == "quick" || command == "verify";
  if (options.repair && !checks) throw cli::UsageError("--repair goes with quick or verify");
  int status = 0;
  dataset::NamedDatasets named;
  for (const std::string& word : words) {
    const std::optional<std::string> next = named.take(word);
    if (!next) continue;
    const std::string& prefix = *next;
    try {
      if (checks) check(command == "quick" ? quick : verify, options, prefix, call.console);
      if (command == "stats") stats(options, prefix);
      if (command == "peek") peek(options, prefix, call.console);
      if (command == "where") where(options, prefix);
    } catch (const cli::UsageError&) {
      throw;
    } catch (const cli::StdoutError&) {
      throw;
    } catch (const std::exception& error) {  // the others are inspected all the same
      std::fflush(stdout);
      call.console.error(cli::describe(error));
      status = 1;
    }
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "inspect-dataset",
                                .summary = "show what a token dataset contains, and check it",
                                .operands = "[quick|verify|stats|peek|where] PREFIX...",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, inspect);
}
