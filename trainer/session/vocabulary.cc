// See vocabulary.h. A file's reader is chosen by its name, then by its partner file; libtok checks
// the contents.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/named_tokenizer.h"
#include "trainer/config/pai_tokenizer.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using cli::concat;
using cli::UsageError;

// The files of a folder, for libtok.
tok::ReadFile reader_of(const fs::path& folder) {
  return [folder](std::string_view name) -> std::optional<std::string> {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path)) return std::nullopt;
    return read_text_file(path.string());
  };
}

tok::Tokenizer from_folder(const fs::path& folder) {
  const auto there = [&](const char* name) { return fs::exists(folder / name); };
  if (!there("tokenizer.json") && !(there("vocab.json") && there("merges.txt")) &&
      !there("tokenizer.model") && !there("tekken.json")) {
    throw UsageError(concat(folder.string(),
                            ": no tokenizer.json there, nor vocab.json with merges.txt, nor "
                            "tokenizer.model, nor tekken.json"));
  }
  try {
    return tok::Tokenizer::from_folder(reader_of(folder));
  } catch (const tok::ParseError& error) {
    const std::string text = error.what();
    const size_t colon = text.find(':');
    const bool names_file =
        colon != std::string::npos && fs::exists(folder / text.substr(0, colon));
    throw tok::ParseError(concat(folder.string(), names_file ? "/" : ": ", text));
  }
}

// Whether the pair is in a folder whose configuration is used too. With a type the two files are
// read alone, as by bpe-tokenize.
bool is_folders_pair(const TokenizerFiles& files) {
  const fs::path vocab(files.vocab_file), merges(files.merge_file);
  return files.type.empty() && vocab.filename() == "vocab.json" &&
         merges.filename() == "merges.txt" && vocab.parent_path() == merges.parent_path() &&
         fs::exists(vocab.parent_path() / "tokenizer_config.json");
}

fs::path parent_of(const std::string& file) {
  const fs::path parent = fs::path(file).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

std::string read_text_file(const std::string& path) { return indexed::read_file(path); }

namespace {

// Returns the result of `make`, or rethrows its error with the name that the user gave the file.
template <class Make>
tok::Tokenizer named(const std::string& vocab, const std::string& merges, Make make) {
  try {
    return make();
  } catch (const tok::ParseError& error) {
    std::string text = error.what();
    for (const auto& [general, path] : {std::pair(std::string("vocab.json:"), vocab),
                                        std::pair(std::string("tokenizer.json:"), vocab),
                                        std::pair(std::string("merges.txt:"), merges)}) {
      if (text.starts_with(general))
        throw tok::ParseError(concat(path, ":", text.substr(general.size())));
    }
    throw tok::ParseError(concat(vocab, ": ", text));
  }
}

// TikTokenizer's list does not say how texts are cut; what training asks of it does not depend on
// that.
tok::Tokenizer from_rank_list(const std::string& path, const std::string& text,
                              const TokenizerFiles& files) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (text[begin] == '[' && files.type != "TikTokenizer") {
    throw UsageError(concat(path,
                            ": a list of tokens for TikTokenizer does not say how texts are "
                            "cut: name a tekken.json or tokenizer.json"));
  }
  tok::RankListOptions options;
  if (files.vocab_size) options.vocab_size = *files.vocab_size;
  return named(path, "", [&] { return tok::Tokenizer::from_rank_list(text, options); });
}

// `alone`: whatever lies beside the file does not count.
tok::Tokenizer from_json(const std::string& path, bool alone, const TokenizerFiles& files) {
  if (!alone && fs::path(path).filename() == "tokenizer.json" && fs::exists(path))
    return from_folder(parent_of(path));
  const std::string text = read_text_file(path);
  if (text.starts_with("\x1f\x8b"))
    throw tok::ParseError(concat(path, ": packed by gzip; unpack it, the file itself is read"));
  if (path.ends_with(".tiktoken")) {
    return named(path, "", [&] {
      return tok::Tokenizer::from_tiktoken(text, fs::path(path).stem().string());
    });
  }
  if (tok::is_rank_list(text)) return from_rank_list(path, text, files);
  if (tok::is_sentencepiece(text)) {
    const tok::SentencePieceOptions added{.megatron_tokens =
                                              files.type == "SentencePieceTokenizer"};
    return named(path, "", [&] { return tok::Tokenizer::from_sentencepiece(text, added); });
  }
  return named(path, "", [&] { return tok::Tokenizer::from_tokenizer_json(text); });
}

}  // namespace

