// SPDX-License-Identifier: MIT
// Room: tools/dataset. The tokenizer that a command line names, to show a dataset's ids as text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "libindexed/dataset.h"
#include "libtok/tokenizer.h"
#include "tools/dataset/sample_flags.h"

namespace dataset {

/// A tokenizer that shows ids as text; and the flags of its command line that do not matter for
/// that, which the names of a run's caches depend on: "--tiktoken-pattern, --vocab-size".
struct ShownTokenizer {
  std::unique_ptr<tok::Tokenizer> tokenizer = {};
  std::string idle = {};
  std::string identity = {};  ///< tok::Tokenizer::identity(); empty where its files do not say all
};

/// The tokenizer of `flags`: --tokenizer-model, or --vocab-file with --merge-file, or --vocab-file
/// alone, which is then a tokenizer.json; also a folder. Null if they name none, or NullTokenizer.
/// `tiktoken_encoding` says what a .tiktoken file is; empty: its name does.
/// Errors: std::system_error; tok::ParseError; cli::UsageError for flags that name two tokenizers,
/// half of one, or what this one has no use for.
ShownTokenizer load_tokenizer(const SampleFlags& flags, const std::string& tiktoken_encoding);

/// A message if the manifest beside `data` says that its tokens are of another tokenizer; else, and
/// without a manifest of its own, empty. Errors: none.
std::string other_tokenizer_note(const ShownTokenizer& shown, const indexed::IndexedDataset& data);

/// Tokens as `tokenizer` decodes them, each id that it lacks as "<id 1000000>", after which a text
/// begins anew (decode_rules); as ids with blanks between them if it is null.
std::string shown_text(const tok::Tokenizer* tokenizer, std::span<const int64_t> ids);

}  // namespace dataset
