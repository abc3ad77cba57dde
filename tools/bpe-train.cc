// SPDX-License-Identifier: MIT
// bpe-train: learns a byte-level BPE vocabulary from JSON lines, texts or NUL-ended documents, and
// writes vocab.json, merges.txt and tokenizer.json: the merges of Hugging Face's BpeTrainer with
// the same settings, for any number of workers. Here: flags, counting pieces within a memory limit,
// output. Reading is tools/stream, counts on disk are tools/train, learning is libtok/train.h.
#include <filesystem>
#include <system_error>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libtok/boundaries.h"
#include "libtok/train.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/extract/quarantine.h"
#include "tools/stream/pipeline.h"
#include "tools/stream/reading.h"
#include "tools/train/piece_runs.h"

namespace {

constexpr int64_t kDefaultMemory = int64_t{2} << 30;
constexpr int64_t kLeastMemory = int64_t{32} << 20;
constexpr const char* kFiles[] = {"vocab.json", "merges.txt", "tokenizer.json"};  // of --output

struct Options {
  stream::ReadingOptions reading;
  stream::PolicyOptions policy;
  std::string output;
  bool force = false;
  int64_t vocab_size = 30000;
  int64_t min_frequency = 2;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::string alphabet = "all";
  bool add_prefix_space = false;
  int64_t memory = kDefaultMemory;
  int64_t workers = 0;
};

cli::Group<Options> learning_group() {
  using O = Options;
  return {"Learning",
          {{.name = "vocab-size",
            .value = "N",
            .help = "Total number of tokens: special tokens, bytes, and learned ones.",
            .field = cli::integer(&O::vocab_size, 1, 1 << 27)},
           {.name = "min-frequency",
            .value = "N",
            .help = "Pairs that occur less often are not merged.",
            .field = cli::integer(&O::min_frequency)},
           {.name = "special-tokens",
            .value = "TEXT",
            .help = "Tokens that get the first ids; an empty text means none.",
            .field = cli::list(&O::special_tokens)},
           {.name = "alphabet",
            .value = "WHAT",
            .help = "Make all 256 bytes tokens, so that every text can be encoded, or only those "
                    "seen.",
            .field = cli::choice(&O::alphabet, {"all", "seen"})},
           {.name = "add-prefix-space",
            .help = "Put a space before a document that does not begin with one.",
            .field = cli::on(&O::add_prefix_space)}}};
}

cli::Group<Options> output_group() {
  using O = Options;
  return {"Output",
          {{.name = "output",
            .letter = 'o',
            .value = "DIR",
            .help = "Write vocab.json, merges.txt and tokenizer.json into DIR, which is created if "
                    "necessary.",
            .field = cli::text(&O::output),
            .required = true},
           {.name = "force",
            .letter = 'f',
            .help = "Replace existing files.",
            .field = cli::on(&O::force)},
           {.name = "mem",
            .value = "SIZE",
            .help = "Memory for counts and for learning. Counts beyond it go to disk beside the "
                    "output and stay exact; if there are too many distinct pieces to learn from, "
                    "the rarest are left out, and the closing line says so.",
            .field = cli::size(&O::memory, kLeastMemory)},
           {.name = "workers",
            .letter = 'w',
            .value = "N",
            .help = "Threads; 0 means one for each processor. The output does not depend on them.",
            .field = cli::integer(&O::workers, 0, 4096)}}};
}

const cli::Table<Options>& flags() {
  static const cli::Table<Options> table = {cli::lift(stream::reading_group(), &Options::reading),
                                            learning_group(), output_group(),
                                            cli::lift(stream::policy_group(), &Options::policy)};
  return table;
}

/// One worker: cuts documents and counts their pieces, up to its share of the memory.
class Counter {
 public:
  Counter(const Options& options, int64_t memory) : options_(options), memory_(memory) {}

  void take(const stream::Document& document, train::PieceRuns& runs) {
    for (const std::vector<std::string_view>& texts : document.texts) {
      for (std::string_view text : texts) count(text);
    }
    // A full table doubles its size, so it is passed on before that could exceed the limit.
    if (static_cast<int64_t>(counts.memory_bytes()) * 2 > memory_) {
      runs.add(counts);
      counts.clear();
    }
  }

  tok::PieceCounts counts;
  int64_t bytes = 0;

