// SPDX-License-Identifier: MIT
// bpe-tokenize: documents to Megatron's indexed datasets, PREFIX_KEY_document.bin and .idx, byte
// for byte what Megatron's preprocess_data.py writes with the same tokenizer, from the same command
// line.
// Here: flags, the order in which things are opened, the closing lines. The rules for a document
// are in tools/tokenize, reading in tools/stream, the format in libindexed.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <sys/resource.h>
#include <unistd.h>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/extract/quarantine.h"
#include "tools/extract/text_output.h"
#include "tools/stream/pipeline.h"
#include "tools/stream/reading.h"
#include "tools/tokenize/dataset_writer.h"
#include "tools/tokenize/encode_documents.h"
#include "tools/tokenize/megatron_flags.h"
#include "tools/tokenize/tokenizer_files.h"

namespace {

struct Options {
  stream::ReadingOptions reading;
  stream::PolicyOptions policy;
  tokenize::TokenizerOptions tokenizer;
  tokenize::EncodeRules rules;
  std::string output_prefix;
  bool nul = false;
  bool append_eod = false;
  bool split_sentences = false;
  bool keep_newlines = false;
  std::string language = "english";
  std::string empty = "no-sequence";
  std::string dtype;
  bool manifest = true;
  bool force = false;
  bool count = false;
  int64_t shard_tokens = 0;
  bool ftfy = false;
  int64_t workers = 0;
  int64_t log_interval = 1000;
};

/// Megatron's rule for two bytes a token: the vocabulary is smaller than this.
constexpr int64_t kTwoByteVocab = 65500;

/// Ids of two bytes are below this.
constexpr int64_t kTwoByteIds = 65536;

cli::Group<Options> document_group() {
  using O = Options;
  return {"Documents",
          {{.name = "null",
            .letter = '0',
            .help = "Read NUL-ended documents; short for --input-format nul.",
            .field = cli::on(&O::nul)},
           {.name = "append-eod",
            .help = "Append the end-of-document token to each document that has tokens.",
            .field = cli::on(&O::append_eod)},
           {.name = "split-sentences",
            .help = "Make each sentence a sequence, and the dataset PREFIX_KEY_sentence. Sentences "
                    "are found by ICU's rules, not NLTK's Punkt: abbreviations differ.",
            .field = cli::on(&O::split_sentences)},
           {.name = "keep-newlines",
            .help = "With --split-sentences, keep all white space: joined sentences are the text.",
            .field = cli::on(&O::keep_newlines)},
           {.name = "lang",
            .value = "NAME",
            .help = "Language of the sentences: an English name or an ICU locale.",
            .field = cli::text(&O::language)},
           {.name = "empty-documents",
            .value = "WHAT",
            .help = "What a document without tokens becomes: no sequence and a repeated document "
                    "index, as in "
                    "preprocess_data.py; one sequence, of only the eod with --append-eod, as in "
                    "preprocess_data_fast.py; "
                    "or nothing, as before June 2023.",
            .field = cli::choice(&O::empty, {"no-sequence", "one-sequence", "skip"})}}};
}

cli::Group<Options> output_group() {
  using O = Options;
  return {
      "Output",
      {{.name = "output-prefix",
        .letter = 'o',
        .value = "PREFIX",
        .help = "Write PREFIX_KEY_document.bin, .idx and .manifest for each key. Required, but "
                "with --count.",
        .field = cli::text(&O::output_prefix)},
       {.name = "count",
        .help = "Write no dataset. For each key print a line: KEY, documents, tokens, separated by "
                "tabs "
                "between.",
        .field = cli::on(&O::count)},
       {.name = "shard-tokens",
        .value = "N",
        .help =
            "Write datasets PREFIX_00000_KEY_document, PREFIX_00001_KEY_document, ... of at "
            "most N tokens: one ends before the document that would exceed N. A longer document "
            "gets one of its own. At most 1,000 in a run. Default: one dataset for each "
            "key.",
        .field = cli::integer(&O::shard_tokens, 1)},
       {.name = "dtype",
        .value = "TYPE",
        .help = "Type of a token; else uint16 for a vocabulary of fewer than 65,500 tokens and "
                "int32 for a larger one.",
        .field = cli::choice(&O::dtype, {"uint16", "int32"})},
       {.name = "no-manifest", .help = "Write no .manifest.", .field = cli::off(&O::manifest)},
       {.name = "force",
        .letter = 'f',
        .help = "Replace existing datasets.",
        .field = cli::on(&O::force)},
       {.name = "workers",
        .letter = 'w',
        .value = "N",
        .help = "Threads; 0 means one for each processor. The output does not depend on them.",
        .field = cli::integer(&O::workers, 0, 4096)},
       {.name = "log-interval",
        .value = "N",
        .help = "With -v, documents between two lines of the log.",
        .field = cli::integer(&O::log_interval, 1)},
       {.name = "ftfy",
        .help = "Refused: json-extract --repair-mojibake mends texts before this program.",
        .field = cli::on(&O::ftfy)}}};
}

const cli::Table<Options>& flags() {
  static const cli::Table<Options> table = {
      cli::lift(stream::reading_group(), &Options::reading),
      cli::lift(tokenize::tokenizer_group(), &Options::tokenizer),
      document_group(),
      output_group(),
      cli::lift(stream::policy_group(), &Options::policy),
      tokenize::compatibility_group<Options>()};
  return table;
}

/// Reports all errors of a command line that can be found without opening anything.
void check(Options& options) {
  const tokenize::TokenizerOptions& tokenizer = options.tokenizer;
  tokenize::check_tokenizer_options(tokenizer);
  const bool named = tokenizer.type == "NullTokenizer" ||
                     !(tokenizer.vocab_file + tokenizer.merge_file + tokenizer.model).empty();
  const cli::Needed needed[] = {
      {options.count || !options.output_prefix.empty(), "--output-prefix (or --count)"},
      {named, "--vocab-file with --merge-file (or --tokenizer-model with tokenizer.json)"}};
  cli::require_all(needed);
  if (options.ftfy) {
    throw cli::UsageError(
        "--ftfy: texts are not repaired here, run json-extract --repair-mojibake before");
  }
  if (options.nul) options.reading.format = "nul";
  if (format_of(options.reading) != stream::Format::json && options.reading.keys.size() != 1) {
    throw cli::UsageError(cli::concat("--input-format ", options.reading.format,
                                      " has one text a document, --json-keys names ",
                                      options.reading.keys.size()));
  }
  for (const std::string& key : options.reading.keys) {
    if (key.find('/') != std::string::npos || key.find('\0') != std::string::npos) {
      throw cli::UsageError(
          cli::concat("key ", cli::quote(key), " cannot be part of a file's name"));
    }
  }
  if (options.count && options.policy.on_error == "quarantine" &&
      options.policy.quarantine.empty()) {
    throw cli::UsageError("--on-error quarantine needs --quarantine FILE with --count");
  }
  if (options.keep_newlines && !options.split_sentences) {
    throw cli::UsageError("--keep-newlines needs --split-sentences");
  }
}

indexed::DType choose_dtype(const Options& options, const tokenize::LoadedTokenizer& tokenizer) {
  if (options.dtype == "int32") return indexed::DType::int32;
  if (options.dtype == "uint16") {
    if (tokenizer.id_limit() > kTwoByteIds) {
      throw cli::UsageError(
          cli::concat("--dtype uint16 holds ids up to 65535, this tokenizer has ids up to ",
                      tokenizer.id_limit() - 1));
    }
    return indexed::DType::uint16;
  }
  // A small vocabulary with gaps can have ids that do not fit in two bytes.
  return tokenizer.vocab_size() < kTwoByteVocab && tokenizer.id_limit() <= kTwoByteIds
             ? indexed::DType::uint16
             : indexed::DType::int32;
}

tokenize::EncodeRules make_rules(const Options& options,
                                 const tokenize::LoadedTokenizer& tokenizer) {
  if (options.append_eod && !tokenizer.eod()) {
    throw cli::UsageError(
        "--append-eod: the tokenizer names no end-of-document token, give --eod-token");
  }
  tokenize::EncodeRules rules;
  rules.append_eod = options.append_eod;
  rules.split_sentences = options.split_sentences;
  rules.keep_newlines = options.keep_newlines;
  rules.language = options.language;
  if (options.empty == "one-sequence") rules.empty = tokenize::EmptyDocument::one_sequence;
  if (options.empty == "skip") rules.empty = tokenize::EmptyDocument::skip;
  rules.dtype = choose_dtype(options, tokenizer);
  return rules;
}

indexed::Provenance make_provenance(const Options& options, const cli::Invocation& call,
                                    const tokenize::LoadedTokenizer& tokenizer) {
  const std::string configuration =
      cli::concat(tokenizer.identity(), "\n", options.append_eod, options.split_sentences,
                  options.keep_newlines, "\n", options.language, "\n", options.empty, "\n",
                  tokenizer.parses_special_tokens() ? "parse" : "text", "\n",
                  options.tokenizer.include_special_tokens, "\n", options.reading.format, "\n",
                  cli::join(options.reading.keys, "\n"));
  const extract::Hash128 hash = extract::hash128(configuration);
  indexed::Provenance provenance;
  provenance.tool = cli::concat("bpe-tokenize ", cli::version());
  provenance.command = call.arguments;
  provenance.tokenizer = tokenizer.description();
  provenance.tokenizer_hash = tokenizer.identity();
  // An eod id may be behind the vocabulary's.
  provenance.vocab_size = std::max<int64_t>(tokenizer.vocab_size(), tokenizer.id_limit());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  provenance.configuration_hash = hex;
  provenance.eod_token = options.append_eod ? *tokenizer.eod() : -1;
  return provenance;
}

/// What happened to special tokens that occur literally in the texts; empty if there are none.
std::string special_tokens_words(const tokenize::Totals& totals,
                                 const tokenize::LoadedTokenizer& tokenizer) {
  if (totals.special_tokens == 0) return {};
  return cli::concat(cli::counted(totals.special_tokens, "special token"),
                     " stood in the text and ", totals.special_tokens == 1 ? "was" : "were",
                     tokenizer.parses_special_tokens() ? " parsed" : " kept as text");
}

/// `skips`: documents without tokens are left out. Of several keys each leaves out its own, and
/// `totals` has their sum.
std::string closing_line(const tokenize::Totals& totals, const stream::ErrorPolicy& policy,
                         const std::string& special_tokens, bool skips, bool one_key) {
  const std::string empty = cli::with_commas(totals.empty);
  const bool apart = skips && one_key;
  const std::string line = cli::concat(
      cli::counted(policy.documents(), "document"),
      " in = ", cli::with_commas(totals.documents - (apart ? totals.empty : 0)), " out + ",
      apart ? cli::concat(empty, " empty + ") : std::string(), cli::with_commas(policy.skipped()),
      " rejected; ",
      apart ? std::string() : cli::concat(empty, skips ? " empty and left out; " : " empty; "),
      cli::counted(totals.tokens, "token"), " of ",
      cli::readable_bytes(static_cast<double>(totals.text_bytes)), " text");
  return special_tokens.empty() ? line : cli::concat(line, "; ", special_tokens);
}

tokenize::DatasetNames names_of(const Options& options) {
  tokenize::DatasetNames names{
      .output_prefix = options.output_prefix, .endings = {}, .shard_tokens = options.shard_tokens};
  for (const std::string& key : options.reading.keys)
    names.endings.push_back(
        cli::concat("_", key, options.split_sentences ? "_sentence" : "_document"));
  return names;
}

std::string quarantine_of(const Options& options) {
  if (options.policy.on_error != "quarantine") return {};
  if (!options.policy.quarantine.empty()) return options.policy.quarantine;
  // In a folder neither the hidden `.quarantine` nor a name that may be another file's.
  const bool folder = options.output_prefix.ends_with('/');
  return options.output_prefix + (folder ? names_of(options).endings.front() : "") + ".quarantine";
}

/// Refuses outputs that are read, as documents or as the tokenizer, and a quarantine that is the
/// file of the counts.
void refuse_inputs(const Options& options, const std::vector<std::string>& documents) {
  std::vector<std::string> inputs = cli::tokenizer_inputs(options.tokenizer.model);
  inputs.insert(inputs.end(), {options.tokenizer.vocab_file, options.tokenizer.merge_file});
  inputs.insert(inputs.end(), documents.begin(), documents.end());
  cli::refuse_input_as_output("--quarantine", quarantine_of(options), inputs);
  if (options.count) return cli::refuse_open_output("--quarantine", quarantine_of(options), "-");
  const tokenize::DatasetNames names = names_of(options);
  for (size_t key = 0; key < names.endings.size(); ++key) {
    for (int64_t shard = 0; shard < names.most_shards(); ++shard) {
      for (const char* end : {".idx", ".bin", ".manifest"})
        cli::refuse_input_as_output("--output-prefix", names.prefix(key, shard) + end, inputs);
    }
  }
}

/// What an existing quarantine may be. A run that was killed while renaming may have renamed it
/// already.
indexed::Existing existing_quarantine(const Options& options) {
  if (options.force) return indexed::Existing::replace;
  if (options.count) return indexed::Existing::refuse;
  const tokenize::DatasetNames names = names_of(options);
  for (size_t key = 0; key < names.endings.size(); ++key) {
    for (int64_t shard = 0; shard < names.most_shards(); ++shard) {
      const std::string index = names.prefix(key, shard) + ".idx";
      if (indexed::left_unfinished(index)) return indexed::Existing::same;
      if (access(index.c_str(), F_OK) != 0) break;
    }
  }
  return indexed::Existing::refuse;
}

/// Each shard of a key has three files, which stay open until all are complete.
void raise_limit_of_files() {
  constexpr rlim_t kWanted = 4 * tokenize::kMostShards;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kWanted) return;
  files.rlim_cur = std::min(files.rlim_max, kWanted);
  setrlimit(RLIMIT_NOFILE, &files);
}

