// The tokenizer that flags or a folder of tokenizer files give, and what a run needs from it. May
// include: libtok, config/. Files are read here, since libtok reads none.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libtok/tokenizer.h"
#include "trainer/checkpoint/layout.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// The content of a file. Errors: std::system_error.
std::string read_text_file(const std::string& path);

/// Files of a tokenizer; empty ones are not named.
struct TokenizerFiles {
  std::string vocab_file = {};  ///< vocab.json, tokenizer.json or NAME.tiktoken.
  std::string merge_file = {};  ///< merges.txt, with vocab.json.
  /// tokenizer.json, a SentencePiece model, tekken.json, TikTokenizer's list, or a folder.
  std::string tokenizer_model = {};
  std::string type = {};                   ///< --tokenizer-type.
  std::optional<int64_t> vocab_size = {};  ///< --vocab-size, which cuts TikTokenizer's list.
};

/// Loads it; nothing if no file is named. Errors: std::system_error; tok::ParseError;
/// cli::UsageError for files that do not match.
std::optional<tok::Tokenizer> load_tokenizer(const TokenizerFiles& files);

/// The flags that name it, for people.
std::string flags_of(const TokenizerFiles& files);

/// Ids and the end of a document.
struct Vocabulary {
  int64_t vocab_size = 0;  ///< before padding.
  int64_t eod_id = -1;     ///< -1: not known.
  std::string note = {};   ///< a message for the user; may be empty.
  /// tok::Tokenizer::identity(); empty without a tokenizer, or where its files do not say all.
  std::string identity = {};
  std::string files = {};  ///< the tokenizer's, by flags, for people.
  /// Ends the message about the first id above them: what it may mean; may be empty.
  std::string one_above = {};
};

/// From --vocab-size and --eod-id, or the tokenizer that is named. With the tokenizer's type, too,
/// --vocab-size does not count, as in Megatron, and --patch-tokenizer-type counts as in Pai; but
/// where the checkpoint's arguments are taken, its number counts. NullTokenizer with --vocab-size
/// opens no tokenizer. An unsupported one that came with the checkpoint is not an error, since
/// training reads ids and the checkpoint says how many there are: `note` names it. Errors:
/// cli::UsageError if neither gives enough for what is needed; as load_tokenizer.
Vocabulary find_vocabulary(const TrainConfig& config);

/// A message if the checkpoint `path` has another tokenizer than `own`: by the hash in `meta`, else
/// by the folder "tokenizer" beside it. Empty if they are the same or one is not known. Only a
/// message: tokenizers of different identities may give equal ids.
std::string other_tokenizer_note(const std::string& path, const CheckpointMeta& meta,
                                 const Vocabulary& own);

/// Copies the folder "tokenizer" beside the checkpoint `from` (ROOT/iter_0000000), which a
/// conversion left in ROOT, to the root folder of --save: the trained model is then exported with
/// its original tokenizer files and ids. Does nothing if ROOT has none, --save has one, or the run
/// names another folder "tokenizer". Errors: std::system_error.
void carry_tokenizer(const std::string& from, const TrainConfig& config);

}  // namespace trainer