std::string flags_of(const TokenizerFiles& files) {
  if (files.tokenizer_model.empty() && files.vocab_file.empty()) return "";
  if (!files.tokenizer_model.empty()) return concat("--tokenizer-model ", files.tokenizer_model);
  return concat("--vocab-file ", files.vocab_file, files.merge_file.empty() ? "" : " --merge-file ",
                files.merge_file);
}

std::optional<tok::Tokenizer> load_tokenizer(const TokenizerFiles& files) {
  if (!files.tokenizer_model.empty()) {
    if (!fs::exists(files.tokenizer_model)) {
      throw UsageError(concat("--tokenizer-model ", files.tokenizer_model,
                              ": no such file or folder (nothing is downloaded: give a "
                              "tokenizer.json, a .model, or a folder that holds one)"));
    }
    if (fs::is_directory(files.tokenizer_model)) return from_folder(files.tokenizer_model);
    return from_json(files.tokenizer_model, false, files);
  }
  if (files.vocab_file.empty()) {
    if (!files.merge_file.empty()) throw UsageError("--merge-file needs --vocab-file");
    return std::nullopt;
  }
  const std::string name = fs::path(files.vocab_file).filename().string();
  if (!files.merge_file.empty() && !name.ends_with(".tiktoken")) {
    if (is_folders_pair(files)) return from_folder(parent_of(files.vocab_file));
    const std::string vocab = read_text_file(files.vocab_file);
    const std::string merges = read_text_file(files.merge_file);
    return named(files.vocab_file, files.merge_file,
                 [&] { return tok::Tokenizer::from_gpt2(vocab, merges); });
  }
  if (name.ends_with("vocab.json"))
    throw UsageError(concat("--vocab-file ", files.vocab_file, " needs --merge-file"));
  return from_json(files.vocab_file, files.type == "HFTokenizer", files);  // as bpe-tokenize
}

