// SPDX-License-Identifier: MIT
// wiki-extract: a MediaWiki export to loose JSON, one line per page. Flags are WikiExtractor's
// where it has them. Here: the flag rows, the options struct, main. The work is in tools/wiki/.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/output_path.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/wiki/extraction.h"

namespace {

struct Options {
  std::string input;
  std::string output = "text";
  int64_t file_bytes = 1 << 20;
  stream::Range range;
  bool compress = false;
  bool json = true;
  bool force = false;
  bool lists = false;
  bool sections = true;
  bool links = false;
  bool html_safe = false;
  std::string math = "placeholder";
  std::string templates;
  bool no_templates = false;
  bool templates_only = false;
  std::string namespaces = "0";
  bool redirects = false;
  int64_t min_text_length = 0;
  bool discard_empty = false;
  int64_t max_page_bytes = 16 << 20;
  std::string on_error = "stop";
  int64_t workers = std::max<int64_t>(1, std::thread::hardware_concurrency());
};

// A flag of WikiExtractor that cannot be honoured.
cli::Flag<Options> refused(std::string_view name, char letter, cli::Arity arity,
                           const char* reason) {
  return {
      .name = name,
      .letter = letter,
      .value = arity == cli::Arity::none ? std::string_view() : "VALUE",
      .help = reason,
      .field = {arity, [reason](Options&, const cli::Values&) { throw cli::UsageError(reason); },
                nullptr}};
}

const cli::Table<Options>& flags() {
  using O = Options;
  static const cli::Table<O> table = {
      {"Input and output",
       {{.name = "output",
         .letter = 'o',
         .value = "DIR",
         .help = "Write AA/wiki_00, AA/wiki_01, ... into DIR; - is standard output.",
         .field = cli::text(&O::output)},
        {.name = "bytes",
         .letter = 'b',
         .value = "SIZE",
         .help = "Begin a new file before one grows past SIZE; 0 writes each page to its own file.",
         .field = cli::size(&O::file_bytes)},
        {.name = "compress",
         .letter = 'c',
         .help = "Compress the files with bzip2.",
         .field = cli::on(&O::compress)},
        {.name = "range",
         .value = "K/N",
         .help =
             "Read the pages that begin in part K of N equal parts of the dump's bytes. Parts 1 "
             "to N together are the whole, for any N. Needs a plain or a bzip2 file.",
         .field = stream::range_field(&O::range)},
        {.name = "force",
         .help = "Replace an earlier run's files, and remove those that this run does not make.",
         .field = cli::on(&O::force)},
        {.name = "json",
         .help = "Write loose JSON. The output always is; the flag is WikiExtractor's.",
         .field = cli::on(&O::json)}}},
      {"Pages",
       {{.name = "namespaces",
         .aliases = "ns",
         .value = "N,N...",
         .help = "Keep pages of these namespaces. Numbers: only these; names: in addition to the "
                 "articles, as in WikiExtractor.",
         .field = cli::text(&O::namespaces)},
        {.name = "redirects",
         .help = "Keep redirects, with empty texts, as WikiExtractor does.",
         .field = cli::on(&O::redirects)},
        {.name = "min_text_length",
         .aliases = "min-text-length",
         .value = "N",
         .help = "Leave out pages whose text has fewer than N characters.",
         .field = cli::integer(&O::min_text_length)},
        {.name = "discard_empty",
         .aliases = "discard-empty",
         .help = "Leave out pages without text.",
         .field = cli::on(&O::discard_empty)},
        {.name = "max-page-bytes",
         .value = "SIZE",
         .help = "Reject pages whose XML is longer than SIZE.",
         .field = cli::size(&O::max_page_bytes, 1 << 10, 1 << 30)},
        {.name = "on-error",
         .value = "WHAT",
         .help = "What to do with a page that cannot be used: stop the run, or skip and count it.",
         .field = cli::choice(&O::on_error, {"stop", "skip"})}}},
      {"Text",
       {{.name = "links",
         .letter = 'l',
         .help = "Keep links as <a href=\"...\">.",
         .field = cli::on(&O::links)},
        {.name = "lists",
         .help = "Keep list items, one per line, after \"- \".",
         .field = cli::on(&O::lists)},
        {.name = "sections",
         .letter = 's',
         .help = "Keep the titles of sections. This is the default.",
         .field = cli::on(&O::sections)},
        {.name = "no-sections",
         .help = "Leave out the titles of sections.",
         .field = cli::off(&O::sections)},
        {.name = "math",
         .value = "HOW",
         .help = "Formulas: a placeholder (formula_1), their source, or nothing.",
         .field = cli::choice(&O::math, {"placeholder", "source", "drop"})},
        {.name = "html-safe",
         .help = "Escape &, < and > in the text.",
         .field = cli::on(&O::html_safe)},
        {.name = "templates",
         .value = "FILE",
         .help = "Expand templates from FILE, which is made in a first pass over the dump if it "
                 "does not "
                 "exist.",
         .field = cli::text(&O::templates)},
        {.name = "templates-only",
         .help = "Make the FILE of --templates and stop.",
         .field = cli::on(&O::templates_only)},
        {.name = "no-templates",
         .help = "Remove templates. This is the default; it overrides --templates.",
         .field = cli::on(&O::no_templates)}}},
      {"Work",
       {{.name = "processes",
         .aliases = "workers",
         .value = "N",
         .help = "Threads. The output does not depend on it.",
         .field = cli::integer(&O::workers, 1, 1024)},
        {.name = "debug",
         .aliases = "debug_map_reduce",
         .help = "Nothing; WikiExtractor's.",
         .field = cli::no_effect<O>(cli::Arity::none, "--verbose prints what there is to log")}}},
      {"Refused, where WikiExtractor has them",
       {refused("html", 0, cli::Arity::none, "only text is written; --links keeps links"),
        refused("text", 0, cli::Arity::none, "only JSON lines are written"),
        refused("article", 'a', cli::Arity::none,
                "give an export of one page as the dump, and -o -"),
        refused("revision", 0, cli::Arity::none, "revid is always written"),
        refused("keep_tables", 0, cli::Arity::none, "tables are always removed"),
        refused("filter_disambig_pages", 0, cli::Arity::none,
                "pages are not selected by their templates"),
        refused("filter_category", 0, cli::Arity::one,
                "pages are not selected by their categories"),
        refused("ignored_tags", 0, cli::Arity::one,
                "the list of tags that show their content is fixed"),
        refused("discard_elements", 0, cli::Arity::one,
                "the list of tags that are removed with their content is fixed"),
        refused("log_file", 0, cli::Arity::one, "messages go to standard error")}}};
  return table;
}

// "0,10" or "w,Help": only numbered namespaces are kept; named ones in addition to the articles.
void parse_namespaces(const std::string& text, wiki::ExtractOptions& work) {
  constexpr int64_t kHighest = 1 << 20;
  work.namespaces.clear();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word(wiki::trim(text.substr(begin, end - begin)));
    begin = end + 1;
    if (word.empty()) throw cli::UsageError("--namespaces: an empty name");
    if (word.find_first_not_of("0123456789-") == std::string::npos) {
      try {
        work.namespaces.push_back(cli::parse_integer(word, -2, kHighest));
      } catch (const cli::UsageError& error) {
        throw cli::UsageError(cli::concat("--namespaces: ", cli::quote(word), ": ", error.what()));
      }
    } else {
      work.namespace_names.push_back(word);
    }
  }
  if (!work.namespace_names.empty()) work.namespaces.push_back(0);
}

