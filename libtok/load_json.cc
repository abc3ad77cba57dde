// Shared parts of the JSON loaders: the reader that receives nlohmann-json's events.
// SPDX-License-Identifier: MIT
#include "libtok/load_json.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "libtok/byte_level.h"

namespace tok {
namespace {

using nlohmann::json;

/// More than the nesting of any tokenizer file; stops depth bombs before the parser's own limits.
constexpr size_t kMaxDepth = 64;

/// A value as shown in a message.
std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

bool has_byte_level(const json& step, size_t depth = 0) {
  if (!step.is_object() || depth > kMaxDepth) return false;
  if (step.value("type", json()) == "ByteLevel") return true;
  const json steps = step.value("pretokenizers", json());
  return steps.is_array() && std::any_of(steps.begin(), steps.end(), [&](const json& inner) {
           return has_byte_level(inner, depth + 1);
         });
}

/// The alphabet that a file's members imply; byte_level while nothing is known.
Alphabet alphabet_of(const json& tree) {
  const auto found = tree.find("pre_tokenizer");
  const bool is_text = found != tree.end() && !has_byte_level(*found);
  return is_text ? Alphabet::text : Alphabet::byte_level;
}

/// Builds a JsonFile from a parser's events. Inside the vocabulary and the merges, `inner_` counts
/// the open containers; of values that do not belong there, only the first is reported.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(size_t size, std::string_view place, VocabPlace where, std::optional<Alphabet> alphabet,
         JsonFile& out)
      : size_(size), place_(place), where_(where), alphabet_(alphabet), out_(out) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool binary(binary_t&) override { return scalar(nullptr); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (part_ != Part::vocab || inner_ > 0 || value >= uint64_t{kIdLimit}) return scalar(value);
    out_.vocab.set(key_, static_cast<int32_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (part_ != Part::merges || inner_ > 1) return scalar(std::move(value));
    if (inner_ == 1) {
      halves_.push_back(std::move(value));
      return true;
    }
    const size_t space = value.find(' ');
    if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
      complain_of_merge(value, "expected two tokens and one space");
    } else {
      const std::string_view text = value;
      add_merge(text.substr(0, space), text.substr(space + 1));
    }
    return true;
  }
  bool key(string_t& name) override {
    if (part_ == Part::tree || inner_ == 0) std::swap(key_, name);
    return true;
  }

  bool start_object(size_t) override {
    if (part_ != Part::tree) return start_inner(json::object());
    if (stack_.empty() ? where_ == VocabPlace::root : is_large_member("vocab")) {
      out_.vocab.reset(size_, alphabet());
      out_.vocab_complaint.clear();
      part_ = Part::vocab;
    }
    return start(json::object());
  }
  bool start_array(size_t) override {
    if (part_ == Part::merges && inner_ == 0) halves_.clear();
    if (part_ != Part::tree) return start_inner(json::array());
    if (is_large_member("merges")) {
      out_.merges.clear();
      out_.merges.reserve(out_.vocab.tokens.size());
      out_.merges_complaint.clear();
      merges_are_text_ = alphabet() == Alphabet::text;
      part_ = Part::merges;
    }
    return start(json::array());
  }
  bool end_object() override { return end(); }
  bool end_array() override {
    if (part_ == Part::merges && inner_ == 1) {
      if (halves_.size() == 2) {
        add_merge(halves_[0], halves_[1]);
      } else {
        complain_of_merge(halves_, "expected a string or a pair of strings");
      }
    }
    return end();
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw ParseError(place_ + ": byte " + std::to_string(byte) + ": not valid JSON");
  }

 private:
  enum class Part : uint8_t { tree, vocab, merges };

  /// Whether the value that opens is the member `name` of the root's member `model`.
  bool is_large_member(std::string_view name) const {
    return where_ == VocabPlace::model && stack_.size() == 2 && model_is_open_ && key_ == name;
  }

  bool scalar(json value) {
    if (part_ == Part::tree) {
      put(std::move(value));
    } else {
      complain(value);
    }
    return true;
  }

  /// Adds a value at the tree's current position.
  json* put(json value) {
    if (stack_.empty()) return &(out_.tree = std::move(value));
    if (stack_.back()->is_array()) return &stack_.back()->emplace_back(std::move(value));
    return &((*stack_.back())[key_] = std::move(value));
  }