namespace {

// Adds a sentence to the message for the user.
void add_note(Vocabulary& vocabulary, const std::string& sentence) {
  vocabulary.note += concat(vocabulary.note.empty() ? "" : "; ", sentence);
}

// The named tokenizer. Nothing for an unsupported one that came with the checkpoint: then
// `vocabulary` gets the end-of-document id from its files, and a note.
std::optional<tok::Tokenizer> named_tokenizer(const TrainConfig& config, Vocabulary& vocabulary) {
  if (config.tokenizer_type == "NullTokenizer" && config.vocab_size) return std::nullopt;
  try {
    return load_tokenizer({config.vocab_file, config.merge_file, config.tokenizer_model,
                           config.tokenizer_type, config.vocab_size});
  } catch (const tok::ParseError& error) {
    if (!config.use_checkpoint_args || !config.vocab_size) throw;
    if (fs::is_directory(config.tokenizer_model))
      vocabulary.eod_id = tok::read_folder_ids(reader_of(config.tokenizer_model)).eod;
    add_note(vocabulary, concat(error.what(), "; training reads ids, and the checkpoint has ",
                                *config.vocab_size, " of them"));
    return std::nullopt;
  }
}

// A message about the files that are named and not opened, because another flag wins.
std::string idle_files(const TrainConfig& config) {
  const bool null = config.tokenizer_type == "NullTokenizer" && config.vocab_size;
  const bool model = !null && !config.tokenizer_model.empty();
  const bool alone = model || null || config.vocab_file.ends_with(".tiktoken");
  std::string idle;
  for (const auto& [unused, flag, file] :
       {std::tuple{null || model, "--vocab-file ", &config.vocab_file},
        {alone, "--merge-file ", &config.merge_file},
        {null, "--tokenizer-model ", &config.tokenizer_model}}) {
    if (unused && !file->empty()) idle += concat(idle.empty() ? "" : ", ", flag, *file);
  }
  if (idle.empty()) return idle;
  return concat(idle, ": no effect beside ",
                null    ? "--tokenizer-type NullTokenizer"
                : model ? "--tokenizer-model"
                        : "a .tiktoken file");
}

// The identity of the tokenizer in a folder; empty if there is none that can be read.
std::string identity_in(const std::string& folder) {
  try {
    if (fs::is_directory(folder)) return from_folder(folder).identity();
  } catch (const std::exception&) {  // whoever uses it is told.
  }
  return {};
}

// The type whose class counts its own tokens and does not read --vocab-size: every type of Megatron
// and Pai-Megatron-Patch but TikTokenizer. (NullTokenizer has no tokens to count.)
std::string_view counting_type(const TrainConfig& config) {
  if (!config.patch_tokenizer_type.empty()) return config.patch_tokenizer_type;
  const bool reads = config.tokenizer_type == "TikTokenizer";
  return reads ? std::string_view() : std::string_view(config.tokenizer_type);
}

// How many tokens there are before --extra-vocab-size: --vocab-size, or the tokenizer's.
int64_t count_tokens(const TrainConfig& config, const tok::Tokenizer& tokenizer,
                     const PaiTokenizer* pai, Vocabulary& vocabulary) {
  const int64_t all = std::max<int64_t>(tokenizer.vocab_size(), tokenizer.id_limit());
  const int64_t own = pai ? pai->tokens(tokenizer.base_vocab_size(), all) : all;
  if (!config.vocab_size) return own;
  const int64_t asked = *config.vocab_size;
  if (config.use_checkpoint_args) {
    if (asked < all)
      add_note(vocabulary,
               concat("the tokenizer has ", all, " tokens, the checkpoint's vocabulary ", asked,
                      ": the others must not occur"));
    return asked;
  }
  if (const std::string_view type = counting_type(config); !type.empty()) {
    if (asked != own)
      add_note(vocabulary,
               concat("--vocab-size ", asked, " changes nothing: ", type, " has ", own, " tokens"));
    return own;
  }
  if (asked < all)
    throw UsageError(concat("--vocab-size ", asked, " is less than the tokenizer's ", all));
  if (asked > all)
    add_note(vocabulary,
             concat("--vocab-size ", asked, " counts, not the tokenizer's ", all, " tokens"));
  return asked;
}

// Adds --extra-vocab-size, where the type of tokenizer takes it.
void add_extra(const TrainConfig& config, const PaiTokenizer* pai, Vocabulary& vocabulary) {
  if (config.extra_vocab_size == 0) return;
  if (pai && !pai->extra)
    add_note(vocabulary,
             concat("--extra-vocab-size ", config.extra_vocab_size,
                    " changes nothing: Pai-Megatron-Patch does not add it to a ", pai->name));
  else
    vocabulary.vocab_size += config.extra_vocab_size;
}

// Pai leaves added tokens out of its count, and they need rows, too.
void check_rows(const TrainConfig& config, const tok::Tokenizer& tokenizer, const PaiTokenizer& pai,
                Vocabulary& vocabulary) {
  const int64_t missing = tokenizer.id_limit() - vocabulary.vocab_size;
  if (missing <= 0 || config.use_checkpoint_args) return;
  if (config.padded_vocab_size) {
    vocabulary.vocab_size += missing;
    return;
  }
  throw UsageError(concat(
      "--patch-tokenizer-type ", pai.name, ": ", vocabulary.vocab_size,
      " rows, as in Pai-Megatron-Patch, and the tokenizer has ids up to ", tokenizer.id_limit() - 1,
      ": give ",
      pai.extra ? concat("--extra-vocab-size ", config.extra_vocab_size + missing, " or more, or ")
                : "",
      "--padded-vocab-size"));
}

// What NullTokenizer counts differs between Megatron's releases.
void explain_null_tokenizer(int64_t vocab_size, Vocabulary& vocabulary) {
  add_note(vocabulary,
           concat("NullTokenizer: --vocab-size ", vocab_size, " is ids 0 to ", vocab_size - 1,
                  ", as from megatron-core 0.18 on; earlier releases add an id, so for a run of "
                  "theirs give ",
                  vocab_size + 1));
  vocabulary.one_above = concat(
      "; before megatron-core 0.18, NullTokenizer has it, too: give --vocab-size ", vocab_size + 1);
}

// Says or refuses what the id that ends documents does not allow.
void check_eod(const TrainConfig& config, bool tokenizer, Vocabulary& vocabulary) {
  if (vocabulary.eod_id >= vocabulary.vocab_size) {
    throw UsageError(concat(
        config.eod_id ? concat("--eod-id ", vocabulary.eod_id)
                      : concat(vocabulary.files, ": a document ends with id ", vocabulary.eod_id),
        ": the vocabulary has ids 0 to ", vocabulary.vocab_size - 1,
        vocabulary.eod_id == vocabulary.vocab_size ? vocabulary.one_above : std::string(),
        config.eod_id ? "" : ", is the tokenizer another model's?"));
  }
  const bool needs_eod =
      config.eod_mask_loss || config.reset_position_ids || config.reset_attention_mask;
  if (needs_eod && tokenizer && config.tokenizer_type == "SentencePieceTokenizer" &&
      !config.eod_id) {
    add_note(vocabulary, concat("documents end with <EOD> (", vocabulary.eod_id,
                                "), as in Megatron before core 0.16; since then with the model's "
                                "eos: --eod-id"));
  }
  if (needs_eod && vocabulary.eod_id < 0) {
    throw UsageError(
        "--eod-mask-loss, --reset-position-ids and --reset-attention-mask need --eod-id");
  }
}

}  // namespace