/// What is read, by what.
struct Job {
  const Options& options;
  cli::Console& console;
  std::vector<std::string> inputs;
  const tokenize::LoadedTokenizer& tokenizer;
  const tokenize::EncodeRules& rules;
  stream::ErrorPolicy& policy;
};

/// Encodes all documents. `sink` takes the chunks in order; `ahead`, if set, the bytes of long
/// documents before their chunk.
void encode_all(Job& job,
                const std::function<void(const stream::Work<tokenize::EncodedChunk>&,
                                         const std::string&)>& sink,
                const std::function<void(size_t, std::span<const std::byte>)>& ahead) {
  const size_t num_keys = job.options.reading.keys.size();
  const int64_t threads = stream::threads_for(job.options.workers);
  std::vector<std::unique_ptr<tokenize::Encoder>> encoders(static_cast<size_t>(threads));
  // Constructed by the thread that uses it, so that this thread touches its tables first.
  const auto encoder = [&](int64_t thread) -> tokenize::Encoder& {
    std::unique_ptr<tokenize::Encoder>& own = encoders[static_cast<size_t>(thread)];
    if (!own) own = std::make_unique<tokenize::Encoder>(job.tokenizer, job.rules);
    return *own;
  };
  const auto clear = [&](tokenize::EncodedChunk& chunk) {
    chunk.clear(num_keys, tokenize::id_width(job.rules));
  };
  int64_t logged = 0;
  stream::read_documents<tokenize::EncodedChunk>(
      {job.options.reading, std::move(job.inputs), threads, job.policy, job.console},
      {.begin = [&](tokenize::EncodedChunk& chunk, int64_t) { clear(chunk); },
       .begin_alone =
           [&](tokenize::EncodedChunk& chunk) {
             clear(chunk);
             chunk.ahead = ahead;
           },
       .each = [&](tokenize::EncodedChunk& chunk, const stream::Document& document,
                   int64_t thread) { encoder(thread).add(document, chunk); },
       .end = [&](tokenize::EncodedChunk& chunk, int64_t thread) { encoder(thread).finish(chunk); },
       .sink =
           [&](const stream::Work<tokenize::EncodedChunk>& work, const std::string& input) {
             sink(work, input);
             if (job.policy.documents() / job.options.log_interval > logged) {
               logged = job.policy.documents() / job.options.log_interval;
               job.console.log(
                   cli::concat("processed ", cli::counted(job.policy.documents(), "document")));
             }
           }});
}

