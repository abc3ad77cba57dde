// SPDX-License-Identifier: MIT
// near-dedup: removes near-duplicate documents and keeps the first of each group. Inputs are read
// twice: once for the keys of every document (tools/dedup), once to write the kept ones unchanged.
// Here: flags, the two passes, the list of dropped documents, counts.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <unordered_map>

#include <sys/resource.h>
#include <sys/stat.h>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/output_path.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/dedup/groups.h"
#include "tools/dedup/min_hash.h"
#include "tools/dedup/shingles.h"
#include "tools/extract/output_flags.h"
#include "tools/extract/text_output.h"
#include "tools/stream/json_scan.h"
#include "tools/stream/reading.h"

namespace {

constexpr int64_t kDefaultMemory = int64_t{1} << 30;

struct Options {
  stream::ReadingOptions reading;
  stream::PolicyOptions policy;
  int64_t ngram = 5;
  int64_t bands = 14;
  int64_t rows = 8;
  int64_t seed = 1;
  extract::OutputFlags output;
  std::string duplicates;
  int64_t memory = kDefaultMemory;
};

cli::Group<Options> likeness_group() {
  using O = Options;
  return {"What is alike",
          {{.name = "ngram",
            .value = "N",
            .help = "Words that make one n-gram. Documents of fewer words always stay.",
            .field = cli::integer(&O::ngram, 1, 1000)},
           {.name = "bands",
            .value = "B",
            .help = "Bands of the signature. Documents with a share s of their n-grams in common "
                    "meet with a chance of 1 - (1 - s^R)^B.",
            .field = cli::integer(&O::bands, 1, 1000)},
           {.name = "rows",
            .value = "R",
            .help = "Hashes of a band.",
            .field = cli::integer(&O::rows, 1, 1000)},
           {.name = "seed",
            .value = "N",
            .help = "Chooses the hash functions.",
            .field = cli::integer(&O::seed, 0, cli::kMaxInteger)}}};
}

cli::Group<Options> output_group() {
  using O = Options;
  cli::Group<Options> group = cli::lift(extract::output_group(), &O::output);
  group.flags.push_back(
      {.name = "duplicates",
       .letter = 'd',
       .value = "FILE",
       .help = "Write to FILE which documents were dropped, and which was kept instead: a line of "
               "JSON each.",
       .field = cli::text(&O::duplicates)});
  group.flags.push_back({.name = "memory",
                         .value = "SIZE",
                         .help = "Memory for sorting keys. With less, files of keys are read more "
                                 "often; the output is the same.",
                         .field = cli::size(&O::memory, 1 << 20)});
  return group;
}

/// --input and related flags, without --range, because its parts would not see each other. The help
/// leaves out what is refused: standard input, and forms without lines.
cli::Group<stream::ReadingOptions> reading_group() {
  cli::Group<stream::ReadingOptions> group = stream::reading_group();
  std::erase_if(group.flags,
                [](const cli::Flag<stream::ReadingOptions>& flag) { return flag.name == "range"; });
  for (cli::Flag<stream::ReadingOptions>& flag : group.flags) {
    if (flag.name == "input") {
      flag.help =
          "Files to read, one after another. gzip, bzip2, xz, lzma and zstd are recognised by "
          "their first bytes.";
    } else if (flag.name == "input-format") {
      flag.help =
          "What a document is: an object on a line (json), a line (lines), or NUL-ended text "
          "(nul).";
      flag.field.choices = {"json", "lines", "nul"};
    }
  }
  return group;
}

const cli::Table<Options>& flags() {
  static const cli::Table<Options> table = {
      cli::lift(reading_group(), &Options::reading), likeness_group(), output_group(),
      cli::lift(stream::stop_or_skip_group("Bad records"), &Options::policy)};
  return table;
}

/// The state of a file when it was first read.
struct FileState {
  ino_t inode;
  off_t size;
  timespec changed;
  bool operator==(const FileState& other) const {
    return inode == other.inode && size == other.size && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

/// Errors: std::system_error; std::runtime_error for inputs that cannot be read twice.
std::vector<FileState> states_of(const std::vector<std::string>& paths) {
  std::vector<FileState> states;
  for (const std::string& path : paths) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0)
      throw std::system_error(errno, std::generic_category(), path);
    if (!S_ISREG(status.st_mode))
      throw std::runtime_error(path + ": not a file: inputs are read twice");
    states.push_back({status.st_ino, status.st_size, status.st_mtim});
  }
  return states;
}

/// Errors: std::runtime_error for an input that is not what it was.
void check_inputs(const std::vector<std::string>& paths, const std::vector<FileState>& states) {
  const std::vector<FileState> now = states_of(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (now[i] != states[i]) throw std::runtime_error(paths[i] + ": changed while it was read");
  }
}

/// Each band has an open file. Raises the soft limit where it is too low for that.
/// Errors: std::runtime_error if the hard limit does not allow it.
void allow_files(int64_t bands, int64_t threads) {
  const auto wanted = static_cast<rlim_t>(bands + 8 * threads + 32);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  if (files.rlim_max < wanted) {
    throw std::runtime_error(cli::concat("--bands ", bands, " needs ", wanted,
                                         " open files, and `ulimit -Hn` allows ", files.rlim_max,
                                         ": fewer bands, or a higher limit"));
  }
  files.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &files);
}

