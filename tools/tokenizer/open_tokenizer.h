// SPDX-License-Identifier: MIT
// Room: tools/tokenizer. Which tokenizer a command line names: Megatron's flags and the files that
// they lead to, for every program that opens one. Files are only read, packed ones too: nothing is
// downloaded. Not here: how a type's class encodes a document (tools/tokenize), how many rows a
// model has for it (trainer/session/vocabulary.h). May include libtok, tools/cli, tools/stream (for
// packed files).
// Source: the tokenizers of Megatron-LM (2023 and today's), Megatron-DeepSpeed, BigScience,
// GPT-NeoX and Pai-Megatron-Patch, which differ in wrappers, not in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libtok/tokenizer.h"

namespace tokenizer {

/// What the flags say; empty where they say nothing.
struct Flags {
  std::string type = {};                         ///< --tokenizer-type
  std::string patch_type = {};                   ///< --patch-tokenizer-type
  std::string model = {};                        ///< --tokenizer-model
  std::string vocab_file = {};                   ///< --vocab-file
  std::string merge_file = {};                   ///< --merge-file
  std::optional<int64_t> vocab_size = {};        ///< --vocab-size
  std::optional<int64_t> null_eod_id = {};       ///< --null-tokenizer-eod-id
  std::vector<std::string> special_tokens = {};  ///< --tokenizer-special-tokens
  std::string tiktoken_pattern = {};             ///< v1, v2
  std::optional<int64_t> tiktoken_num_special_tokens = {};
  std::vector<std::string> tiktoken_special_tokens = {};
  bool encodes = false;                ///< whether a list for TikTokenizer needs its pattern
  std::string tiktoken_encoding = {};  ///< what a .tiktoken file is; else its name says so
};

/// The tokenizer that they name.
struct Opened {
  std::optional<tok::Tokenizer> tokenizer = {};  ///< none for NullTokenizer, or if none is named
  /// Equal for tokenizers that give equal ids. Empty where the files do not say all of it: a list
  /// for TikTokenizer without --tiktoken-pattern.
  std::string identity = {};
  std::string files = {};           ///< "vocab.json merges.txt", for people
  std::string folder = {};          ///< that of its configuration; empty for files read alone
  std::optional<int32_t> eod = {};  ///< the id that ends a document, as the type's class finds it
  std::vector<std::string> notes = {};  ///< messages for the user
  std::vector<std::string> idle = {};   ///< given flags that say nothing of this tokenizer
};

/// The known types whose classes encode text by BPE, as libtok does, and NullTokenizer.
std::vector<std::string> encoding_types();

/// Errors: UsageError for an unknown type, and flags that contradict each other; opens nothing.
void check(const Flags& flags);

/// Opens it, by the files that count; a note names the others. Errors: as check();
/// std::system_error, stream::InputError and tok::ParseError for the files; UsageError for
/// --tiktoken-encoding beside another kind of file, and a list without the pattern that it needs.
Opened open(const Flags& flags, const tok::ParallelFor& parallel_for = tok::serial_for);

/// The flags without the files that do not count beside others: the type says which do, as in
/// Megatron. Nor does NullTokenizer beside --patch-tokenizer-type: in Pai-Megatron-Patch it is the
/// type where none is given, and is not read.
Flags counting(Flags flags);

/// The flags that name the files that count, with them, for people.
std::string shown(const Flags& flags);

/// What NullTokenizer counts, where its id that ends documents is not given: Megatron's releases
/// differ.
std::string null_note(int64_t vocab_size);

/// The files of a folder, for libtok. Errors of the result: std::system_error, stream::InputError.
tok::ReadFile folder_reader(const std::string& folder);

}  // namespace tokenizer