  bool start(json container) {
    check_depth(stack_.size());
    if (stack_.size() == 1) model_is_open_ = key_ == "model" && stack_[0]->is_object();
    stack_.push_back(put(std::move(container)));
    return true;
  }
  bool start_inner(const json& container) {
    check_depth(stack_.size() + inner_);
    const bool pair = part_ == Part::merges && inner_ == 0 && container.is_array();
    if (!pair) complain(container);
    ++inner_;
    return true;
  }
  bool end() {
    if (part_ != Part::tree && inner_ > 0) {
      --inner_;
    } else {
      part_ = Part::tree;
      stack_.pop_back();
    }
    return true;
  }
  void check_depth(size_t depth) const {
    if (depth < kMaxDepth) return;
    throw ParseError(place_ + ": nested deeper than " + std::to_string(kMaxDepth));
  }

  void complain(const json& value) {
    if (part_ == Part::merges) {
      complain_of_merge(value, "expected a string or a pair of strings");
    } else if (out_.vocab_complaint.empty()) {
      out_.vocab_complaint = "token \"" + key_ + "\": id " + shown(value) +
                             " is not an integer in 0.." + std::to_string(kIdLimit - 1);
    }
  }
  void complain_of_merge(const json& value, const char* why) {
    if (out_.merges_complaint.empty()) {
      out_.merges_complaint = merge_place() + shown(value) + ": " + why;
    }
  }
  void add_merge(std::string_view left, std::string_view right) {
    if (!out_.merges_complaint.empty()) return;
    std::string complaint;
    if (merges_are_text_) {
      out_.merges.emplace_back(left, right);
      return;
    }
    if (append_merge(left, right, out_.merges, complaint)) return;
    out_.merges_complaint = merge_place() + complaint;
  }
  /// The alphabet as far as it is known.
  Alphabet alphabet() const { return alphabet_ ? *alphabet_ : alphabet_of(out_.tree); }
  std::string merge_place() const { return "[" + std::to_string(out_.merges.size()) + "]: "; }

  const size_t size_;
  const std::string place_;
  const VocabPlace where_;
  const std::optional<Alphabet> alphabet_;
  JsonFile& out_;
  std::vector<json*> stack_;  // containers of the tree that are open
  std::string key_;
  Part part_ = Part::tree;
  size_t inner_ = 0;
  bool model_is_open_ = false;
  bool merges_are_text_ = false;
  std::vector<std::string> halves_;
};

}  // namespace

FileVocab::Slot& FileVocab::slot_of(std::string_view bytes, bool text_only, size_t hash) noexcept {
  for (size_t at = hash;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.number == 0) return slot;
    if (slot.hash != static_cast<uint32_t>(hash >> 32)) continue;
    const VocabSource::Token& token = tokens[slot.number - 1];
    if (token.bytes == bytes && token.text_only == text_only) return slot;
  }
}

void FileVocab::resize_slots(size_t size) {
  slots_.assign(size, Slot());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t hash = std::hash<std::string_view>()(tokens[i].bytes);
    slot_of(tokens[i].bytes, tokens[i].text_only, hash) = {static_cast<uint32_t>(hash >> 32),
                                                           static_cast<uint32_t>(i + 1)};
  }
}

void FileVocab::reset(size_t file_bytes, Alphabet alphabet) {
  tokens.clear();
  alphabet_ = alphabet;
  // At most as many as the largest vocabularies have: a large file may have other content.
  const size_t likely_tokens = std::min(file_bytes / 20, size_t{1} << 19);
  tokens.reserve(likely_tokens);
  resize_slots(std::bit_ceil(std::max<size_t>(16, 2 * likely_tokens)));
}

std::optional<std::string> FileVocab::bytes_of(std::string_view text) const {
  if (alphabet_ == Alphabet::text) return std::string(text);
  return bytes_of_byte_level(text);
}

