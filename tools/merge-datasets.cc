// SPDX-License-Identifier: MIT
// merge-datasets: joins many datasets into one, byte for byte what preprocessing their joined input
// would give. Two passes: the first opens and checks every index and adds up the counts, so that
// nothing is written if anything is wrong; the second copies. One input is open at a time. Not
// here: the bytes of a dataset (libindexed/builder), the order of files (tools/dataset/find).
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "libindexed/builder.h"
#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
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
         .help = "Leave out a .bin or .idx that has no partner. Without it such a file is an "
                 "error, because its documents would be lost.",
         .field = cli::on(&O::skip_incomplete)},
        {.name = "mixed-tokenizers",
         .help = "Merge although the manifests name different tokenizers.",
         .field = cli::on(&O::mixed_tokenizers)},
        {.name = "verify",
         .help = "Read every token file and compare it with its manifest's checksums; for inputs "
                 "without a manifest, compute checksums.",
         .field = cli::on(&O::verify)},
        {.name = "dry-run",
         .help = "Check everything, print a line for each input and the sums, and write nothing.",
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

std::vector<std::string> find_inputs(const Options& options, cli::Console& console) {
  std::vector<std::string> prefixes;
  const dataset::Order order =
      options.order == "natural" ? dataset::Order::natural : dataset::Order::name;
  for (const std::string& word : options.input) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(word, ignored)) {
      prefixes.push_back(dataset::prefix_of(word));
      continue;
    }
    dataset::Folder folder = dataset::look_into(word, options.output_prefix, order);
    if (!folder.incomplete.empty()) {
      const std::string message =
          cli::concat(listed(folder.incomplete), ": has no partner: its .bin or .idx is missing");
      if (!options.skip_incomplete)
        throw indexed::FormatError(message + " (--skip-incomplete leaves it out)");
      console.note(message + ", left out");
    }
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

// The fields that are the same in the manifests of all inputs; a field in which they differ, or
// that one lacks, is empty.
class CommonProvenance {
 public:
  CommonProvenance(bool mixed_tokenizers) : mixed_tokenizers_(mixed_tokenizers) {}

  void add(const std::string& prefix, const std::optional<indexed::Manifest>& manifest,
           int64_t documents) {
    indexed::Provenance from = manifest ? manifest->provenance : indexed::Provenance();
    if (!from.tokenizer_hash.empty()) {
      if (named_.empty()) {
        named_ = prefix;
        named_hash_ = from.tokenizer_hash;
        named_tokenizer_ = from.tokenizer;
      } else if (from.tokenizer_hash != named_hash_ && !mixed_tokenizers_) {
        throw indexed::FormatError(
            cli::concat(prefix, ".manifest: tokenizer ", cli::quote(from.tokenizer),
                        " differs from ", cli::quote(named_tokenizer_), " of ", named_,
                        ".manifest: --mixed-tokenizers merges them all the same"));
      }
    }
    if (from.sources.empty() || !from.shuffle_unit.empty()) {
      from.sources = {
          {.path = prefix, .first_document = 0, .num_documents = documents, .first_line = 0}};
    }
    indexed::append_sources(common_.sources, from.sources, documents_);
    documents_ += documents;
    if (first_) {
      std::vector<indexed::SourceRun> sources = std::move(common_.sources);
      common_ = std::move(from);
      common_.sources = std::move(sources);
    } else {
      const auto keep_equal = [](std::string& ours, const std::string& theirs) {
        if (ours != theirs) ours.clear();
      };
      keep_equal(common_.tokenizer, from.tokenizer);
      keep_equal(common_.tokenizer_hash, from.tokenizer_hash);
      keep_equal(common_.configuration_hash, from.configuration_hash);
      if (common_.vocab_size != from.vocab_size) common_.vocab_size = 0;
      if (common_.eod_token != from.eod_token) common_.eod_token = -1;
    }
    first_ = false;
  }

  indexed::Provenance finish(const std::string& command_line) {
    common_.tool = cli::concat("merge-datasets ", cli::version());
    common_.command = {command_line};
    common_.shuffle_unit.clear();
    common_.shuffle_seed = 0;
    return std::move(common_);
  }

 private:
  indexed::Provenance common_ = {};
  std::string named_, named_hash_, named_tokenizer_;
  int64_t documents_ = 0;
  bool mixed_tokenizers_;
  bool first_ = true;
};

void check_manifest(const std::string& prefix, const indexed::Manifest& manifest,
                    const indexed::IndexedDataset& data) {
  if (manifest.bin_bytes != data.bin_bytes() || manifest.num_sequences != data.num_sequences() ||
      manifest.num_documents != data.num_documents()) {
    throw indexed::FormatError(cli::concat(
        prefix, ".manifest: ", cli::with_commas(manifest.num_documents), " documents and ",
        cli::with_commas(manifest.bin_bytes), " bytes of tokens, but the dataset has ",
        cli::with_commas(data.num_documents()), " and ", cli::with_commas(data.bin_bytes()),
        ": one of them is another dataset's"));
  }
}

// First pass: every index is read and checked; dtypes must agree.
std::vector<Part> survey(const Options& options, const std::vector<std::string>& prefixes,
                         indexed::DType& dtype, cli::Console& console) {
  std::vector<Part> parts;
  for (const std::string& prefix : prefixes) {
    const auto data = indexed::IndexedDataset::open(prefix, open_options(options, false));
    if (parts.empty()) dtype = data.dtype();
    if (data.dtype() != dtype) {
      throw indexed::FormatError(
          cli::concat(prefix, ".idx: dtype ", indexed::dtype_name(data.dtype()), " differs from ",
                      indexed::dtype_name(dtype), " of ", prefixes[0], ".idx"));
    }
    if (data.num_sequences() > 0 && data.multimodal() != options.multimodal) {
      throw indexed::FormatError(
          cli::concat(prefix, ".idx: has no modes, as --multimodal expects"));
    }
    parts.push_back(
        {prefix, data.num_documents(), data.num_sequences(), data.num_tokens(), data.bin_bytes()});
    console.log(cli::concat(prefix, ": ", cli::counted(data.num_documents(), "document"), ", ",
                            cli::counted(data.num_tokens(), "token")));
  }
  return parts;
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

void copy_part(const Options& options, const Part& part, indexed::IndexedDatasetBuilder& builder,
               CommonProvenance& provenance) {
  const auto data = indexed::IndexedDataset::open(part.prefix, open_options(options, true));
  const std::optional<indexed::Manifest> manifest = indexed::read_manifest(part.prefix);
  if (manifest) check_manifest(part.prefix, *manifest, data);
  if (manifest && options.verify) {
    if (const auto damage = indexed::find_damage(data.bin(), manifest->bin)) {
      throw indexed::FormatError(
          cli::concat(part.prefix, ".bin:", damage->offset, ": ", damage->bytes,
                      " bytes from here differ from the manifest's checksum: damaged"));
    }
  }
  const bool keep_checksums = manifest && !options.permuted;
  builder.add_dataset(data,
                      keep_checksums ? std::span<const indexed::Segment>(manifest->bin)
                                     : std::span<const indexed::Segment>(),
                      options.verify && !(manifest && !manifest->bin.empty()));
  provenance.add(part.prefix, manifest, data.num_documents());
}

int merge(Options& options, cli::Invocation& call) {
  options.input.insert(options.input.end(), call.parsed.operands.begin(),
                       call.parsed.operands.end());
  const cli::Needed needed[] = {{!options.input.empty(), "--input DIR"},
                                {!options.output_prefix.empty(), "--output-prefix PREFIX"}};
  cli::require_all(needed);
  const std::vector<std::string> prefixes = find_inputs(options, call.console);
  indexed::DType dtype = indexed::DType::int32;
  const std::vector<Part> parts = survey(options, prefixes, dtype, call.console);
  if (options.dry_run) {
    for (const Part& part : parts) {
      cli::print_format("%s\t%lld\t%lld\t%lld\n", cli::one_line(part.prefix).c_str(),
                        static_cast<long long>(part.documents),
                        static_cast<long long>(part.sequences),
                        static_cast<long long>(part.tokens));
    }
    cli::finish_stdout();
    call.console.note(cli::concat("would merge ", sums(parts)));
    return 0;
  }
  for (const Part& part : parts) {
    for (const std::string_view end : {".idx", ".bin"})
      cli::refuse_input_as_output("--output-prefix", cli::concat(options.output_prefix, end),
                                  {cli::concat(part.prefix, end)});
  }
  cli::ProgressState progress{.item_noun = "dataset"};
  for (const Part& part : parts) progress.total += part.bin_bytes;
  indexed::IndexedDatasetBuilder builder(
      options.output_prefix,
      {.dtype = dtype,
       .existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse,
       .multimodal = options.multimodal,
       .manifest = !options.no_manifest,
       .on_copied = [&](int64_t bytes) {
         progress.done = bytes;
         call.console.progress(progress);
       }});
  CommonProvenance provenance(options.mixed_tokenizers);
  for (const Part& part : parts) {
    copy_part(options, part, builder, provenance);
    ++progress.items;
  }
  builder.finish(provenance.finish(call.command_line));
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
