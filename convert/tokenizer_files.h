// SPDX-License-Identifier: MIT
// The text side of a Hugging Face folder: its tokenizer's files, copied byte for byte from a folder
// that has them or made from Megatron's --vocab-file and --merge-file, so that AutoTokenizer gives
// the ids that the model was trained on; and the ids of bos, eos and pad for configs. Not here: the
// meaning of these files (libtok).
// Source: docs/format/hf-folder.5.md; tokenizers' tokenizer.json as GPT-2's own is written.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convert/set_aside.h"
#include "libindexed/output_file.h"
#include "libtok/loaders.h"

namespace indexed {
class OutputFile;
}

namespace convert {

/// The folder among a tokenizer's files.
inline constexpr const char* kTemplatesFolder = "additional_chat_templates";

/// One file to be written; `name` may have a folder in front.
struct TokenizerFile {
  std::string name;
  std::string text;
};

/// A tokenizer's files, and the values that a config needs.
struct TokenizerFiles {
  std::vector<TokenizerFile> files;  ///< empty: there is no tokenizer
  /// The source model's config.json and generation_config.json. They are stored with the tokenizer
  /// in a checkpoint, so that an export from it has the source's ids. An exported folder gets only
  /// the second; its config.json is generated.
  std::vector<TokenizerFile> model_files = {};
  /// bos_token_id, eos_token_id and pad_token_id for config.json: each a number, a list or null. A
  /// missing key is not written, and means the model class's default.
  nlohmann::ordered_json ids = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  bool copied = false;     ///< byte for byte, from a folder of Hugging Face's form
  int64_t vocab_size = 0;  ///< highest id plus one; 0 if unknown
  std::string place;       ///< where they come from, for messages
  std::string note = {};   ///< why transformers may give other ids with them; else empty
};

/// From a GPT-2 style vocabulary (a JSON object) and merges (one pair per line). `max_length` is
/// the model's longest sequence.
/// Errors: std::system_error; indexed::FormatError for a file that is not one, ids that repeat, a
/// merge whose parts or result are not in the vocabulary.
TokenizerFiles tokenizer_from_vocab(const std::string& vocab_file, const std::string& merge_file,
                                    int64_t max_length);

/// From a tokenizer.json without files beside it, whatever its name.
/// Errors: std::system_error; indexed::FormatError for a file that is not one.
TokenizerFiles tokenizer_from_json(const std::string& path, int64_t max_length);

/// From a SentencePiece model: itself, and a tokenizer_config.json that names transformers'
/// LlamaTokenizer. Errors: std::system_error; indexed::FormatError for a file that is not one.
TokenizerFiles tokenizer_from_sentencepiece(const std::string& path, int64_t max_length);

/// From a folder with tokenizer.json, with vocab.json and merges.txt, or with a config.json and
/// files of any other tokenizer: every tokenizer file is copied. If there is only a vocabulary, the
/// other files that AutoTokenizer needs are generated. A config.json alone gives its ids.
/// Errors: as above; indexed::FormatError when the folder has none of them.
TokenizerFiles tokenizer_from_folder(const std::string& folder, int64_t max_length);

/// The ids at which transformers' generate stops: eos_token_id, a number or a list, of the folder's
/// generation_config.json, or where that is not there or names none, of its config.json. Nothing if
/// neither names one. Errors: std::system_error; indexed::FormatError for a value of another kind.
std::optional<std::vector<int64_t>> ends_of_text(const std::string& folder);

/// Whether tokenizer_from_folder accepts `folder`.
bool has_tokenizer(const std::string& folder);

/// A tokenizer on its way into the folder beside a checkpoint that is not complete yet.
class TokenizerBeside {
 public:
  /// Writes both kinds of files below `.tokenizer.tmp` beside `folder`, which is unchanged, as
  /// temporary files, which go however this process ends. `replace`: take_names() may remove files.
  /// Errors: std::system_error. What may not be replaced is the caller's matter (target_root.h).
  TokenizerBeside(const TokenizerFiles& tokenizer, std::string folder, bool replace);
  /// Removes what has no name in the folder yet.
  ~TokenizerBeside();
  TokenizerBeside(const TokenizerBeside&) = delete;
  TokenizerBeside& operator=(const TokenizerBeside&) = delete;

  /// Moves the files into the folder, creating it. With `replace` a link in its place, or in that
  /// of kTemplatesFolder, and existing files of both kinds are set aside first, so that none of
  /// another model is left, and what a link leads to stays.
  /// Errors: std::system_error; `old` then gives all names back.
  void take_names(SetAside& old);

 private:
  std::vector<std::unique_ptr<indexed::OutputFile>> files_;
  std::string folder_, unfinished_;
  std::vector<indexed::RemoveOnSignal> folders_;  ///< Those below unfinished_, and it.
  bool replace_;
};

/// The folder "tokenizer" that a conversion left in the root of a checkpoint; `path` is the root or
/// any part of it. Empty where there is none.
std::string folder_beside_checkpoint(const std::string& path);

/// Whether transformers reads and writes a tokenizer's file of exactly this name, which is another
/// model's in a folder that is written again.
bool has_tokenizer_name(const std::string& name);

/// Whether a file of this name is copied with a tokenizer: has_tokenizer_name(), or a file of a
/// tokenizer's own code (tokenization_*.py, *.tiktoken), which only its tokenizer_config.json makes
/// transformers read, and which elsewhere may be anybody's.
bool is_tokenizer_file(const std::string& name);

/// Names of the tokenizer files in `folder`, sorted; templates of additional_chat_templates too.
/// Errors: std::system_error.
std::vector<std::string> tokenizer_file_names(const std::string& folder);

/// Reads files of `folder` for libtok. Errors of a call: std::system_error.
tok::ReadFile folder_reader(const std::string& folder);

}  // namespace convert