/// Where to put an unnamed file: beside the output, where a link to it leads, or in TMPDIR.
std::string scratch_place(const Options& options) {
  if (!cli::is_stream(options.output.path)) return indexed::target_of(options.output.path);
  if (!options.duplicates.empty()) return indexed::target_of(options.duplicates);
  const char* folder = std::getenv("TMPDIR");
  return cli::concat(folder == nullptr || *folder == '\0' ? "/tmp" : folder, "/near-dedup");
}

/// The first pass: keys of all documents.
void read_keys(const Options& options, stream::ReadingJob job, dedup::KeyStore& store) {
  struct Keys {
    std::vector<uint64_t> keys;
  };
  const dedup::MinHash hash(options.bands, options.rows, std::bit_cast<uint64_t>(options.seed));
  // A thread's document: shingles are counted as they come, so a long text takes no memory here.
  struct Signing {
    dedup::Shingler shingler;
    std::vector<uint64_t> minima;
  };
  std::vector<Signing> signing(static_cast<size_t>(job.threads),
                               Signing{.shingler = dedup::Shingler(options.ngram), .minima = {}});
  stream::read_documents<Keys>(
      std::move(job), {.begin = [](Keys& result, int64_t) { result.keys.clear(); },
                       .each =
                           [&](Keys& result, const stream::Document& document, int64_t thread) {
                             Signing& now = signing[static_cast<size_t>(thread)];
                             now.minima.clear();
                             const auto count = [&](std::span<const uint64_t> shingles) {
                               hash.add(shingles, now.minima);
                             };
                             for (const std::vector<std::string_view>& texts : document.texts) {
                               for (const std::string_view text : texts)
                                 now.shingler.add(text, count);
                             }
                             now.shingler.finish(count);
                             hash.append_keys(now.minima, result.keys);
                           },
                       .sink = [&](const stream::Work<Keys>& work,
                                   const std::string&) { store.add(work.result.keys); }});
}

/// The output files, opened before anything is read. The list comes first: whoever reads a pipe
/// takes its end for that of the documents, so it is opened when nothing else can be refused.
struct Outputs {
  explicit Outputs(const Options& options) : Outputs(options, existing_of(options)) {}
  Outputs(const Options& options, indexed::Existing existing)
      : list(list_of(options, existing)), kept(options.output.text_output(existing)) {}

  static std::unique_ptr<indexed::OutputFile> list_of(const Options& options,
                                                      indexed::Existing existing) {
    if (options.duplicates.empty()) return nullptr;
    return std::make_unique<indexed::OutputFile>(options.duplicates, existing);
  }

  /// A run that was killed while it renamed its outputs may have renamed only the list.
  static indexed::Existing existing_of(const Options& options) {
    const extract::OutputFlags& output = options.output;
    const bool killed =
        !output.force && !cli::is_stream(output.path) && indexed::left_unfinished(output.path);
    return killed ? indexed::Existing::same : output.existing();
  }

  void finish() {
    kept.prepare();
    const indexed::NamingSection section;
    if (list) list->commit();
    kept.finish();
  }

  std::unique_ptr<indexed::OutputFile> list;  ///< --duplicates; null without it
  extract::TextOutput kept;
};

/// Writes the kept documents and the list of dropped ones. Receives documents in order.
class Sifter {
 public:
  Sifter(char mark, dedup::Groups& groups, int64_t documents, Outputs& outputs)
      : mark_(mark),
        groups_(groups),
        kept_for_others_(static_cast<size_t>(documents)),
        outputs_(outputs) {
    for (uint32_t i = 0; i < documents; ++i) {
      const uint32_t first = groups_.first_of(i);
      if (first != i && !kept_for_others_[first]) ++num_groups_;
      if (first != i) kept_for_others_[first] = true;
    }
  }

  /// `record` is the unchanged record `line` of `file`. Errors: std::runtime_error for a document
  /// that the first pass did not see.
  void take(std::string_view record, const std::string& file, int64_t line) {
    if (next_ == kept_for_others_.size())
      throw std::runtime_error(file + ": changed while it was read");
    const uint32_t document = next_++;
    const uint32_t first = groups_.first_of(document);
    if (first != document) {
      ++dropped_;
      if (outputs_.list) write_line(file, line, places_.at(first));
      return;
    }
    if (outputs_.list && kept_for_others_[document]) places_[document] = {&file, line};
    outputs_.kept.write(record);
    outputs_.kept.write(std::string_view(&mark_, 1));
  }

