// What the two JSON loaders share: one pass over a file that keeps its vocabulary and merges as
// they will be used and everything else as a tree, so that a file of megabytes loads in
// milliseconds.
// Not for users of the library: it is the only header that shows nlohmann-json.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libtok/loaders.h"
#include "libtok/vocab.h"

namespace tok {

/// How a file writes its tokens.
enum class Alphabet : uint8_t {
  byte_level,  ///< characters that stand for bytes (byte_level.h)
  text,        ///< as they are in texts
};

/// The tokens of a file in its order, each found by its text there.
class FileVocab {
 public:
  /// Gives a text an id; of equal texts the last one counts, as of any keys of a JSON object.
  void set(const std::string& text, int32_t id);

  /// Id of a text; kNoId when there is none.
  int32_t find(std::string_view text);

  /// Forgets all tokens, and makes room for those of a file of so many bytes.
  void reset(size_t file_bytes, Alphabet alphabet);

  Alphabet alphabet() const noexcept { return alphabet_; }

  std::vector<VocabSource::Token> tokens;

 private:
  /// A place in the table of tokens: half of a text's hash, so that others seldom need be read.
  struct Slot {
    uint32_t hash = 0;
    uint32_t number = 0;  ///< 1 + index in `tokens`; 0: empty
  };

  /// The bytes of a text; none where it is not in the alphabet.
  std::optional<std::string> bytes_of(std::string_view text) const;

  /// Slot of a token, or the empty one where it would be.
  Slot& slot_of(std::string_view bytes, bool text_only, size_t hash) noexcept;

  void resize_slots(size_t size);

  std::vector<Slot> slots_;  ///< at most half full
  Alphabet alphabet_ = Alphabet::byte_level;
};

/// Where in a file the vocabulary stands.
enum class VocabPlace : uint8_t {
  root,   ///< the file is the vocabulary: vocab.json
  model,  ///< members `vocab` and `merges` of `model`: tokenizer.json
};

/// A file, read. Under VocabPlace::model `tree` has an empty object and an empty array where
/// `vocab` and `merges` were. Its pre_tokenizer says what the alphabet is: without a ByteLevel step
/// tokens are text.
struct JsonFile {
  nlohmann::json tree;
  FileVocab vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  std::string vocab_complaint;   ///< what is wrong with the first bad token; empty: none is
  std::string merges_complaint;  ///< the same for merges
};

/// Reads a JSON object. Errors: ParseError "place: byte N: why"; what is wrong with tokens and
/// merges alone becomes a complaint, for the caller to raise in its turn.
JsonFile read_json_file(std::string_view text, std::string_view place, VocabPlace where);

/// Appends both halves of a merge, as bytes. False with `complaint` set for a half that is not in
/// the byte-level alphabet: such a merge can never apply, and no byte-level trainer writes one.
bool append_merge(std::string_view left, std::string_view right,
                  std::vector<std::pair<std::string, std::string>>& merges, std::string& complaint);

/// Gives an added token its id the way Hugging Face does: the vocabulary's, if it has the content,
/// else one more than the largest so far.
/// Range: `largest_added` is the largest id among added tokens so far, kNoId when there is none.
int32_t assign_added_id(FileVocab& vocab, std::string_view content, int32_t largest_added);

/// A tokenizer on its way from files to a source: its vocabulary is still searched by text, and
/// tokens may be added.
struct LoadingTokenizer {
  TokenizerSource source;  ///< without its tokens and added tokens
  JsonFile file;
  std::vector<AddedToken> added;                        ///< in the order of their addition
  std::unordered_map<std::string, size_t> added_index;  ///< of each by its content
  int32_t largest_added = kNoId;

  /// Adds a token, or gives the one that has its content the new flags. Returns its id.
  int32_t add(AddedToken token);

  /// Whether a token with this content has been added.
  bool has_added(const std::string& content) const { return added_index.contains(content); }

  /// Id of an added token, or of the vocabulary's; kNoId where neither has it.
  int32_t find(const std::string& content);

  /// The whole; special tokens come first among the added ones.
  TokenizerSource finish() &&;
};

/// All of a tokenizer.json. Errors: as read_tokenizer_json.
LoadingTokenizer load_tokenizer_json(std::string_view text);

/// Vocabulary and merges, to be cut as GPT-2 does, without any added token.
/// Errors: as read_gpt2.
LoadingTokenizer load_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                           const DoParts& do_parts);

}  // namespace tok
