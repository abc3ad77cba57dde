// SPDX-License-Identifier: MIT
// shuffle-index: builds the order in which a training run reads its samples, before the run starts.
// Writes the index files that Megatron would write, under the names for which it will look; with
// --rewrite, a dataset with its documents in shuffled order. Not here: the arrays and names
// (libindexed/training_data), the rewriting (tools/dataset/rewrite).
#include <cstdio>
#include <utility>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libindexed/training_data.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/dataset/find.h"
#include "tools/dataset/rewrite.h"
#include "tools/dataset/sample_flags.h"

namespace {

struct Options {
  dataset::SampleFlags samples;
  std::string data_cache_path;
  std::string rewrite;
  std::string level = "document";
  int64_t memory_bytes = int64_t{1} << 30;
  bool print_descriptions = false;
  bool force = false;
};

cli::Table<Options> flags() {
  using O = Options;
  return {
      cli::lift(dataset::sample_group(), &O::samples),
      {"Output",
       {{.name = "data-cache-path",
         .value = "DIR",
         .help = "Write the index files into DIR, the --data-cache-path of the run. Without it "
                 "they go beside each dataset, and blends are not stored.",
         .field = cli::text(&O::data_cache_path)},
        {.name = "print-descriptions",
         .help = "Print the texts whose MD5 is in the files' names, instead of the files' paths.",
         .field = cli::on(&O::print_descriptions)},
        {.name = "rewrite",
         .value = "PREFIX",
         .help =
             "Write the dataset PREFIX instead of index files: the documents of --data-path in the "
             "order of numpy's RandomState(seed).shuffle.",
         .field = cli::text(&O::rewrite)},
        {.name = "level",
         .value = "UNIT",
         .help = "With --rewrite: shuffle documents, each with its sequences, or single sequences.",
         .field = cli::choice(&O::level, {"document", "sequence"})},
        {.name = "mem",
         .value = "BYTES",
         .help =
             "With --rewrite: memory for tokens in flight. The bytes written do not depend on it.",
         .field = cli::size(&O::memory_bytes, 1 << 16)},
        {.name = "force",
         .help = "With --rewrite: replace an existing output.",
         .field = cli::on(&O::force)}}},
      cli::lift(dataset::tokenizer_group(), &O::samples)};
}

int rewrite(const Options& options, cli::Invocation& call) {
  const std::vector<std::string>& words = options.samples.data_path;
  if (words.empty()) throw cli::UsageError("--data-path PREFIX is missing");
  dataset::refuse_nameless("--rewrite", options.rewrite);
  dataset::RewriteOptions work{
      .output_prefix = options.rewrite,
      .sequences = options.level == "sequence",
      .seed = options.samples.seed,
      .memory_bytes = options.memory_bytes,
      .permuted = options.samples.permuted,
      .existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse,
      .tool = cli::concat("shuffle-index ", cli::version()),
      .command_line = call.command_line};
  try {
    const indexed::Blend blend = indexed::parse_blend(words);
    indexed::refuse_stray_weights(blend);
    if (!blend.weights.empty())
      throw cli::UsageError("--rewrite takes every document once: weights have no meaning");
    dataset::NamedDatasets named;
    for (const std::string& word : blend.prefixes) {
      if (std::optional<std::string> prefix = named.take(word))
        work.prefixes.push_back(std::move(*prefix));
    }
  } catch (const indexed::FormatError& error) {
    throw cli::UsageError(cli::concat("--data-path: ", error.what()));
  }
  for (const std::string& prefix : work.prefixes) {
    for (const std::string_view end : {".idx", ".bin", ".manifest"})
      cli::refuse_input_as_output("--rewrite", cli::concat(options.rewrite, end),
                                  {cli::concat(prefix, end)});
  }
  const dataset::RewriteCounts counts = dataset::rewrite_shuffled(
      work,
      [&](int64_t done, int64_t total) { call.console.progress({.done = done, .total = total}); });
  call.console.clear_progress();
  if (!counts.note.empty()) call.console.note(counts.note);
  call.console.note(cli::concat("shuffled ", cli::counted(counts.documents, options.level), ", ",
                                cli::counted(counts.tokens, "token"), ", ",
                                cli::readable_bytes(static_cast<double>(counts.bin_bytes)), " in ",
                                counts.passes == 1 ? "one pass" : "two passes"));
  return 0;
}

void report(const indexed::TrainingData& data, const indexed::TrainingDataOptions& work,
            cli::Invocation& call) {
  for (int64_t i = 0; i < 3; ++i) {
    const indexed::SplitData* split = data.split(i);
    if (split == nullptr) continue;
    std::string line = cli::concat(indexed::kSplitNames[static_cast<size_t>(i)], ": ",
                                   cli::counted(split->num_samples(), "sample"));
    for (const indexed::SplitMember& member : split->members()) {
      line += cli::concat("; ", member.identity.prefix, ": sequences ", member.range.begin, " to ",
                          member.range.end, ", ", cli::counted(member.identity.num_epochs, "epoch"),
                          ", ", cli::counted(member.index.num_samples(), "sample"));
    }
    call.console.log(line);
    if (split->num_samples() == 0 && work.num_samples[static_cast<size_t>(i)].value_or(1) > 0) {
      call.console.note(cli::concat("the ", indexed::kSplitNames[static_cast<size_t>(i)],
                                    " split has no sample: its sequences give none of ",
                                    cli::counted(work.seq_length, "token")));
    }
  }
}

int shuffle(Options& options, cli::Invocation& call) {
  if (!options.rewrite.empty()) return rewrite(options, call);
  options.samples.data_cache_path = options.data_cache_path;
  indexed::TrainingDataOptions work = dataset::training_data_options(options.samples);
  if (options.print_descriptions && indexed::is_neox(work.style))
    throw cli::UsageError("--print-descriptions: GPT-NeoX's files have no descriptions");
  work.cache = options.print_descriptions ? indexed::CacheUse::none : indexed::CacheUse::write;
  work.open.tokens = false;
  work.on_build = [&](const std::string& what) { call.console.log("builds " + what); };
  const indexed::TrainingData data = indexed::TrainingData::build(work);
  report(data, work, call);
  if (options.print_descriptions) {
    for (int64_t i = 0; i < 3; ++i) {
      const indexed::SplitData* split = data.split(i);
      if (split == nullptr) continue;
      for (const indexed::SplitMember& member : split->members()) {
        cli::print_format("%s\n%s\n", member.hash.c_str(), member.description.c_str());
      }
      if (split->blend())
        cli::print_format("%s\n%s\n", split->hash().c_str(), split->description().c_str());
    }
    return 0;
  }
  int64_t written = 0;
  for (const indexed::CacheFile& file : data.cache_files()) {
    cli::print_format("%s\n", cli::one_line(file.path).c_str());
    written += file.written;
  }
  if (work.style == indexed::CacheStyle::megatron_core && options.samples.tokenizer_type.empty()) {
    call.console.note(
        "--tokenizer-type is not given: megatron-core makes the tokenizer part of a cache's name "
        "and will "
        "not find these files");
  }
  const auto files = static_cast<int64_t>(data.cache_files().size());
  call.console.note(cli::concat(cli::counted(files, "index file"), ", ", cli::with_commas(written),
                                " written, ", cli::with_commas(files - written),
                                " already there; named as ", dataset::tree_of(options.samples),
                                " looks for them"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {
      .name = "shuffle-index",
      .summary = "build the order in which a training run reads its samples",
      .operands = "",
      .at_signal = indexed::remove_temporaries,
      .at_fault = indexed::describe_fault,
      .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, shuffle);
}
