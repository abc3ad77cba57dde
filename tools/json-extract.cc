// SPDX-License-Identifier: MIT
// json-extract: JSON lines to loose JSON with only the named keys, or to NUL-ended text, cleaned as
// asked. Every document is written, filtered by a rule that was asked for, or rejected with its
// place; the counts of the closing line add up. Here: flags, the processing of one document,
// counts. Reading is tools/stream, cleaning and writing tools/extract.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/output_path.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/extract/clean.h"
#include "tools/extract/output_flags.h"
#include "tools/extract/quarantine.h"
#include "tools/extract/text_output.h"
#include "tools/stream/pipeline.h"
#include "tools/stream/reading.h"

namespace {

struct Options {
  stream::ReadingOptions reading;
  stream::PolicyOptions policy;
  extract::OutputFlags output;
  bool nul = false;
  std::string normalize = "none";
  std::string control = "keep";
  std::string whitespace = "keep";
  bool mojibake = false;
  std::string where;
  int64_t min_chars = 0;
  int64_t max_chars = cli::kMaxInteger;
  bool dedup = false;
};

cli::Group<Options> cleaning_group() {
  using O = Options;
  return {
      "Cleaning, in this order",
      {{.name = "repair-mojibake",
        .help = "Repair UTF-8 that was read as Latin-1 or Windows-1252, up to three times over.",
        .field = cli::on(&O::mojibake)},
       {.name = "control-chars",
        .value = "WHAT",
        .help = "Keep control characters other than tab and line ends, remove them, or replace "
                "them by spaces.",
        .field = cli::choice(&O::control, {"keep", "remove", "space"})},
       {.name = "normalize",
        .value = "FORM",
        .help = "Unicode normal form of the text.",
        .field = cli::choice(&O::normalize, {"none", "nfc", "nfkc"})},
       {.name = "whitespace",
        .value = "WHAT",
        .help = "Trim white space at both ends; or collapse: also one space for a run of blanks, "
                "no blanks at the ends of "
                "lines, \\n for every line end, at most one empty line.",
        .field = cli::choice(&O::whitespace, {"keep", "trim", "collapse"})}}};
}

cli::Group<Options> filter_group() {
  using O = Options;
  return {"Filters, after cleaning",
          {{.name = "where",
            .value = "CONDITION",
            .help = "Leave out documents whose fields do not satisfy it, before anything else is "
                    "done with them: 'language == \"en\" and score > 0.5'. Comparisons, in [...], "
                    "and, or, not, brackets; see CONDITIONS. Once.",
            .field = cli::once(&O::where, "join conditions with and")},
           {.name = "min-chars",
            .value = "N",
            .help = "Leave out documents of fewer than N characters, all keys together.",
            .field = cli::integer(&O::min_chars)},
           {.name = "max-chars",
            .value = "N",
            .help = "Leave out documents of more than N characters, all keys together.",
            .field = {cli::Arity::one,
                      [](O& o, const cli::Values& v) {
                        o.max_chars = cli::parse_integer(v[0], 0, cli::kMaxInteger);
                      },
                      [](const O& o) {
                        return o.max_chars == cli::kMaxInteger
                                   ? cli::Values{}
                                   : cli::Values{std::to_string(o.max_chars)};
                      }}},
           {.name = "dedup",
            .help = "Leave out documents whose text is exactly that of an earlier one. Takes 24 to "
                    "48 bytes of memory for each document that is kept, and half as much again "
                    "while the table grows.",
            .field = cli::on(&O::dedup)}}};
}

cli::Group<Options> output_group() {
  cli::Group<Options> group = cli::lift(extract::output_group(), &Options::output);
  group.flags.push_back(
      {.name = "null",
       .letter = '0',
       .help = "Write the bare text of the one key, ended by a NUL byte; a list's strings are "
               "joined by line ends.",
       .field = cli::on(&Options::nul)});
  return group;
}

const cli::Table<Options>& flags() {
  static const cli::Table<Options> table = {cli::lift(stream::reading_group(), &Options::reading),
                                            cleaning_group(), filter_group(), output_group(),
                                            cli::lift(stream::policy_group(), &Options::policy)};
  return table;
}

/// What happened to the documents. in = out + filtered + rejected.
struct Counts {
  int64_t out = 0;
  int64_t unwanted = 0;  ///< --where does not hold
  int64_t too_short = 0;
  int64_t too_long = 0;
  int64_t duplicates = 0;
  int64_t repaired = 0;
  int64_t filtered() const { return unwanted + too_short + too_long + duplicates; }
};

/// The output for a chunk's documents.
struct Extracted {
  struct Entry {
    size_t end;  ///< in bytes
    extract::Hash128 hash;
  };
  std::string bytes;
  std::vector<Entry> entries;  ///< of the documents that passed the length filters
  Counts counts;
};

extract::CleanOptions clean_options(const Options& options) {
  extract::CleanOptions clean;
  clean.repair_mojibake = options.mojibake;
  if (options.control == "remove") clean.control = extract::ControlCharacters::remove;
  if (options.control == "space") clean.control = extract::ControlCharacters::space;
  if (options.normalize == "nfc") clean.normalize = extract::Normalize::nfc;
  if (options.normalize == "nfkc") clean.normalize = extract::Normalize::nfkc;
  if (options.whitespace == "trim") clean.whitespace = extract::Whitespace::trim;
  if (options.whitespace == "collapse") clean.whitespace = extract::Whitespace::collapse;
  return clean;
}

/// One worker: cleans and writes documents into a chunk's result.
class Extractor {
 public:
  explicit Extractor(const Options& options)
      : options_(options),
        clean_(clean_options(options)),
        cleans_(extract::changes(clean_)),
        counts_(options.min_chars > 0 || options.max_chars < cli::kMaxInteger),
        spelling_(!options.nul && !cleans_ && !counts_ &&
                          format_of(options.reading) == stream::Format::json
                      ? stream::Spelling::escaped
                      : stream::Spelling::characters) {}

