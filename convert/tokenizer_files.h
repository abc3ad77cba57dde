// SPDX-License-Identifier: MIT
// The text side of a Hugging Face folder: its tokenizer's files, copied byte for byte from a folder
// that has them or made from Megatron's --vocab-file and --merge-file, so that AutoTokenizer gives
// the ids that the model was trained on; and the ids of bos, eos and pad that configs state. What
// such files mean is libtok's.
// Source: docs/format/hf-folder.5.md; tokenizers' tokenizer.json as GPT-2's own is written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace convert {

/// One file to be written. A name may lead into a folder.
struct TokenizerFile {
  std::string name;
  std::string text;
};

/// A tokenizer's files and what a config needs to know of them.
struct TokenizerFiles {
  std::vector<TokenizerFile> files;  ///< empty: there is no tokenizer
  /// config.json and generation_config.json of the model whose folder this is. They go with the
  /// tokenizer into a checkpoint, so that the way back states the source's ids; a model written
  /// here has its own config.json.
  std::vector<TokenizerFile> model_files = {};
  /// What config.json is to say of bos_token_id, eos_token_id and pad_token_id, as there: a number,
  /// a list or null. A key that is missing is not written, and means the class's default.
  nlohmann::ordered_json ids = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  bool copied = false;     ///< byte for byte, from a folder of Hugging Face's form
  int64_t vocab_size = 0;  ///< highest id plus one; 0 where it is not known
  std::string place;       ///< where they come from, for messages
};

/// From a GPT-2 style vocabulary (a JSON object) and merges (a pair a line). `max_length` is the
/// model's longest sequence.
/// Errors: std::system_error; indexed::FormatError for a file that is not one, ids that repeat, a
/// merge whose parts or result are not in the vocabulary.
TokenizerFiles tokenizer_from_vocab(const std::string& vocab_file, const std::string& merge_file,
                                    int64_t max_length);

/// From a tokenizer.json that stands alone, under whatever name.
/// Errors: std::system_error; indexed::FormatError for a file that is not one.
TokenizerFiles tokenizer_from_json(const std::string& path, int64_t max_length);

/// From a folder with tokenizer.json, vocab.json and merges.txt, or files of another tokenizer
/// beside a config.json: every one of its tokenizer's files is copied. Where nothing but a
/// vocabulary stands there, what AutoTokenizer needs beside it is made. A folder with a config.json
/// alone gives its ids.
/// Errors: as above; indexed::FormatError when the folder has none of them.
TokenizerFiles tokenizer_from_folder(const std::string& folder, int64_t max_length);

/// Whether tokenizer_from_folder takes `folder`.
bool has_tokenizer(const std::string& folder);

/// Writes both kinds of files into `folder`, creating it.
/// Errors: std::system_error.
void write_beside_checkpoint(const TokenizerFiles& tokenizer, const std::string& folder);

/// The folder that a conversion left beside a checkpoint, whose root or any part is `path`: ROOT's
/// "tokenizer". Empty where there is none.
std::string folder_beside_checkpoint(const std::string& path);

/// Whether a file of this name belongs to a tokenizer.
bool is_tokenizer_file(const std::string& name);

}  // namespace convert
