// SentencePiece's .model files: the few fields of their protocol-buffer messages that determine
// ids. This file has its own reader of the format, which is smaller than a library would be: two
// kinds of numbers, and byte strings. Not here: how texts are normalised (sentencepiece.h).
// Source: sentencepiece 0.2: sentencepiece_model.proto, bpe_model.cc; protobuf's encoding.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <unordered_set>

#include "libtok/load_sentencepiece.h"
#include "libtok/loaders.h"
#include "libtok/unicode.h"

namespace tok {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw ParseError("SentencePiece model: " + place + ": " + why);
}

/// Iterates over the fields of one message.
class Message {
 public:
  Message(std::string_view bytes, const char* name) : rest_(bytes), name_(name) {}

  /// Advances to the next field; false at the end. Errors: ParseError for bytes that are not a
  /// field.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    number_ = key >> 3;
    value_ = 0;
    bytes_ = {};
    switch (key & 7) {
      case 0:
        value_ = varint();
        return true;
      case 1:
        take(8);
        return true;
      case 2:
        bytes_ = take(varint());
        return true;
      case 5: {
        uint32_t bits;
        std::memcpy(&bits, take(4).data(), sizeof bits);
        value_ = bits;
        return true;
      }
      default:
        refuse(name_, "not a protocol buffer: a field of kind " + std::to_string(key & 7));
    }
  }

  uint64_t number() const { return number_; }
  uint64_t value() const { return value_; }
  bool flag() const { return value_ != 0; }
  float real() const { return std::bit_cast<float>(static_cast<uint32_t>(value_)); }
  std::string_view bytes() const { return bytes_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
    refuse(name_, "it ends in the midst of a number");
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      refuse(name_, "it says " + std::to_string(size) + " bytes where " +
                        std::to_string(rest_.size()) + " are left");
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const char* name_;
  uint64_t number_ = 0;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

Piece read_piece(std::string_view bytes, size_t number) {
  Piece piece;
  for (Message message(bytes, "piece"); message.next();) {
    if (message.number() == 1) piece.text = message.bytes();
    if (message.number() == 2) piece.score = message.real();
    if (message.number() == 3) piece.type = message.value();
  }
  const std::string place = "piece " + std::to_string(number);
  if (piece.text.empty()) refuse(place, "it is empty");
  if (find_invalid_utf8(piece.text) != piece.text.size()) refuse(place, "it is not UTF-8");
  if (!std::isfinite(piece.score)) refuse(place, "its score is no number");
  if (piece.type < 1 || piece.type > 6) {
    refuse(place, "type " + std::to_string(piece.type) + ": expected 1 to 6");
  }
  if (piece.is(PieceType::unused)) refuse(place, "type UNUSED is not supported");
  return piece;
}

void read_trainer_spec(std::string_view bytes, SentencePieceModel& model) {
  for (Message message(bytes, "trainer_spec"); message.next();) {
    switch (message.number()) {
      case 3:
        model.type = message.value();
        break;
      case 24:
        model.blank_behind = message.flag();
        break;
      case 35:
        model.byte_fallback = message.flag();
        break;
      case 41:
        model.bos_id = static_cast<int32_t>(message.value());
        break;
      case 42:
        model.eos_id = static_cast<int32_t>(message.value());
        break;
      case 44:
        model.unk_surface = message.bytes();
        break;
      case 45:
        model.unk = message.bytes();
        break;
      case 46:
        model.bos = message.bytes();
        break;
      case 47:
        model.eos = message.bytes();
        break;
      case 48:
        model.pad = message.bytes();
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(std::string_view bytes, SentencePieceModel& model) {
  for (Message message(bytes, "normalizer_spec"); message.next();) {
    if (message.number() == 2 && !message.bytes().empty()) {
      model.rules.charsmap = Charsmap(message.bytes());
    }
    if (message.number() == 3) model.rules.add_dummy_prefix = message.flag();
    if (message.number() == 4) model.rules.remove_extra_whitespaces = message.flag();
    if (message.number() == 5) model.escapes_blanks = message.flag();
  }
}

void check_kind(const SentencePieceModel& model) {
  constexpr const char* kTypes[] = {"", "UNIGRAM", "BPE", "WORD", "CHAR"};
  if (model.type != 2) {
    const std::string type =
        model.type < std::size(kTypes) ? kTypes[model.type] : std::to_string(model.type);
    refuse("trainer_spec.model_type", type + ": only BPE is supported");
  }
  if (model.pieces.empty()) refuse("pieces", "there are none");
  if (model.pieces.size() >= static_cast<size_t>(kIdLimit)) refuse("pieces", "too many");
  if (model.blank_behind) {
    refuse("trainer_spec.treat_whitespace_as_suffix", "true: not supported");
  }
  if (!model.escapes_blanks) refuse("normalizer_spec.escape_whitespaces", "false: not supported");
}

/// Whether all characters of a piece are known symbols, which merging starts from.
bool has_characters(std::string_view text, const std::unordered_set<std::string_view>& known) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = decode(text, at).length;
    if (!known.contains(text.substr(at, size))) return false;
    at += size;
  }
  return true;
}

/// Refuses what sentencepiece would refuse, and pieces that sentencepiece would merge differently
/// from this library.
void check_pieces(const SentencePieceModel& model) {
  std::unordered_set<std::string_view> mergeable, all;
  for (const Piece& piece : model.pieces) {
    const std::string place = "piece \"" + std::string(piece.text) + "\"";
    if (!all.insert(piece.text).second) refuse(place, "listed twice");
    if (piece.is(PieceType::normal) || piece.is(PieceType::user_defined)) {
      mergeable.insert(piece.text);
    } else if (decode(piece.text, 0).length == piece.text.size()) {
      refuse(place, "a character that is not of type NORMAL or USER_DEFINED is not supported");
    }
    if (piece.is(PieceType::byte) && !model.byte_fallback) {
      refuse(place, "type BYTE, but trainer_spec.byte_fallback is false");
    }
  }
  for (const Piece& piece : model.pieces) {
    if (!piece.is(PieceType::normal) || has_characters(piece.text, mergeable)) continue;
    refuse("piece \"" + std::string(piece.text) + "\"", "one of its characters is no piece");
  }
}

/// Ranks by score: the highest score merges first, equal ones from left to right.
std::vector<uint32_t> ranks_of(const std::vector<Piece>& pieces) {
  std::vector<float> scores;
  for (const Piece& piece : pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const Piece& piece : pieces) {
    const auto place =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(place - scores.begin()));
  }
  return ranks;
}

/// The byte of "<0x0A>"; -1 for other texts.
int byte_of_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  const bool good = high != std::string_view::npos && low != std::string_view::npos;
  return good ? static_cast<int>(high * 16 + low) : -1;
}