 private:
  void count(std::string_view text) {
    bytes += static_cast<int64_t>(text.size());
    if (text.empty()) return;
    if (options_.add_prefix_space && !text.starts_with(' ')) {
      text = prefixed_.assign(1, ' ').append(text);
    }
    tok::BoundaryScan scan(tok::make_pretokenizer(tok::Family::gpt2), text);
    uint32_t ends[kPiecesAtOnce];
    size_t begin = 0;
    while (const size_t found = scan.next(ends, kPiecesAtOnce)) {
      counts.add_neighbours(text, begin, {ends, found});
      begin = ends[found - 1];
    }
  }

  static constexpr size_t kPiecesAtOnce = 1024;

  const Options& options_;
  int64_t memory_;
  std::string prefixed_;
};

/// All counts of a run, and what the memory limit leaves out.
struct Counted {
  tok::PieceCounts pieces;
  int64_t distinct = 0;
  int64_t total = 0;
  train::Limit limit;
};

/// Sums the workers' counts, including those on disk.
Counted sum_counts(std::vector<Counter>& workers, train::PieceRuns& runs, int64_t memory) {
  Counted counted;
  train::LimitFinder finder;
  const auto look = [&](std::string_view piece, int64_t count) {
    ++counted.distinct;
    counted.total += count;
    finder.add(piece, count);
  };
  const auto keep = [&](std::string_view piece, int64_t count) {
    if (count >= counted.limit.least_count) counted.pieces.add(piece, count);
  };
  if (!runs.empty()) {
    for (Counter& worker : workers) {
      runs.add(worker.counts);
      worker.counts.clear();
    }
    runs.sum(memory / 4, look);
    counted.limit = finder.find(memory);
    runs.sum(memory / 4, keep);
    return counted;
  }
  tok::PieceCounts all;
  for (Counter& worker : workers) {
    if (all.size() == 0) {
      std::swap(all, worker.counts);
    } else {
      all.add_all(worker.counts);
      worker.counts.clear();
    }
  }
  for (const auto& [piece, count] : all.sorted()) look(piece, count);
  counted.limit = finder.find(memory);
  if (counted.limit.least_count == 1) {
    counted.pieces = std::move(all);
  } else {
    for (const auto& [piece, count] : all.sorted()) keep(piece, count);
  }
  return counted;
}

/// Writes the vocabulary; its files and the quarantine, if any, get their names together.
void write_files(const Options& options, const tok::TrainedBpe& bpe, indexed::Existing existing,
                 extract::Quarantine& quarantine, cli::Console& console) {
  indexed::OutputFile vocab(options.output + "/vocab.json", existing);
  indexed::OutputFile merges(options.output + "/merges.txt", existing);
  indexed::OutputFile tokenizer(options.output + "/tokenizer.json", existing);
  vocab.write(tok::vocab_json(bpe));
  merges.write(tok::merges_txt(bpe));
  tokenizer.write(tok::tokenizer_json(bpe, options.add_prefix_space));
  std::vector<indexed::OutputFile*> files = {&vocab, &merges, &tokenizer};
  if (indexed::OutputFile* const kept = quarantine.file()) files.insert(files.begin(), kept);
  const indexed::NamingSection section;
  indexed::commit_set(files);
  quarantine.remove_earlier(console);
}

/// Why there are fewer tokens than asked for; empty if there are not.
std::string shortfall(const Options& options, const tok::TrainedBpe& bpe) {
  if (static_cast<int64_t>(bpe.tokens.size()) >= options.vocab_size) return {};
  const int64_t least = options.min_frequency;
  return cli::concat(
      "; --vocab-size ", cli::with_commas(options.vocab_size),
      " is not reached: no pair of tokens is left",
      least > 1 ? cli::concat(" that occurs ", cli::with_commas(least), " times (--min-frequency)")
                : "");
}

std::string closing_line(const Options& options, const Counted& counted, const tok::TrainedBpe& bpe,
                         int64_t documents, int64_t bytes) {
  std::string line = cli::concat(
      cli::counted(documents, "document"), ", ", cli::with_commas(bytes), " bytes of text, ",
      cli::counted(counted.distinct, "distinct piece"), ": ",
      cli::counted(static_cast<int64_t>(bpe.tokens.size()), "token"), ", ",
      cli::counted(static_cast<int64_t>(bpe.merges.size()), "merge"), shortfall(options, bpe));
  if (counted.limit.least_count > 1) {
    line +=
        cli::concat("; --mem left out ", cli::with_commas(counted.limit.pieces),
                    " pieces that occur less than ", cli::with_commas(counted.limit.least_count),
                    " times (", cli::with_commas(counted.limit.occurrences), " of ",
                    cli::with_commas(counted.total), " occurrences)");
  }
  return line;
}

/// Reports before any work that an output exists already, or that the folder cannot be created.
/// Files of a run that was killed while renaming may exist, if this run makes the same ones.
indexed::Existing prepare_output(const Options& options) {
  std::filesystem::create_directories(options.output);
  if (options.force) return indexed::Existing::replace;
  if (indexed::left_unfinished(options.output + "/tokenizer.json") &&
      !std::filesystem::exists(options.output + "/tokenizer.json")) {
    return indexed::Existing::same;
  }
  for (const char* name : kFiles) {
    const std::string path = options.output + "/" + name;
    if (std::filesystem::exists(path)) {
      throw std::system_error(EEXIST, std::generic_category(),
                              path + ": not replaced without --force");
    }
  }
  return indexed::Existing::refuse;
}

int train_vocabulary(Options& options, cli::Invocation& call) {
  const bool named = !options.policy.quarantine.empty();
  if (options.policy.on_error == "quarantine" && !named) {
    options.policy.quarantine = options.output + "/quarantine";
  }
  std::erase(options.special_tokens, "");
  std::vector<std::string> inputs = stream::inputs_of(options.reading, call.parsed);
  for (const char* name : kFiles)
    cli::refuse_input_as_output("--output", cli::concat(options.output, "/", name), inputs);
  cli::refuse_input_as_output("--quarantine", options.policy.quarantine, inputs);
  const indexed::Existing existing = prepare_output(options);
  const bool keeps = options.policy.on_error == "quarantine";
  extract::Quarantine quarantine({.path = keeps ? options.policy.quarantine : "",
                                  .named = named,
                                  .existing = existing,
                                  .format = options.reading.format});
  stream::ErrorPolicy policy(options.policy, call.console, [&](std::string_view piece, bool ends) {
    quarantine.keep(piece, ends);
  });
  const int64_t threads = stream::threads_for(options.workers);
  std::vector<Counter> workers(static_cast<size_t>(threads),
                               Counter(options, options.memory / 2 / threads));
  train::PieceRuns runs(options.output + "/vocab.json");
  stream::read_documents<char>(
      {options.reading, std::move(inputs), threads, policy, call.console},
      {.begin = [](char&, int64_t) {},
       .each = [&](char&, const stream::Document& document,
                   int64_t thread) { workers[static_cast<size_t>(thread)].take(document, runs); },
       .sink = [](const stream::Work<char>&, const std::string&) {}});
  int64_t bytes = 0;
  for (const Counter& worker : workers) bytes += worker.bytes;
  if (!runs.empty())
    call.console.log(cli::concat(cli::with_commas(runs.bytes()), " bytes of counts went to disk"));
  const Counted counted = sum_counts(workers, runs, options.memory);
  call.console.log(cli::concat(cli::counted(counted.distinct, "distinct piece"), ", ",
                               cli::with_commas(counted.total), " in all"));
  const tok::TrainedBpe bpe =
      tok::train_bpe(counted.pieces.sorted(),
                     {.vocab_size = options.vocab_size,
                      .min_frequency = options.min_frequency,
                      .special_tokens = options.special_tokens,
                      .full_alphabet = options.alphabet == "all",
                      .on_progress = [&](int64_t tokens) {
                        call.console.progress({tokens, options.vocab_size, tokens, "token", true});
                      }});
  call.console.clear_progress();
  write_files(options, bpe, existing, quarantine, call.console);
  call.console.note(closing_line(options, counted, bpe, policy.documents(), bytes));
  if (options.add_prefix_space) {
    call.console.note(
        "--add-prefix-space: vocab.json and merges.txt cannot say it, use tokenizer.json, or "
        "texts get other tokens than those that were counted");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "bpe-train",
                                .summary =
                                    "learn a byte-level BPE vocabulary from JSON lines or text, as "
                                    "Hugging Face's trainer does",
                                .operands = "[FILE...]",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, train_vocabulary);
}
