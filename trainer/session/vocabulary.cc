// See vocabulary.h. What each flag counts is Megatron's, and Pai-Megatron-Patch's with its type.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "tools/tokenizer/open_tokenizer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/named_tokenizer.h"
#include "trainer/config/pai_tokenizer.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using cli::concat;
using cli::UsageError;

}  // namespace

std::string read_text_file(const std::string& path) { return indexed::read_file(path); }

namespace {

tokenizer::Flags named_flags(const TrainConfig& config) {
  tokenizer::Flags flags = {.type = config.tokenizer_type,
                            .patch_type = config.patch_tokenizer_type,
                            .model = config.tokenizer_model,
                            .vocab_file = config.vocab_file,
                            .merge_file = config.merge_file,
                            .vocab_size = config.vocab_size,
                            .special_tokens = config.tokenizer_special_tokens,
                            .tiktoken_pattern = config.tiktoken_pattern,
                            .tiktoken_num_special_tokens = config.tiktoken_num_special_tokens,
                            .tiktoken_special_tokens = config.tiktoken_special_tokens};
  // Pai-Megatron-Patch's types read --load's.
  if (!flags.patch_type.empty() && tokenizer::shown(flags).empty())
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model"})
      if (fs::exists(fs::path(config.load) / file)) flags.model = config.load;
  return flags;
}

// Adds a sentence to the message for the user.
void add_note(Vocabulary& vocabulary, const std::string& sentence) {
  vocabulary.note += concat(vocabulary.note.empty() ? "" : "; ", sentence);
}

// The named tokenizer. None for an unsupported one that came with the checkpoint: then `vocabulary`
// gets the end-of-document id from its files, and a note.
tokenizer::Opened open_named(const TrainConfig& config, Vocabulary& vocabulary) {
  try {
    tokenizer::Opened opened = tokenizer::open(named_flags(config));
    for (const std::string& note : opened.notes) add_note(vocabulary, note);
    std::erase(opened.idle, "--vocab-size");  // count_tokens() says what becomes of it.
    if (!opened.idle.empty())
      add_note(vocabulary, concat("no effect here: ", cli::join(opened.idle, ", ")));
    vocabulary.eod_id = opened.eod.value_or(-1);
    return opened;
  } catch (const tok::ParseError& error) {
    if (!config.use_checkpoint_args || !config.vocab_size) throw;
    if (fs::is_directory(config.tokenizer_model))
      vocabulary.eod_id =
          tok::read_folder_ids(tokenizer::folder_reader(config.tokenizer_model)).eod;
    add_note(vocabulary, concat(error.what(), "; training reads ids, and the checkpoint has ",
                                *config.vocab_size, " of them"));
    return {};
  }
}

// The identity of the tokenizer in a folder; empty if there is none that can be read.
std::string identity_in(const std::string& folder) {
  try {
    if (fs::is_directory(folder)) return tokenizer::open({.model = folder}).identity;
  } catch (const std::exception&) {  // whoever uses it is told.
  }
  return {};
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
  // A type's class counts its own tokens and does not read the flag: all but TikTokenizer's list,
  // which has it already.
  const std::string& type = pai ? config.patch_tokenizer_type : config.tokenizer_type;
  if (!type.empty()) {
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
  Vocabulary vocabulary;
  const PaiTokenizer* pai = find_pai_tokenizer(config);
  const tokenizer::Opened opened = open_named(config, vocabulary);
  const std::optional<tok::Tokenizer>& tokenizer = opened.tokenizer;
  if (tokenizer) {
    vocabulary.vocab_size = count_tokens(config, *tokenizer, pai, vocabulary);
    vocabulary.identity = opened.identity;
    vocabulary.files = tokenizer::shown(named_flags(config));
  } else if (config.vocab_size) {
    const bool checkpoints = config.use_checkpoint_args || !pai;
    vocabulary.vocab_size =
        checkpoints ? *config.vocab_size : pai->tokens(*config.vocab_size, *config.vocab_size);
    if (opened.identity == "NullTokenizer") {
      add_note(vocabulary, tokenizer::null_note(*config.vocab_size));
      vocabulary.one_above =
          concat("; before megatron-core 0.18, NullTokenizer has it, too: give --vocab-size ",
                 *config.vocab_size + 1);
    }
  } else {
    throw UsageError(
        pai ? concat("--tokenizer-model is missing: the folder of the tokenizer, which "
                     "Pai-Megatron-Patch takes from --load for --patch-tokenizer-type ",
                     pai->name)
            : "--vocab-file is missing (or --tokenizer-model, or --vocab-size)");
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
    place = tokenizer::shown({.type = stored("tokenizer-type"),
                              .model = stored("tokenizer-model"),
                              .vocab_file = stored("vocab-file"),
                              .merge_file = stored("merge-file")});
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