void close_run(const Job& job, const tokenize::Totals& totals) {
  const std::string special_tokens = special_tokens_words(totals, job.tokenizer);
  job.console.note(closing_line(totals, job.policy, special_tokens,
                                job.rules.empty == tokenize::EmptyDocument::skip,
                                job.options.reading.keys.size() == 1));
  // This may be a mistake in the corpus, so -q does not hide it.
  if (job.console.quiet() && !special_tokens.empty()) job.console.error(special_tokens);
}

/// --count: one line for each key on standard output.
void count_all(Job& job) {
  struct Counts {
    int64_t documents = 0;
    int64_t tokens = 0;
  };
  std::vector<Counts> keys(job.options.reading.keys.size());
  tokenize::Totals totals;
  encode_all(
      job,
      [&](const stream::Work<tokenize::EncodedChunk>& work, const std::string&) {
        for (size_t i = 0; i < keys.size(); ++i) {
          keys[i].documents += static_cast<int64_t>(work.result.keys[i].sequences.size());
          keys[i].tokens += static_cast<int64_t>(work.result.keys[i].ids.total());
        }
        totals.add(work.result);
      },
      [](size_t, std::span<const std::byte>) {});
  for (size_t i = 0; i < keys.size(); ++i) {
    cli::print_format("%s\t%lld\t%lld\n", cli::one_line(job.options.reading.keys[i]).c_str(),
                      static_cast<long long>(keys[i].documents),
                      static_cast<long long>(keys[i].tokens));
  }
  cli::finish_stdout();
  close_run(job, totals);
}

