// What a run needs from the tokenizer that its flags name: how many ids there are, which one ends a
// document. Not here: which files make which tokenizer (tools/tokenizer). May include: libtok,
// tools/tokenizer, config/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "trainer/checkpoint/layout.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// The content of a file. Errors: std::system_error.
std::string read_text_file(const std::string& path);

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
/// cli::UsageError if neither gives enough for what is needed; as tokenizer::open().
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