  /// The spelling in which it takes texts: one that is written unchanged is escaped while it is
  /// read.
  stream::Spelling spelling() const { return spelling_; }

  void take(const stream::Document& document, Extracted& result) {
    if (!document.wanted) {
      ++result.counts.unwanted;
      return;
    }
    const size_t begin = result.bytes.size();
    characters_ = 0;
    bool repaired = false;
    if (!options_.nul) result.bytes += '{';
    for (size_t key = 0; key < document.texts.size(); ++key) {
      if (!options_.nul) {
        if (key > 0) result.bytes += ',';
        extract::append_json_string(options_.reading.keys[key], result.bytes);
        result.bytes += ':';
      }
      repaired |= write_value(document, key, result.bytes);
    }
    if (!options_.nul) result.bytes += '}';
    if (options_.nul && result.bytes.find('\0', begin) != std::string::npos) {
      document.refuse(stream::Reason::nul_in_text,
                      "the text has a NUL character, which ends documents with -0: remove it with "
                      "--control-chars remove");
      result.bytes.resize(begin);
      return;
    }
    if (counts_ && (characters_ < options_.min_chars || characters_ > options_.max_chars)) {
      ++(characters_ < options_.min_chars ? result.counts.too_short : result.counts.too_long);
      result.bytes.resize(begin);
      return;
    }
    result.counts.repaired += repaired;
    const extract::Hash128 hash =
        options_.dedup ? extract::hash128(std::string_view(result.bytes).substr(begin))
                       : extract::Hash128{};
    result.bytes += options_.nul ? '\0' : '\n';
    result.entries.push_back({result.bytes.size(), hash});
  }

 private:
  /// A string stays a string and a list a list: the bracket of the raw value distinguishes a
  /// one-item list from a string.
  bool write_value(const stream::Document& document, size_t key, std::string& out) {
    const std::vector<std::string_view>& texts = document.texts[key];
    const bool list = document.lists[key];
    bool repaired = false;
    if (list && !options_.nul) out += '[';
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string_view text = texts[i];
      if (cleans_) {
        text_.assign(text);
        repaired |= extract::clean(clean_, text_, scratch_);
        text = text_;
      }
      if (counts_) characters_ += extract::count_characters(text);
      if (options_.nul) {
        if (i > 0) out += '\n';
        out += text;
      } else {
        if (i > 0) out += ',';
        append_string(text, out);
      }
    }
    if (list && !options_.nul) out += ']';
    return repaired;
  }

  void append_string(std::string_view text, std::string& out) const {
    if (spelling_ == stream::Spelling::characters) return extract::append_json_string(text, out);
    out += '"';
    out += text;
    out += '"';
  }

  const Options& options_;
  const extract::CleanOptions clean_;
  const bool cleans_;
  const bool counts_;  ///< characters
  const stream::Spelling spelling_;
  std::string text_;
  std::string scratch_;
  int64_t characters_ = 0;
};

/// The serial stage: duplicates, writing, counts.
class Writer {
 public:
  explicit Writer(const Options& options)
      : dedup_(options.dedup), output_(options.output.text_output(options.output.existing())) {}

  void take(const Extracted& result) {
    counts.unwanted += result.counts.unwanted;
    counts.too_short += result.counts.too_short;
    counts.too_long += result.counts.too_long;
    counts.repaired += result.counts.repaired;
    if (!dedup_) {
      counts.out += static_cast<int64_t>(result.entries.size());
      output_.write(result.bytes);
      return;
    }
    size_t begin = 0;
    for (const Extracted::Entry& entry : result.entries) {
      if (seen_.insert(entry.hash)) {
        ++counts.out;
        output_.write(std::string_view(result.bytes).substr(begin, entry.end - begin));
      } else {
        ++counts.duplicates;
      }
      begin = entry.end;
    }
  }

  void prepare() { output_.prepare(); }
  void finish() { output_.finish(); }
  int64_t table_bytes() const { return dedup_ ? seen_.bytes() : 0; }