void tokenize_all(Job& job, const cli::Invocation& call, extract::Quarantine& quarantine) {
  const Options& options = job.options;
  if (options.shard_tokens > 0) raise_limit_of_files();
  tokenize::DatasetWriter writer(
      names_of(options),
      {.dtype = job.rules.dtype,
       .existing = options.force ? indexed::Existing::replace : indexed::Existing::refuse,
       .vocab_size = job.tokenizer.id_limit(),
       .manifest = options.manifest},
      make_provenance(options, call, job.tokenizer),
      job.rules.empty != tokenize::EmptyDocument::skip);
  const stream::Format format = format_of(options.reading);
  const bool lines = (format == stream::Format::json && options.reading.format != "array") ||
                     format == stream::Format::lines;
  std::function<void(size_t, std::span<const std::byte>)> ahead;
  if (options.shard_tokens == 0)
    ahead = [&](size_t key, std::span<const std::byte> bytes) { writer.take_ahead(key, bytes); };
  encode_all(
      job,
      [&](const stream::Work<tokenize::EncodedChunk>& work, const std::string& input) {
        writer.take(work.result, input, lines ? job.policy.first_line() : 0);
      },
      ahead);
  writer.prepare();
  {
    const indexed::NamingSection section;
    quarantine.finish();
    writer.give_names();
    quarantine.remove_earlier(job.console);
  }
  close_run(job, writer.totals());
  for (const tokenize::DatasetWriter::Written& one : writer.written()) {
    job.console.log(cli::concat(one.prefix, ".bin: ", cli::counted(one.tokens, "token"), " of ",
                                job.rules.dtype == indexed::DType::uint16 ? "uint16" : "int32"));
  }
}

