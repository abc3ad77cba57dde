// SPDX-License-Identifier: MIT
// merge-datasets: joins many datasets into one, byte for byte what preprocessing their joined input
// would give. Two passes: the first opens and checks every index and manifest and adds up the
// counts, so that nothing is written if anything is wrong; the second copies. One input is open at
// a time. Not here: the bytes of a dataset (libindexed/builder), the order of files
// (tools/dataset/find).
#include <filesystem>
#include <optional>
#include <utility>

#include "libindexed/builder.h"
#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/dataset/common_provenance.h"
#include "tools/dataset/find.h"

namespace {

struct Options {
  std::vector<std::string> input;
  std::string output_prefix;
  std::string order = "name";
  bool multimodal = false;
  bool permuted = false;
  bool skip_incomplete = false;
  bool mixed_tokenizers = false;
  bool verify = false;
  bool dry_run = false;
  bool no_manifest = false;
  bool force = false;
};

cli::Table<Options> flags() {
  using O = Options;
  return {
      {"Input and output",
       {{.name = "input",
         .value = "DIR",
         .help =
             "Folders of datasets, and prefixes of datasets. A folder gives every PREFIX.bin with "
             "PREFIX.idx in it, in --order; several words keep their own order.",
         .field = cli::list(&O::input)},
        {.name = "output-prefix",
         .value = "PREFIX",
         .help = "Write PREFIX.bin, PREFIX.idx and PREFIX.manifest. Required.",
         .field = cli::text(&O::output_prefix)},
        {.name = "force", .help = "Replace an existing output.", .field = cli::on(&O::force)},
        {.name = "no-manifest",
         .help = "Write no PREFIX.manifest.",
         .field = cli::on(&O::no_manifest)}}},
      {"Order and checks",
       {{.name = "order",
         .value = "ORDER",
         .help = "Order within a folder: by name, as Megatron's merge_datasets.py sorts (part_10 "
                 "before part_2), or natural (part_2 before part_10).",
         .field = cli::choice(&O::order, {"name", "natural"})},
        {.name = "multimodal",
         .help = "The datasets have a mode byte for each sequence.",
         .field = cli::on(&O::multimodal)},
        {.name = "permuted",
         .help = "Accept index-only shuffles, whose pointers are not in order; their stored "
                 "pointers are used.",
         .field = cli::on(&O::permuted)},
        {.name = "skip-incomplete",
         .help = "Leave out a .bin or .idx that has no partner, or is a link that leads nowhere. "
                 "Without it such a file is an error, because its documents would be lost.",
         .field = cli::on(&O::skip_incomplete)},
        {.name = "mixed-tokenizers",
         .help = "Merge although the manifests name different tokenizers.",
         .field = cli::on(&O::mixed_tokenizers)},
        {.name = "verify",
         .help = "Read every token file and compare it with its manifest's checksums; for inputs "
                 "without a manifest, compute checksums.",
         .field = cli::on(&O::verify)},
        {.name = "dry-run",
         .help = "Check everything, print a line for each input and the sums, and write nothing; "
                 "refuses what the merge would refuse.",
         .field = cli::on(&O::dry_run)}}}};
}

// One input, as the first pass found it.
struct Part {
  std::string prefix;
  int64_t documents;
  int64_t sequences;
  int64_t tokens;
  int64_t bin_bytes;
};

std::string listed(const std::vector<std::string>& paths) {
  std::string text = paths[0];
  if (paths.size() > 1)
    text += cli::concat(" and ", cli::with_commas(static_cast<int64_t>(paths.size()) - 1), " more");
  return text;
}

// Whether a word is the prefix of a dataset although there is a folder of that name, as index files
// in PREFIX/cache make it.
bool is_prefix(const std::string& word, const dataset::Folder& folder, const Options& options) {
  std::error_code ignored;
  const auto exists = [&](const char* end) { return std::filesystem::exists(word + end, ignored); };
  if (!exists(".idx") && !exists(".bin")) return false;
  if (folder.prefixes.empty() && folder.incomplete.empty() && folder.dangling.empty()) return true;
  if (dataset::same_prefix(word, options.output_prefix)) return false;
  throw cli::UsageError(cli::concat(word, ": a folder of datasets and a dataset: ", word,
                                    "/ is the folder, ", word, ".idx the dataset"));
}

std::vector<std::string> find_inputs(const Options& options, cli::Console& console) {
  std::vector<std::string> prefixes;
  dataset::NamedDatasets named;
  const auto add = [&](const std::string& word) {
    if (std::optional<std::string> prefix = named.take(word))
      prefixes.push_back(std::move(*prefix));
  };
  const dataset::Order order =
      options.order == "natural" ? dataset::Order::natural : dataset::Order::name;
  for (const std::string& word : options.input) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(word, ignored)) {
      add(word);
      continue;
    }
    dataset::Folder folder = dataset::look_into(word, options.output_prefix, order);
    if (is_prefix(word, folder, options)) {
      add(word);
      continue;
    }
    const auto leave_out = [&](const std::vector<std::string>& files, const std::string& reason,
                               const std::string& what, const std::string& note) {
      if (files.empty()) return;
      const std::string message = listed(files) + reason;
      if (!options.skip_incomplete)
        throw indexed::FormatError(
            cli::concat(message, " (--skip-incomplete leaves ", what, " out)"));
      console.note(message + note);
    };
    leave_out(folder.dangling, ": a link that leads nowhere", "its dataset",
              ", its dataset is left out");
    leave_out(folder.incomplete, ": has no partner: its .bin or .idx is missing", "it",
              ", left out");
    if (!folder.strays.empty())
      console.note(cli::concat(listed(folder.strays), ": not a dataset, left out"));
    if (!folder.unfinished.empty()) {
      console.note(cli::concat(listed(folder.unfinished),
                               ": unfinished output of another program, left out"));
    }
    if (folder.prefixes.empty())
      throw indexed::FormatError(cli::concat(word, ": no dataset in this folder"));
    prefixes.insert(prefixes.end(), folder.prefixes.begin(), folder.prefixes.end());
  }
  return prefixes;
}