  Counts counts;

 private:
  bool dedup_;
  extract::TextOutput output_;
  extract::HashSet seen_;
};

std::string closing_line(const Counts& counts, const stream::ErrorPolicy& policy) {
  std::string line = cli::concat(cli::counted(policy.documents(), "document"),
                                 " in = ", cli::with_commas(counts.out), " out + ",
                                 cli::with_commas(counts.filtered()), " filtered + ",
                                 cli::with_commas(policy.skipped()), " rejected");
  std::vector<std::string> details;
  const auto detail = [&](int64_t count, std::string_view what) {
    if (count > 0) details.push_back(cli::concat(cli::with_commas(count), " ", what));
  };
  detail(counts.unwanted, "by --where");
  detail(counts.too_short, "too short");
  detail(counts.too_long, "too long");
  detail(counts.duplicates, counts.duplicates == 1 ? "duplicate" : "duplicates");
  detail(counts.repaired, "with mojibake repaired");
  return details.empty() ? line : cli::concat(line, " (", cli::join(details, ", "), ")");
}

int extract_json(Options& options, cli::Invocation& call) {
  if (options.nul && options.reading.keys.size() != 1) {
    throw cli::UsageError(
        cli::concat("-0 writes one key's text, --json-keys names ", options.reading.keys.size()));
  }
  if (options.dedup && !options.reading.range.whole()) {
    throw cli::UsageError("--dedup sees only this --range: duplicates in other ranges would stay");
  }
  std::optional<stream::Condition> condition;
  if (!options.where.empty()) {
    if (format_of(options.reading) != stream::Format::json)
      throw cli::UsageError(cli::concat("--where reads the fields of JSON, --input-format is ",
                                        options.reading.format));
    condition.emplace(options.where);
  }
  std::string& output = options.output.path;
  output = cli::output_path(output);
  const bool streams = cli::is_stream(output);
  options.output.refuse_terminal(options.nul);
  const bool named = !options.policy.quarantine.empty();
  if (options.policy.on_error == "quarantine" && !named) {
    if (streams)
      throw cli::UsageError(
          "--on-error quarantine needs --quarantine FILE when the output is standard output, a "
          "pipe or a device");
    options.policy.quarantine = output + ".quarantine";
  }
  std::vector<std::string> inputs = stream::inputs_of(options.reading, call.parsed);
  cli::refuse_input_as_output("--output", output, inputs);
  cli::refuse_input_as_output("--quarantine", options.policy.quarantine, inputs);
  if (options.policy.on_error == "quarantine")
    cli::refuse_open_output("--quarantine", options.policy.quarantine, output);
  if (streams) {  // who reads it waits for what is opened; nobody shall wait in vain.
    for (const std::string& input : inputs)
      if (input != "-" && ::access(input.c_str(), R_OK) != 0)
        throw std::system_error(errno, std::generic_category(), input);
  }
  // A run that was killed while renaming may have renamed the quarantine already.
  const bool killed = !streams && !options.output.force && indexed::left_unfinished(output);
  const indexed::Existing existing = killed ? indexed::Existing::same : options.output.existing();
  const bool keeps = options.policy.on_error == "quarantine";
  extract::Quarantine quarantine({.path = keeps ? options.policy.quarantine : "",
                                  .named = named,
                                  .existing = existing,
                                  .format = options.reading.format});
  stream::ErrorPolicy policy(options.policy, call.console, [&](std::string_view piece, bool ends) {
    quarantine.keep(piece, ends);
  });
  const int64_t threads = stream::threads_for(options.output.workers);
  std::vector<Extractor> workers(static_cast<size_t>(threads), Extractor(options));
  Writer writer(options);
  stream::read_documents<Extracted>(
      {.options = options.reading,
       .inputs = std::move(inputs),
       .threads = threads,
       .policy = policy,
       .console = call.console,
       .spelling = workers[0].spelling(),
       .condition = std::move(condition)},
      {.begin =
           [](Extracted& result, int64_t) {
             result.bytes.clear();
             result.entries.clear();
             result.counts = {};
           },
       .each = [&](Extracted& result, const stream::Document& document,
                   int64_t thread) { workers[static_cast<size_t>(thread)].take(document, result); },
       .sink = [&](const stream::Work<Extracted>& work,
                   const std::string&) { writer.take(work.result); }});
  writer.prepare();
  {
    const indexed::NamingSection section;
    quarantine.finish();
    writer.finish();
    quarantine.remove_earlier(call.console);
  }
  call.console.note(closing_line(writer.counts, policy));
  if (options.dedup) {
    call.console.log(cli::concat("the table of seen texts took ",
                                 cli::readable_bytes(static_cast<double>(writer.table_bytes()))));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {
      .name = "json-extract",
      .summary = "JSON lines to loose JSON or NUL-ended text with the named keys, cleaned",
      .operands = "[FILE...]",
      .at_signal = indexed::remove_temporaries,
      .at_fault = indexed::describe_fault,
      .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, extract_json);
}
