// SPDX-License-Identifier: MIT
// Room: tools/dataset. The tokenizer that a command line names, to show a dataset's ids as text.
#pragma once

#include <memory>
#include <string>

#include "libtok/tokenizer.h"
#include "tools/dataset/sample_flags.h"

namespace dataset {

/// The tokenizer of `flags`: --vocab-file with --merge-file, or --tokenizer-model; null if they
/// name none. `tiktoken_encoding` says what a .tiktoken file is.
/// Errors: std::system_error, tok::ParseError.
std::unique_ptr<tok::Tokenizer> load_tokenizer(const SampleFlags& flags,
                                               const std::string& tiktoken_encoding);

}  // namespace dataset