indexed::OpenOptions open_options(const Options& options, bool tokens) {
  return {.multimodal = options.multimodal,
          .permuted = options.permuted,
          .longer_bin = false,
          .tokens = tokens};
}

// What the first pass finds.
struct Survey {
  indexed::DType dtype = indexed::DType::int32;
  std::vector<Part> parts = {};
  dataset::CommonProvenance provenance;
};

// First pass: every index and manifest is read and checked; dtypes and tokenizers must agree.
Survey survey(const Options& options, const std::vector<std::string>& prefixes,
              cli::Console& console) {
  Survey found{.provenance = dataset::CommonProvenance(options.mixed_tokenizers)};
  for (const std::string& prefix : prefixes) {
    const auto data = indexed::IndexedDataset::open(prefix, open_options(options, options.dry_run));
    if (found.parts.empty()) found.dtype = data.dtype();
    if (data.dtype() != found.dtype) {
      throw indexed::FormatError(
          dataset::other_dtype({prefix, data.dtype()}, {prefixes[0], found.dtype}));
    }
    if (data.num_sequences() > 0 && data.multimodal() != options.multimodal) {
      throw indexed::FormatError(
          cli::concat(prefix, ".idx: has no modes, as --multimodal expects"));
    }
    found.provenance.add(prefix, dataset::read_own_manifest(data), data.num_documents());
    found.parts.push_back(
        {prefix, data.num_documents(), data.num_sequences(), data.num_tokens(), data.bin_bytes()});
    console.log(cli::concat(prefix, ": ", cli::counted(data.num_documents(), "document"), ", ",
                            cli::counted(data.num_tokens(), "token")));
  }
  return found;
}

std::string sums(const std::vector<Part>& parts) {
  int64_t documents = 0, tokens = 0, bytes = 0;
  for (const Part& part : parts) {
    documents += part.documents;
    tokens += part.tokens;
    bytes += part.bin_bytes;
  }
  return cli::concat(cli::counted(static_cast<int64_t>(parts.size()), "dataset"), ", ",
                     cli::counted(documents, "document"), ", ", cli::counted(tokens, "token"), ", ",
                     cli::readable_bytes(static_cast<double>(bytes)));
}

