// SPDX-License-Identifier: MIT
// Room: tools/dataset. The tokenizer that a command line names, to show a dataset's ids as text.
// Not here: which files make which tokenizer (tools/tokenizer).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "libindexed/dataset.h"
#include "libtok/tokenizer.h"
#include "tools/dataset/sample_flags.h"
#include "tools/tokenizer/open_tokenizer.h"

namespace dataset {

/// The tokenizer of `flags`; none if they name none, or NullTokenizer. The last note names flags
/// that do not matter for text, which the names of a run's caches depend on.
/// `tiktoken_encoding` says what a .tiktoken file is; empty: its name does.
/// Errors: as tokenizer::open().
tokenizer::Opened load_tokenizer(const SampleFlags& flags, const std::string& tiktoken_encoding);

/// A message if the manifest beside `data` says that its tokens are of another tokenizer; else, and
/// without a manifest of its own, empty. Errors: none.
std::string other_tokenizer_note(const tokenizer::Opened& opened,
                                 const indexed::IndexedDataset& data);

/// Tokens as `tokenizer` decodes them, each id that it lacks as "<id 1000000>", after which a text
/// begins anew (decode_rules); as ids with blanks between them if it is null.
std::string shown_text(const tok::Tokenizer* tokenizer, std::span<const int64_t> ids);

}  // namespace dataset
