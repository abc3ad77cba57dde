// What the two JSON loaders share: one pass over a file that stores its vocabulary and merges in
// their final form, and everything else as a tree, so that a file of megabytes loads in
// milliseconds. Not for users of the library: it is the only header that exposes nlohmann-json.
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
  byte_level,  ///< characters that represent bytes (byte_level.h)
  text,        ///< plain text
};

/// The tokens of a file in its order; each can be found by its text in the file.
class FileVocab {
 public:
  /// Gives a text an id; of equal texts the last one counts, as with any keys of a JSON object.
  void set(const std::string& text, int32_t id);

  /// The id of a text; kNoId if it has none.
  int32_t find(std::string_view text);

  /// Removes all tokens, and reserves memory for those of a file of `file_bytes`.
  void reset(size_t file_bytes, Alphabet alphabet);

  Alphabet alphabet() const noexcept { return alphabet_; }

  std::vector<VocabSource::Token> tokens;

 private:
  /// A slot of the hash table: half of the text's hash, so that other texts are seldom compared.
  struct Slot {
    uint32_t hash = 0;
    uint32_t number = 0;  ///< 1 + index in `tokens`; 0: empty
  };

  /// The bytes of a text; none if it is not in the alphabet.
  std::optional<std::string> bytes_of(std::string_view text) const;

  /// The slot of a token, or the empty one where it would be inserted.
  Slot& slot_of(std::string_view bytes, bool text_only, size_t hash) noexcept;

  void resize_slots(size_t size);

  std::vector<Slot> slots_;  ///< at most half full
  Alphabet alphabet_ = Alphabet::byte_level;
};

/// Where the vocabulary is in a file.
enum class VocabPlace : uint8_t {
  root,   ///< the file is the vocabulary: vocab.json
  model,  ///< members `vocab` and `merges` of `model`: tokenizer.json
};

/// A file that was read. With VocabPlace::model, `tree` has an empty object and an empty array in
/// place of `vocab` and `merges`. Its pre_tokenizer decides the alphabet: without a ByteLevel step
/// tokens are text.
struct JsonFile {
  nlohmann::json tree;
  FileVocab vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  std::string vocab_complaint;   ///< what is wrong with the first bad token; empty: no bad token
  std::string merges_complaint;  ///< the same for merges
};

/// Reads a JSON object. Errors: ParseError "place: byte N: why"; errors of tokens and merges become
/// complaints instead, which the caller may throw later.
JsonFile read_json_file(std::string_view text, std::string_view place, VocabPlace where);

/// Appends both halves of a merge, as bytes. Returns false and sets `complaint` for a half that is
/// not in the byte-level alphabet: such a merge can never apply, and no byte-level trainer writes
/// one.
bool append_merge(std::string_view left, std::string_view right,
                  std::vector<std::pair<std::string, std::string>>& merges, std::string& complaint);

/// A tokenizer that is being loaded: its vocabulary can still be searched by text, and tokens may
/// be added.
struct LoadingTokenizer {
  TokenizerSource source;  ///< without its tokens and added tokens
  JsonFile file;
  std::vector<AddedToken> added;                        ///< in the order in which they were added
  std::unordered_map<std::string, size_t> added_index;  ///< index in `added` by content
  int32_t largest_added = kNoId;
  int32_t next_id = kNoId;  ///< of the next token without one; kNoId: a list begins

  /// The tokens added from here on are another list: one call of Hugging Face's add_tokens.
  void begin_list() noexcept { next_id = kNoId; }

  /// Adds a token, or updates the flags of the one with the same content. Returns its id: the
  /// vocabulary's if that has the content. Others of a list are counted from the number of tokens
  /// in the vocabulary, or from behind the largest id that was added before the list if that is
  /// more, as in tokenizers since 0.22. Until then ids of the same list counted too.
  int32_t add(AddedToken token);

  /// Whether a token with this content has been added.
  bool has_added(const std::string& content) const { return added_index.contains(content); }

  /// The id of an added token or of a token of the vocabulary; kNoId if there is neither.
  int32_t find(const std::string& content);

  /// The complete source; among the added tokens the special ones come first.
  TokenizerSource finish() &&;
};

/// All of a tokenizer.json. Errors: as read_tokenizer_json.
LoadingTokenizer load_tokenizer_json(std::string_view text);

/// Vocabulary and merges with GPT-2's splitting, without any added token.
/// Errors: as read_gpt2.
LoadingTokenizer load_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                           const ParallelFor& parallel_for);

}  // namespace tok