// Refuses outputs that are read. How many files there will be is not known: every one that exists
// in the folder is looked at.
void refuse_inputs(const Options& options, const std::string& dump) {
  namespace fs = std::filesystem;
  if (options.templates_only) {
    cli::refuse_input_as_output("--templates", options.templates, {dump});
    return;
  }
  if (options.output == "-") {
    cli::refuse_input_as_output("--output", options.output, {dump, options.templates});
    return;
  }
  const auto refuse = [&](const fs::path& file) {
    cli::refuse_input_as_output("--output", file.string(), {dump, options.templates});
  };
  std::error_code none;
  refuse(fs::path(options.output) / wiki::PageFiles::kUnfinished);
  for (const auto& folder : fs::directory_iterator(options.output, none)) {
    const std::string name = folder.path().filename().string();
    if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos) continue;
    for (const auto& file : fs::directory_iterator(folder, none))
      if (file.path().filename().string().starts_with("wiki_")) refuse(file.path());
  }
}

int extract(Options& options, cli::Invocation& call) {
  const std::vector<std::string>& operands = call.parsed.operands;
  if (operands.size() > 1) throw cli::UsageError("more than one input: " + cli::quote(operands[1]));
  wiki::ExtractOptions work;
  work.input = operands.empty() ? "-" : operands[0];
  if (work.input == "-" && isatty(STDIN_FILENO) != 0)
    throw cli::UsageError("no input: name a dump, or pipe one in");
  if (options.no_templates && !options.templates_only) options.templates.clear();
  if (!options.output.empty()) options.output = cli::output_path(options.output);
  refuse_inputs(options, work.input);
  work.clean.lists = options.lists;
  work.clean.sections = options.sections;
  work.clean.links = options.links;
  work.clean.html_safe = options.html_safe;
  work.clean.math = options.math == "source" ? wiki::Math::source
                    : options.math == "drop" ? wiki::Math::drop
                                             : wiki::Math::placeholder;
  work.range = options.range;
  work.files.folder = options.output;
  work.files.file_bytes = options.file_bytes;
  work.files.compress = options.compress;
  work.files.existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse;
  parse_namespaces(options.namespaces, work);
  work.redirects = options.redirects;
  work.min_text_length = std::max<int64_t>(options.min_text_length, options.discard_empty ? 1 : 0);
  work.max_page_bytes = options.max_page_bytes;
  work.skip_defects = options.on_error == "skip";
  work.workers = options.workers;
  std::optional<wiki::TemplateStore> store;
  if (options.templates_only && options.templates.empty())
    throw cli::UsageError("--templates-only needs --templates FILE");
  if (options.templates_only) {
    wiki::collect_templates(work, options.templates, call.console);
    return 0;
  }
  wiki::PageFiles(work.files).refuse_earlier();
  if (!options.templates.empty()) {
    if (!std::filesystem::exists(options.templates)) {
      if (work.input == "-")
        throw cli::UsageError("--templates names no file, and standard input cannot be read twice");
      if (!work.range.whole())
        throw cli::UsageError(
            "--templates names no file, and a --range sees no whole dump: make it before with "
            "--templates-only");
      wiki::collect_templates(work, options.templates, call.console);
    }
    store.emplace(wiki::load_templates(options.templates));
    work.templates = &*store;
  }
  const wiki::PageCounts counts = wiki::extract(work, call.console);
  call.console.note(cli::concat(cli::counted(counts.in, "page"), " = ",
                                cli::with_commas(counts.written), " written + ",
                                cli::with_commas(counts.redirects), " redirects + ",
                                cli::with_commas(counts.other_namespaces),
                                " of other namespaces + ", cli::with_commas(counts.filtered),
                                " filtered + ", cli::with_commas(counts.rejected), " rejected"));
  return 0;
}