void FileVocab::set(const std::string& text, int32_t id) {
  if (slots_.size() < 2 * (tokens.size() + 1)) resize_slots(2 * slots_.size());
  std::optional<std::string> bytes = bytes_of(text);
  const bool text_only = !bytes.has_value() || text.empty();
  VocabSource::Token token{text_only ? text : *std::move(bytes), id, text_only};
  const size_t hash = std::hash<std::string_view>()(token.bytes);
  Slot& slot = slot_of(token.bytes, text_only, hash);
  if (slot.number != 0) {
    tokens[slot.number - 1].id = id;
    return;
  }
  tokens.push_back(std::move(token));
  slot = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(tokens.size())};
}

int32_t FileVocab::find(std::string_view text) {
  if (slots_.empty()) return kNoId;
  const std::optional<std::string> bytes = bytes_of(text);
  const bool text_only = !bytes.has_value() || text.empty();
  const std::string_view key = text_only ? text : *bytes;
  const Slot& slot = slot_of(key, text_only, std::hash<std::string_view>()(key));
  return slot.number == 0 ? kNoId : tokens[slot.number - 1].id;
}

JsonFile read_json_file(std::string_view text, std::string_view place, VocabPlace where) {
  // Usually the member that gives the alphabet comes before the vocabulary; otherwise the file is
  // read again.
  std::optional<Alphabet> alphabet;
  if (where == VocabPlace::root) alphabet = Alphabet::byte_level;
  while (true) {
    JsonFile file;
    Reader reader(text.size(), place, where, alphabet, file);
    json::sax_parse(text, &reader);
    if (!file.tree.is_object()) throw ParseError(std::string(place) + ": not a JSON object");
    const bool says = where == VocabPlace::root || file.tree.contains("pre_tokenizer");
    const Alphabet said = says ? alphabet_of(file.tree) : Alphabet::text;
    if (alphabet || file.vocab.tokens.empty() || file.vocab.alphabet() == said) return file;
    alphabet = said;
  }
}

bool append_merge(std::string_view left, std::string_view right,
                  std::vector<std::pair<std::string, std::string>>& merges,
                  std::string& complaint) {
  std::optional<std::string> halves[2] = {bytes_of_byte_level(left), bytes_of_byte_level(right)};
  for (int i = 0; i < 2; ++i) {
    if (halves[i].has_value()) continue;
    complaint = "\"" + std::string(i == 0 ? left : right) +
                "\": a character outside the byte-level alphabet";
    return false;
  }
  merges.emplace_back(*std::move(halves[0]), *std::move(halves[1]));
  return true;
}

int32_t LoadingTokenizer::add(AddedToken token) {
  const auto [place, fresh] = added_index.try_emplace(token.content, added.size());
  if (!fresh) {
    AddedToken& same = added[place->second];
    token.id = same.id;
    same = std::move(token);
    return same.id;
  }
  if (next_id == kNoId) {
    next_id = std::max(static_cast<int32_t>(file.vocab.tokens.size()), largest_added + 1);
  }
  token.id = file.vocab.find(token.content);
  if (token.id == kNoId) token.id = next_id++;
  largest_added = std::max(largest_added, token.id);
  added.push_back(std::move(token));
  return added.back().id;
}

/// Replaces each U+2581 by a blank. A token that already has a blank then occurs in no text.
static void put_blanks_for_marks(VocabSource& vocab) {
  const auto replace = [](std::string& text) {
    if (has_blank_mark(text)) text = marks_to_blanks(text);
  };
  for (VocabSource::Token& token : vocab.tokens) {
    token.text_only = token.text_only || token.bytes.find(' ') != std::string::npos;
    if (!token.text_only) replace(token.bytes);
  }
  std::erase_if(vocab.merges, [](const auto& merge) {
    return (merge.first + merge.second).find(' ') != std::string::npos;
  });
  for (auto& [left, right] : vocab.merges) {
    replace(left);
    replace(right);
  }
}

int32_t LoadingTokenizer::find(const std::string& content) {
  const auto found = added_index.find(content);
  return found != added_index.end() ? added[found->second].id : file.vocab.find(content);
}

TokenizerSource LoadingTokenizer::finish() && {
  std::stable_partition(added.begin(), added.end(),
                        [](const AddedToken& token) { return token.special; });
  source.added_tokens = std::move(added);
  source.vocab.tokens = std::move(file.vocab.tokens);
  if (source.has_blanks_for_marks()) put_blanks_for_marks(source.vocab);
  return std::move(source);
}

}  // namespace tok