int bpe_tokenize(Options& options, cli::Invocation& call) {
  check(options);
  std::vector<std::string> inputs = stream::inputs_of(options.reading, call.parsed);
  refuse_inputs(options, inputs);
  const tokenize::LoadedTokenizer tokenizer = tokenize::load_tokenizer(
      options.tokenizer, [&](size_t count, const std::function<void(size_t)>& part) {
        stream::run_parts(stream::threads_for(options.workers), count, part);
      });
  const tokenize::EncodeRules rules = make_rules(options, tokenizer);
  if (options.append_eod && !tokenizer.eod_note().empty()) call.console.note(tokenizer.eod_note());
  for (const std::string& note : tokenizer.notes()) call.console.note(note);
  if (options.tokenizer.pad_vocab) {
    call.console.line(tokenize::padded_vocab_line(tokenizer.vocab_size(), options.tokenizer));
  }
  extract::Quarantine quarantine({.path = quarantine_of(options),
                                  .named = !options.policy.quarantine.empty(),
                                  .existing = existing_quarantine(options),
                                  .format = options.reading.format});
  stream::ErrorPolicy policy(options.policy, call.console, [&](std::string_view piece, bool ends) {
    quarantine.keep(piece, ends);
  });
  Job job{options, call.console, std::move(inputs), tokenizer, rules, policy};
  if (options.count) {
    count_all(job);
    quarantine.finish();
    quarantine.remove_earlier(call.console);
  } else {
    tokenize_all(job, call, quarantine);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {
      .name = "bpe-tokenize",
      .summary = "documents to Megatron indexed datasets of byte-level BPE tokens",
      .operands = "[FILE...]",
      .at_signal = indexed::remove_temporaries,
      .at_fault = indexed::describe_fault,
      .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, bpe_tokenize);
}