// WikiExtractor has a flag with one dash and two letters, one with a value that is a switch here,
// and -v alone prints its version.
std::vector<char*> wiki_extractor_words(int argc, char** argv) {
  static std::string namespaces = "--ns", version = "--version";
  std::vector<char*> words(argv, argv + argc);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-ns") words[i] = namespaces.data();
    if (word == "-v" && argc == 2) words[i] = version.data();
    if (word != "--html-safe" || i + 1 == words.size()) continue;
    const std::string value = wiki::ascii_lower(words[i + 1]);
    if (value != "true" && value != "false" && value != "1" && value != "0") continue;
    words.erase(words.begin() + static_cast<long>(i + 1));
    if (value == "false" || value == "0") words.erase(words.begin() + static_cast<long>(i--));
  }
  words.push_back(nullptr);
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {.name = "wiki-extract",
                                .summary = "a MediaWiki dump to loose JSON, one line per page",
                                .operands = "[DUMP]",
                                .at_signal = indexed::remove_temporaries,
                                .at_fault = indexed::describe_fault,
                                .at_end = indexed::check_mapped_files};
  // Large allocations are returned to the system at once, whichever thread had them.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);  // smaller ones are soon needed again
  std::vector<char*> words = wiki_extractor_words(argc, argv);
  return cli::run(program, flags(), static_cast<int>(words.size()) - 1, words.data(), extract);
}