// --verify: the tokens against the manifest's checksums.
void verify(const indexed::IndexedDataset& data, const indexed::Manifest& manifest) {
  if (const auto damage = indexed::find_damage(data.bin(), manifest.bin)) {
    throw indexed::FormatError(
        cli::concat(data.prefix(), ".bin:", damage->offset, ": ", damage->bytes,
                    " bytes from here differ from the manifest's checksum: damaged"));
  }
}

void copy_part(const Options& options, const Part& part, indexed::IndexedDatasetBuilder& builder) {
  const auto data = indexed::IndexedDataset::open(part.prefix, open_options(options, true));
  const std::optional<indexed::Manifest> manifest = dataset::read_own_manifest(data);
  if (manifest && options.verify) verify(data, *manifest);
  const bool keep_checksums = manifest && !options.permuted;
  builder.add_dataset(data,
                      keep_checksums ? std::span<const indexed::Segment>(manifest->bin)
                                     : std::span<const indexed::Segment>(),
                      options.verify && !(manifest && !manifest->bin.empty()));
}

// Prints what would be merged, after the checks that a merge makes on its way.
void dry_run(const Options& options, const std::vector<Part>& parts, cli::Console& console,
             cli::ProgressState progress) {
  for (const Part& part : parts) {
    if (!options.verify) break;
    const auto data = indexed::IndexedDataset::open(part.prefix, open_options(options, true));
    if (const auto manifest = dataset::read_own_manifest(data)) verify(data, *manifest);
    progress.done += part.bin_bytes;
    ++progress.items;
    console.progress(progress);
  }
  console.clear_progress();
  for (const Part& part : parts) {
    cli::print_format("%s\t%lld\t%lld\t%lld\n", cli::one_line(part.prefix).c_str(),
                      static_cast<long long>(part.documents),
                      static_cast<long long>(part.sequences), static_cast<long long>(part.tokens));
  }
  cli::finish_stdout();
  console.note(cli::concat("would merge ", sums(parts)));
}

int merge(Options& options, cli::Invocation& call) {
  options.input.insert(options.input.end(), call.parsed.operands.begin(),
                       call.parsed.operands.end());
  const cli::Needed needed[] = {{!options.input.empty(), "--input DIR"},
                                {!options.output_prefix.empty(), "--output-prefix PREFIX"}};
  cli::require_all(needed);
  dataset::refuse_nameless("--output-prefix", options.output_prefix);
  Survey found = survey(options, find_inputs(options, call.console), call.console);
  if (const std::string& note = found.provenance.ends_note(); !note.empty())
    call.console.note(note);
  const std::vector<Part>& parts = found.parts;
  for (const Part& part : parts) {
    for (const std::string_view end : {".idx", ".bin", ".manifest"})
      cli::refuse_input_as_output("--output-prefix", cli::concat(options.output_prefix, end),
                                  {cli::concat(part.prefix, end)});
  }
  const auto existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse;
  indexed::refuse_bad_targets(options.output_prefix, existing);
  cli::ProgressState progress{.item_noun = "dataset"};
  for (const Part& part : parts) progress.total += part.bin_bytes;
  if (options.dry_run) {
    dry_run(options, parts, call.console, progress);
    return 0;
  }
  indexed::IndexedDatasetBuilder builder(options.output_prefix, {.dtype = found.dtype,
                                                                 .existing = existing,
                                                                 .multimodal = options.multimodal,
                                                                 .manifest = !options.no_manifest,
                                                                 .on_copied = [&](int64_t bytes) {
                                                                   progress.done = bytes;
                                                                   call.console.progress(progress);
                                                                 }});
  for (const Part& part : parts) {
    copy_part(options, part, builder);
    ++progress.items;
  }
  builder.finish(
      found.provenance.finish(cli::concat("merge-datasets ", cli::version()), call.command_line));
  call.console.clear_progress();
  call.console.note(cli::concat("merged ", sums(parts)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "merge-datasets",
                                .summary = "join many token datasets into one",
                                .operands = "[PREFIX|DIR]...",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, merge);
}
