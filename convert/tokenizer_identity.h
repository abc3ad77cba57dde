// Whether a tokenizer's files are those of a model's training. Not here: the files themselves
// (tokenizer_files.h), what an identity depends on (libtok).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "convert/tokenizer_files.h"

namespace convert {

/// The identities (tok::Tokenizer::identity()) that programs give a tokenizer of these files: one
/// more for each --tokenizer-type that leaves out files around a vocabulary or adds tokens. Empty
/// if none can be read. Errors: none.
std::vector<std::string> identities_of(const TokenizerFiles& tokenizer);

}  // namespace convert