  int64_t documents() const { return next_; }
  int64_t dropped() const { return dropped_; }
  int64_t num_groups() const { return num_groups_; }

 private:
  struct Place {
    const std::string* file;
    int64_t line;
  };

  /// JSON has no way to write a name that is not UTF-8: it gets the escapes of messages.
  static std::string as_utf8(const std::string& name) {
    return stream::is_utf8(name) ? name : cli::one_line(name);
  }

  void write_line(const std::string& file, int64_t line, const Place& kept) {
    std::string text = "{\"file\":";
    extract::append_json_string(as_utf8(file), text);
    text += cli::concat(",\"line\":", line, ",\"kept_file\":");
    extract::append_json_string(as_utf8(*kept.file), text);
    outputs_.list->write(cli::concat(text, ",\"kept_line\":", kept.line, "}\n"));
  }

  const char mark_;
  dedup::Groups& groups_;
  std::vector<bool> kept_for_others_;
  Outputs& outputs_;
  std::unordered_map<uint32_t, Place> places_;  // of documents kept instead of others
  uint32_t next_ = 0;
  int64_t dropped_ = 0;
  int64_t num_groups_ = 0;
};

/// The second pass.
void write_kept(stream::ReadingJob job, Sifter& sifter) {
  struct Record {
    std::string_view text;
    int64_t line;
  };
  stream::ErrorPolicy& policy = job.policy;
  stream::read_documents<std::vector<Record>>(
      std::move(job),
      {.begin = [](std::vector<Record>& records, int64_t) { records.clear(); },
       .each =
           [](std::vector<Record>& records, const stream::Document& document, int64_t) {
             records.push_back({document.raw, document.line});
           },
       .sink =
           [&](const stream::Work<std::vector<Record>>& work, const std::string& input) {
             for (const Record& record : work.result)
               sifter.take(record.text, input, policy.first_line() + record.line);
           }});
}

int dedup_documents(Options& options, cli::Invocation& call) {
  if (options.reading.format == "file" || options.reading.format == "array")
    throw cli::UsageError(cli::concat("--input-format ", options.reading.format,
                                      " has no lines to write: make JSON lines with json-extract"));
  const std::vector<std::string> paths = stream::inputs_of(options.reading, call.parsed);
  if (std::find(paths.begin(), paths.end(), "-") != paths.end())
    throw cli::UsageError("standard input cannot be read, inputs are read twice: name files");
  if (options.duplicates == "-")
    throw cli::UsageError("--duplicates -: expected the name of a file");
  options.output.path = cli::output_path(options.output.path);
  cli::refuse_input_as_output("--output", options.output.path, paths);
  cli::refuse_input_as_output("--duplicates", options.duplicates, paths);
  cli::refuse_open_output("--duplicates", options.duplicates, options.output.path);
  stream::ErrorPolicy policy(options.policy, call.console);
  const std::vector<FileState> states = states_of(paths);
  const int64_t threads = stream::threads_for(options.output.workers);
  allow_files(options.bands, threads);
  Outputs outputs(options);
  dedup::KeyStore store(scratch_place(options), options.bands);
  read_keys(options,
            {.options = options.reading,
             .inputs = paths,
             .threads = threads,
             .policy = policy,
             .console = call.console},
            store);
  dedup::Groups groups = store.group(threads, options.memory);
  // Bad records were reported in the first pass, and are skipped silently now.
  cli::Console silent{std::string(call.console.tool())};
  silent.set_quiet(true);
  stream::ErrorPolicy passing({.on_error = "skip"}, silent);
  Sifter sifter(options.reading.format == "nul" ? '\0' : '\n', groups, store.documents(), outputs);
  write_kept({.options = options.reading,
              .inputs = paths,
              .threads = threads,
              .policy = passing,
              .console = call.console},
             sifter);
  check_inputs(paths, states);
  if (sifter.documents() != store.documents())
    throw std::runtime_error("an input changed while it was read");
  outputs.finish();
  call.console.note(cli::concat(cli::counted(policy.documents(), "document"),
                                " in = ", cli::with_commas(sifter.documents() - sifter.dropped()),
                                " out + ", cli::counted(sifter.dropped(), "near duplicate"),
                                " (of ", cli::with_commas(sifter.num_groups()),
                                sifter.num_groups() == 1 ? " that stays) + " : " that stay) + ",
                                cli::with_commas(policy.skipped()), " rejected"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "near-dedup",
                                .summary = "drop near-duplicates, keep the first of each group",
                                .operands = "FILE...",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, dedup_documents);
}