Vocabulary find_vocabulary(const TrainConfig& config) {
  Vocabulary vocabulary{.note = idle_files(config)};
  const PaiTokenizer* pai = find_pai_tokenizer(config);
  const std::optional<tok::Tokenizer> tokenizer = named_tokenizer(config, vocabulary);
  if (tokenizer) {
    vocabulary.vocab_size = count_tokens(config, *tokenizer, pai, vocabulary);
    vocabulary.eod_id = tokenizer->eod_id().value_or(-1);
    // A TikTokenizer's list does not say how texts are cut.
    if (config.tokenizer_type != "TikTokenizer") vocabulary.identity = tokenizer->identity();
    vocabulary.files = flags_of({config.vocab_file, config.merge_file, config.tokenizer_model});
  } else if (config.vocab_size) {
    const bool checkpoints = config.use_checkpoint_args || !pai;
    vocabulary.vocab_size =
        checkpoints ? *config.vocab_size : pai->tokens(*config.vocab_size, *config.vocab_size);
    if (config.tokenizer_type == "NullTokenizer")
      explain_null_tokenizer(*config.vocab_size, vocabulary);
  } else {
    throw UsageError("--vocab-file is missing (or --tokenizer-model, or --vocab-size)");
  }
  add_extra(config, pai, vocabulary);
  if (tokenizer && pai) check_rows(config, *tokenizer, *pai, vocabulary);
  if (config.eod_id) vocabulary.eod_id = *config.eod_id;
  check_eod(config, tokenizer.has_value(), vocabulary);
  return vocabulary;
}

std::string other_tokenizer_note(const std::string& path, const CheckpointMeta& meta,
                                 const Vocabulary& own) {
  if (own.identity.empty()) return {};
  std::string identity = meta.tokenizer_hash, place;
  if (identity.empty()) {
    place = tokenizer_folder(path);
    identity = identity_in(place);
  } else {
    const auto stored = [&](const char* flag) {
      const auto found = meta.config.find(flag);
      return found == meta.config.end() || found->second.empty() ? "" : found->second[0];
    };
    place = flags_of({stored("vocab-file"), stored("merge-file"), stored("tokenizer-model")});
  }
  if (identity.empty() || identity == own.identity) return {};
  return concat(path, ": its tokenizer", place.empty() ? "" : concat(" (", place, ")"),
                " differs from this run's (", own.files, "): the same ids may mean other tokens");
}

void carry_tokenizer(const std::string& from, const TrainConfig& config) {
  const fs::path source = tokenizer_folder(from);
  const fs::path to(config.save), target = to / "tokenizer";
  // A link that leads nowhere is the user's, too.
  if (!fs::is_directory(source) || fs::exists(fs::symlink_status(target))) return;
  // Where this run's own tokenizer is in another folder of that name, the carried one would be
  // taken for a copy of it: take_own_tokenizer.
  for (const std::string& used : {config.tokenizer_model, config.vocab_file}) {
    if (used.empty()) continue;
    const fs::path path = plain_path(used);
    for (const fs::path& folder : {path, path.parent_path()})
      if (folder.filename() == source.filename() && !same_folder(folder.string(), source.string()))
        return;
  }
  // Under another name until it is complete, because a later run does not check a folder of this
  // name.
  const fs::path unfinished = to / ".tokenizer.tmp";
  fs::remove_all(unfinished);
  try {
    fs::create_directories(unfinished);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
      if (!entry.is_regular_file()) continue;
      const fs::path path = unfinished / entry.path().lexically_relative(source);
      fs::create_directories(path.parent_path());
      indexed::OutputFile out(path.string(), indexed::Existing::replace);
      out.write(read_text_file(entry.path().string()));
      out.commit();
    }
    fs::rename(unfinished, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace trainer