void add_piece(const Piece& piece, int32_t id, TokenizerSource& source) {
  VocabSource& vocab = source.vocab;
  const std::string text(piece.text);
  // A text's only blanks are replaced U+2581s, so such a piece never occurs.
  const bool merges = piece.is(PieceType::normal) && text.find(' ') == std::string::npos;
  vocab.tokens.push_back({merges ? marks_to_blanks(text) : text, id, !merges});
  if (piece.is(PieceType::control)) {
    source.added_tokens.push_back({.content = text, .id = id, .special = true});
  } else if (piece.is(PieceType::user_defined)) {
    // sentencepiece searches for it in the text with U+2581 in place of blanks.
    if (text.find(' ') == std::string::npos) {
      source.added_tokens.push_back({.content = text, .id = id, .normalized = true});
    }
    source.sentencepiece->user_defined.add(text);
  } else if (piece.is(PieceType::unknown)) {
    if (source.decode_rules.unk_id != kNoId) refuse("piece \"" + text + "\"", "a second UNKNOWN");
    source.decode_rules.unk_id = id;
  } else if (piece.is(PieceType::byte)) {
    const int byte = byte_of_piece(text);
    if (byte < 0) refuse("piece \"" + text + "\"", "type BYTE, but not of the form <0x0A>");
    vocab.byte_fallback.resize(256, kNoId);
    vocab.byte_fallback[static_cast<size_t>(byte)] = id;
  }
}

void set_unknown(const SentencePieceModel& model, TokenizerSource& source) {
  VocabSource& vocab = source.vocab;
  if (source.decode_rules.unk_id == kNoId) refuse("pieces", "none is of type UNKNOWN");
  const auto lacks_byte = [&] {
    return vocab.byte_fallback.empty() ||
           std::find(vocab.byte_fallback.begin(), vocab.byte_fallback.end(), kNoId) !=
               vocab.byte_fallback.end();
  };
  if (!model.byte_fallback) {
    vocab.unk_id = source.decode_rules.unk_id;
    vocab.fuse_unk = true;
  } else if (lacks_byte()) {
    refuse("trainer_spec.byte_fallback", "true, but there are not 256 pieces of type BYTE");
  }
}

/// Adds each of Megatron's tokens, with the id of an equal piece, or the next free one. Its wrapper
/// looks only for these and for bos, eos and pad in a text; other control symbols stay text there.
void add_megatron_tokens(TokenizerSource& source) {
  const std::vector<VocabSource::Token>& pieces = source.vocab.tokens;
  auto next = static_cast<int32_t>(pieces.size());
  const bool has_eos = source.eos_id != kNoId;
  std::vector<int32_t> parsed = {source.bos_id, source.eos_id, source.pad_id};
  const auto add = [&](const std::string& content) {
    const auto same = [&](const auto& token) { return token.bytes == content; };
    const auto piece = std::find_if(pieces.begin(), pieces.end(), same);
    const int32_t id = piece == pieces.end() ? next++ : piece->id;
    const auto has_id = [&](const AddedToken& token) { return token.id == id; };
    std::erase_if(source.added_tokens, has_id);
    source.added_tokens.push_back({.content = content, .id = id, .special = true});
    parsed.push_back(id);
    return id;
  };
  for (const char* content : {"<CLS>", "<SEP>", "<EOD>", "<MASK>"}) {
    const int32_t id = add(content);
    if (content == std::string_view("<EOD>")) source.eos_id = id;
  }
  if (source.pad_id == kNoId) source.pad_id = add("<PAD>");
  if (source.bos_id == kNoId) source.bos_id = add("<BOS>");
  if (!has_eos) add("<EOS>");
  const auto is_text = [&](const AddedToken& token) {
    return token.special && std::find(parsed.begin(), parsed.end(), token.id) == parsed.end();
  };
  for (const AddedToken& token : source.added_tokens) {
    if (is_text(token)) source.decode_rules.hidden_ids.push_back(token.id);
  }
  std::erase_if(source.added_tokens, is_text);
}

