// SPDX-License-Identifier: MIT
// The text side of a Hugging Face folder: vocab.json, merges.txt, tokenizer.json and the two small
// files beside them, copied from a folder that has them or made from Megatron's --vocab-file and
// --merge-file, so that AutoTokenizer gives the ids that the model was trained on. Tokenizing is
// libtok's.
// Source: docs/format/hf-folder.5.md; tokenizers' tokenizer.json as GPT-2's own is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convert {

/// One file to be written.
struct TokenizerFile {
  std::string name;
  std::string text;
};

/// A tokenizer's files and what a config needs to know of them.
struct TokenizerFiles {
  std::vector<TokenizerFile> files;    ///< empty: there is no tokenizer
  int64_t vocab_size = 0;              ///< highest id plus one; 0 without a tokenizer
  std::optional<int64_t> end_of_text;  ///< id of <|endoftext|> or the folder's eos token
  std::string place;                   ///< where they come from, for messages
};

/// From a GPT-2 style vocabulary (a JSON object) and merges (a pair a line). `max_length` is the
/// model's longest sequence.
/// Errors: std::system_error; indexed::FormatError for a file that is not one, ids that repeat, a
/// merge whose parts or result are not in the vocabulary.
TokenizerFiles tokenizer_from_vocab(const std::string& vocab_file, const std::string& merge_file,
                                    int64_t max_length);

/// From a folder with tokenizer.json, or with vocab.json and merges.txt; its files are copied.
/// Errors: as above; indexed::FormatError when the folder has neither.
TokenizerFiles tokenizer_from_folder(const std::string& folder, int64_t max_length);

}  // namespace convert