LeadingBlank leading_blank(const SentencePieceRules& rules) {
  if (rules.remove_extra_whitespaces) return LeadingBlank::strip_prefixes;
  return rules.add_dummy_prefix ? LeadingBlank::strip_prefix : LeadingBlank::keep;
}

}  // namespace

bool is_sentencepiece(std::string_view bytes) noexcept {
  // The file begins with its first piece as a field, that message with its text; the piece's score
  // or type follows, or nothing. A JSON text may begin with the same line ends.
  constexpr char kText = '\n', kScore = 0x15, kType = 0x18;
  const auto take_text_field = [](std::string_view& rest) -> std::optional<std::string_view> {
    if (!rest.starts_with(kText)) return std::nullopt;
    size_t size = 0, at = 1;
    for (int shift = 0; shift < 32 && at < rest.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest[at++]);
      size |= size_t{byte & 127u} << shift;
      if (byte >= 128) continue;
      if (size == 0 || size > rest.size() - at) return std::nullopt;
      const std::string_view value = rest.substr(at, size);
      rest.remove_prefix(at + size);
      return value;
    }
    return std::nullopt;
  };
  std::optional<std::string_view> piece = take_text_field(bytes);
  return piece && take_text_field(*piece) &&
         (piece->empty() || piece->front() == kScore || piece->front() == kType);
}

SentencePieceModel read_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  for (Message message(bytes, "file"); message.next();) {
    if (message.number() == 1) {
      model.pieces.push_back(read_piece(message.bytes(), model.pieces.size()));
    }
    if (message.number() == 2) read_trainer_spec(message.bytes(), model);
    if (message.number() == 3) read_normalizer_spec(message.bytes(), model);
    if (message.number() == 5) {
      for (Message spec(message.bytes(), "denormalizer_spec"); spec.next();) {
        if (spec.number() == 2 && !spec.bytes().empty()) model.denormalizes = true;
      }
    }
  }
  return model;
}

void check_sentencepiece_bpe(const SentencePieceModel& model) {
  check_kind(model);
  check_pieces(model);
}

std::vector<std::string> read_sentencepiece_pieces(std::string_view bytes) {
  std::vector<std::string> pieces;
  for (const Piece& piece : read_sentencepiece_model(bytes).pieces) pieces.emplace_back(piece.text);
  return pieces;
}

TokenizerSource read_tokenizer_file(std::string_view bytes, const RankListOptions& options) {
  if (is_sentencepiece(bytes)) return read_sentencepiece(bytes);
  if (is_rank_list(bytes)) return read_rank_list(bytes, options);
  return read_tokenizer_json(bytes);
}

TokenizerSource read_sentencepiece(std::string_view bytes, const SentencePieceOptions& options) {
  SentencePieceModel model = read_sentencepiece_model(bytes);
  check_sentencepiece_bpe(model);
  TokenizerSource source;
  source.vocab.rank_rule = RankRule::by_rank;
  source.vocab.by_characters = true;
  source.vocab.ranks = ranks_of(model.pieces);
  source.sentencepiece = std::move(model.rules);
  int32_t id = 0;
  for (const Piece& piece : model.pieces) {
    add_piece(piece, id, source);
    if (piece.is(PieceType::control) && piece.text == model.bos) source.bos_id = id;
    if (piece.is(PieceType::control) && piece.text == model.eos) source.eos_id = id;
    if (piece.is(PieceType::control) && piece.text == model.pad) source.pad_id = id;
    ++id;
  }
  if (options.megatron_tokens) add_megatron_tokens(source);
  std::stable_partition(source.added_tokens.begin(), source.added_tokens.end(),
                        [](const AddedToken& token) { return token.special; });
  set_unknown(model, source);
  if (source.bos_id != kNoId) source.prefix_ids = {source.bos_id};
  source.decode_rules.leading = leading_blank(*source.sentencepiece);
  source.decode_rules.hides_special = true;
  source.decode_rules.unk_text = model.unk_surface;
  if (model.denormalizes) {
    source.notes.push_back("the model has a denormalizer, which decoding leaves out");
  }
  return source;
}

}  // namespace tok
