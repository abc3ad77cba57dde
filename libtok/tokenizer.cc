// Tokenizer: the order of the stages, and the functions that are called rarely.
// SPDX-License-Identifier: MIT
#include "libtok/tokenizer.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <stdexcept>

#include "libtok/digest.h"
#include "libtok/normalize.h"
#include "libtok/unicode.h"

namespace tok {
namespace {

void put(std::string& out, int64_t number) {
  char digits[24];
  char* end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  *end++ = ';';
  out.append(digits, end);
}

void put(std::string& out, std::string_view bytes) {
  put(out, static_cast<int64_t>(bytes.size()));
  out.append(bytes);
}

/// What tokenizers of characters have beyond those of bytes.
void put_character_rules(const TokenizerSource& source, std::string& form) {
  const VocabSource& vocab = source.vocab;
  form += "characters;";
  for (const bool rule : {source.prefix_first_only, source.prepend_blank, source.replace_blanks,
                          source.metaspace, source.sentencepiece.has_value()}) {
    put(form, rule);
  }
  put(form, static_cast<int64_t>(vocab.rank_rule));
  for (const int32_t id : vocab.byte_fallback) put(form, id);
  for (const uint32_t rank : vocab.ranks) put(form, rank);
  if (!source.sentencepiece) return;
  put(form, source.sentencepiece->add_dummy_prefix);
  put(form, source.sentencepiece->remove_extra_whitespaces);
  put(form, source.sentencepiece->charsmap.bytes());
}

/// Whether ids depend on which added tokens are looked for in the normalised text: not where that
/// is the text itself and all are looked for in the same one, as a pair of files has it one way and
/// its tokenizer.json the other.
bool distinguishes_normalized(const TokenizerSource& source) {
  const std::vector<AddedToken>& added = source.added_tokens;
  const bool mixed = std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.normalized != added.front().normalized;
  });
  return mixed || source.vocab.by_characters || !source.normal_forms.empty() ||
         source.prepend_blank || source.replace_blanks;
}

/// Everything that decides ids, in one order, each string after its length.
std::string canonical_form(TokenizerSource& source) {
  VocabSource& vocab = source.vocab;
  vocab.sort_tokens();
  std::string form = "gristmill tokenizer 1;";
  form.reserve(32 * (vocab.tokens.size() + vocab.merges.size()));
  put(form, kUnicodeVersion);
  for (const VocabSource::Token& token : vocab.tokens) {
    put(form, token.id);
    put(form, token.bytes);
    put(form, token.text_only);
  }
  put(form, static_cast<int64_t>(vocab.merges.size()));
  for (const auto& [left, right] : vocab.merges) {
    put(form, left);
    put(form, right);
  }
  for (int64_t number :
       {int64_t{vocab.rank_rule == RankRule::by_id}, int64_t{vocab.whole_piece_first},
        int64_t{vocab.unk_id}, int64_t{vocab.fuse_unk}, int64_t{source.add_prefix_space}}) {
    put(form, number);
  }
  for (size_t i = 0; i < source.pretokenizer.num_stages; ++i) {
    put(form, family_name(source.pretokenizer.stages[i]));
  }
  for (NormalForm normal_form : source.normal_forms) put(form, static_cast<int64_t>(normal_form));
  const bool normalized_matters = distinguishes_normalized(source);
  for (const AddedToken& token : source.added_tokens) {
    put(form, token.content);
    for (int64_t number : {int64_t{token.id}, int64_t{token.special}, int64_t{token.single_word},
                           int64_t{token.lstrip}, int64_t{token.rstrip},
                           int64_t{token.normalized || !normalized_matters}}) {
      put(form, number);
    }
  }
  for (const std::vector<int32_t>* ids : {&source.prefix_ids, &source.suffix_ids}) {
    put(form, static_cast<int64_t>(ids->size()));
    for (int32_t id : *ids) put(form, id);
  }
  if (vocab.by_characters) put_character_rules(source, form);
  return form;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSource source, SimdLevel level, const ParallelFor& parallel_for)
    : source_(std::move(source)),
      vocab_(source_.vocab, parallel_for),
      hot_(vocab_, parallel_for),
      level_(level) {
  parallel_for(2, [&](size_t part) {
    if (part == 1) {
      cut_ = ExactCut(vocab_);
      return;
    }
    identity_ = sha256_hex(canonical_form(source_));
    source_.vocab = {};
  });
  set_blanks();
  set_added_tokens();
  check_templates();
}

void Tokenizer::set_blanks() {
  marks_blanks_ = source_.has_blanks_for_marks() && vocab_.fallback_id(' ') != kNoId &&
                  vocab_.find(" ") == kNoId;
  if (marks_blanks_ && vocab_.whole_piece_first()) {
    throw ParseError("model.ignore_merges: true: not supported where U+2581 has no token");
  }
}

Tokenizer Tokenizer::from_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                               const Gpt2Options& options, const ParallelFor& parallel_for) {
  return Tokenizer(read_gpt2(vocab_json, merges_txt, options, parallel_for), chosen_simd_level(),
                   parallel_for);
}

Tokenizer Tokenizer::from_tokenizer_json(std::string_view json, const ParallelFor& parallel_for) {
  return Tokenizer(read_tokenizer_json(json), chosen_simd_level(), parallel_for);
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view model, const SentencePieceOptions& options,
                                        const ParallelFor& parallel_for) {
  return Tokenizer(read_sentencepiece(model, options), chosen_simd_level(), parallel_for);
}

Tokenizer Tokenizer::from_file(std::string_view bytes, const ParallelFor& parallel_for) {
  return Tokenizer(read_tokenizer_file(bytes), chosen_simd_level(), parallel_for);
}

Tokenizer Tokenizer::from_rank_list(std::string_view json, const RankListOptions& options,
                                    const ParallelFor& parallel_for) {
  return Tokenizer(read_rank_list(json, options), chosen_simd_level(), parallel_for);
}

Tokenizer Tokenizer::from_folder(const ReadFile& read, const ParallelFor& parallel_for) {
  return Tokenizer(read_folder(read, parallel_for), chosen_simd_level(), parallel_for);
}

Tokenizer Tokenizer::from_tiktoken(std::string_view ranks, std::string_view encoding,
                                   const ParallelFor& parallel_for) {
  return Tokenizer(read_tiktoken(ranks, encoding), chosen_simd_level(), parallel_for);
}

void Tokenizer::set_added_tokens() {
  vocab_size_ = vocab_.size();
  id_limit_ = vocab_.id_limit();
  std::vector<AddedTokenFinder::Pattern> raw;
  std::vector<AddedTokenFinder::Pattern> normalized_patterns;
  std::vector<std::string> contents;  // normalised; reserved, since patterns view into it
  contents.reserve(source_.added_tokens.size());
  Scratch scratch(0, 0);
  for (size_t i = 0; i < source_.added_tokens.size(); ++i) {
    const AddedToken& token = source_.added_tokens[i];
    const std::string place =
        "added token \"" + token.content + "\": id " + std::to_string(token.id) + ": ";
    if (token.id < 0 || token.id >= kIdLimit) throw ParseError(place + "out of range");
    if (!added_by_id_.emplace(token.id, i).second) {
      throw ParseError(place + "another added token has it");
    }
    const bool in_vocab = !vocab_.bytes(token.id).empty();
    if (in_vocab && vocab_.rank_rule() == RankRule::by_id &&
        vocab_.bytes(token.id) != token.content) {
      throw ParseError(place + "the vocabulary has another token there");
    }
    if (token.normalized && (token.lstrip || token.rstrip) && source_.replace_blanks) {
      throw ParseError(place + "lstrip and rstrip of normalized tokens: not supported where the " +
                       "normalizer replaces blanks");
    }
    added_texts_.push_back(text_of_added(token));
    vocab_size_ += !in_vocab;
    id_limit_ = std::max(id_limit_, token.id + 1);
    if (token.normalized) {
      contents.push_back(normalized_content(token, scratch));
      // As tokenizers 0.23 has it, which decodes the normalised content.
      if (vocab_.by_characters()) added_texts_.back() = marks_to_blanks(contents.back());
      normalized_patterns.push_back({contents.back(), token});
    } else {
      raw.push_back({token.content, token});
    }
  }
  raw_finder_ = AddedTokenFinder(raw);
  normalized_finder_ = AddedTokenFinder(normalized_patterns);
}

/// What stands for an added token in normalised text. A SentencePiece model's own are not changed.
std::string Tokenizer::normalized_content(const AddedToken& token, Scratch& scratch) const {
  if (source_.sentencepiece) return marks_to_blanks(token.content);
  return std::string(normalized(token.content, scratch));
}

std::string Tokenizer::text_of_added(const AddedToken& token) const {
  return source_.has_blanks_for_marks() ? marks_to_blanks(token.content) : token.content;
}

void Tokenizer::check_templates() const {
  for (const std::vector<int32_t>* ids : {&source_.prefix_ids, &source_.suffix_ids}) {
    for (int32_t id : *ids) {
      if (!token_bytes(id).empty()) continue;
      throw ParseError("post_processor: id " + std::to_string(id) + ": no such token");
    }
  }
}

namespace {

// Frees scratch.normalized for the next stage. Where `segment` is its text it follows that text.
void set_aside(std::string_view& segment, Scratch& scratch) {
  // Asked before the swap: the bytes of a short string lie in the string, and stay there.
  const bool moves = segment.data() == scratch.normalized.data();
  std::swap(scratch.normalized, scratch.normalized_before);
  if (moves) segment = scratch.normalized_before;
}

}  // namespace

std::string_view Tokenizer::normalized(std::string_view segment, Scratch& scratch) const {
  for (NormalForm form : source_.normal_forms) {
    if (is_quickly_normal(segment, form)) continue;
    set_aside(segment, scratch);
    normalize(segment, form, scratch.normalized);
    segment = scratch.normalized;
  }
  const bool has_mark = source_.replace_blanks && has_blank_mark(segment);
  if (!source_.sentencepiece && !source_.prepend_blank && !has_mark) return segment;
  set_aside(segment, scratch);
  if (source_.sentencepiece) {
    source_.sentencepiece->normalize(segment, scratch.normalized);
    return scratch.normalized;
  }
  scratch.normalized.assign(source_.prepend_blank && !segment.empty() ? 1 : 0, ' ');
  has_mark ? scratch.normalized.append(marks_to_blanks(segment))
           : scratch.normalized.append(segment);
  return scratch.normalized;
}

/// What a pre-tokenizer does to a segment before it cuts.
std::string_view Tokenizer::pretokenizable(std::string_view segment, bool begins_text,
                                           Scratch& scratch) const {
  if (source_.metaspace && has_blank_mark(segment)) {
    scratch.unmarked = marks_to_blanks(segment);
    segment = scratch.unmarked;
  }
  const bool prefixes = source_.add_prefix_space && (begins_text || !source_.prefix_first_only);
  if (prefixes && !segment.starts_with(' ')) {
    scratch.prefixed.assign(1, ' ').append(segment);
    segment = scratch.prefixed;
  }
  if (!marks_blanks_) return segment;
  blanks_to_marks(segment, scratch.marked);
  return scratch.marked;
}

/// Finds added tokens in the raw text, then in the normalised rest; `on_segment` gets what is
/// between them, never empty, and whether it begins the text, `on_id` the tokens.
template <typename OnSegment, typename OnId>
int64_t Tokenizer::walk(std::string_view text, Scratch& scratch, SpecialTokens special,
                        OnSegment on_segment, OnId on_id) const {
  const bool parse = special == SpecialTokens::parse;
  int64_t num_special = 0;
  const auto between = [](std::string_view whole, const std::vector<AddedMatch>& matches,
                          auto on_gap, auto on_match) {
    size_t at = 0;
    for (const AddedMatch& match : matches) {
      if (at < match.begin) on_gap(whole.substr(at, match.begin - at), at == 0);
      on_match(match.id);
      at = match.end;
    }
    if (at < whole.size()) on_gap(whole.substr(at), at == 0);
  };
  scratch.raw_matches.clear();
  num_special += raw_finder_.find(text, parse, scratch.raw_matches);
  between(
      text, scratch.raw_matches,
      [&](std::string_view gap, bool begins_text) {
        const std::string_view clean = normalized(gap, scratch);
        scratch.normalized_matches.clear();
        num_special += normalized_finder_.find(clean, parse, scratch.normalized_matches);
        between(
            clean, scratch.normalized_matches,
            [&](std::string_view segment, bool begins_gap) {
              on_segment(segment, begins_text && begins_gap);
            },
            on_id);
      },
      on_id);
  return num_special;
}

void Tokenizer::encode_segment(std::string_view segment, bool begins_text, Scratch& scratch,
                               TokenBuffer& out) const {
  segment = pretokenizable(segment, begins_text, scratch);
  if (segment.size() > BoundaryScan::kMaxSegment) return encode_huge_segment(segment, scratch, out);
  const PieceModel model{vocab_, cut_, hot_, level_};
  BoundaryScan scan(source_.pretokenizer, segment, level_,
                    model.parts_are_pieces() ? &cut_.neighbours() : nullptr);
  PieceRun run(model, segment, 0, scratch.pieces, out);
  while (const size_t count = scan.next(run.room().data(), PieceRun::kBlock)) {
    run.add(count);
    out.drain_if_full();
  }
  run.finish();
}

/// The same for a segment whose positions do not fit 32 bits: from piece to piece.
void Tokenizer::encode_huge_segment(std::string_view segment, Scratch& scratch,
                                    TokenBuffer& out) const {
  const PieceModel model{vocab_, cut_, hot_, level_};
  PieceCutter cutter(source_.pretokenizer, segment);
  for (std::string_view piece = cutter.next(); !piece.empty(); piece = cutter.next()) {
    if (piece.size() > INT32_MAX) throw std::length_error("a piece of 2 GiB or more");
    const uint32_t end = static_cast<uint32_t>(piece.size());
    encode_pieces(model, piece, 0, {&end, 1}, scratch.pieces, out);
    out.drain_if_full();
  }
}

int64_t Tokenizer::encode(std::string_view text, Scratch& scratch, TokenBuffer& out,
                          const EncodeOptions& options) const {
  assert(scratch.owner == nullptr || scratch.owner == this);
  scratch.owner = this;
  if (options.add_special_tokens) out.append(source_.prefix_ids);
  const int64_t num_special = walk(
      text, scratch, options.special_tokens_in_text,
      [&](std::string_view segment, bool begins_text) {
        encode_segment(segment, begins_text, scratch, out);
      },
      [&](int32_t id) { out.push_back(id); });
  if (options.add_special_tokens) out.append(source_.suffix_ids);
  return num_special;
}

/// Whether the texts in a batch are segments without change: without templates, prefix spaces,
/// added tokens, or anything to normalise.
bool Tokenizer::is_plain(std::string_view text, const EncodeOptions& options) const {
  if (source_.add_prefix_space || source_.prepend_blank || source_.sentencepiece) return false;
  if (marks_blanks_) return false;
  if (source_.has_blanks_for_marks() && has_blank_mark(text)) return false;
  if (options.add_special_tokens && !(source_.prefix_ids.empty() && source_.suffix_ids.empty())) {
    return false;
  }
  for (NormalForm form : source_.normal_forms) {
    if (!is_quickly_normal(text, form)) return false;
  }
  return !raw_finder_.may_find(text) && !normalized_finder_.may_find(text);
}

int64_t Tokenizer::encode(const TextBatch& batch, Scratch& scratch, TokenBuffer& out,
                          std::span<const int32_t>& counts, const EncodeOptions& options,
                          int32_t end_id) const {
  TextLengths& lengths = scratch.lengths;
  lengths.counts.clear();
  lengths.begin = out.size();
  lengths.end_id = end_id;
  int64_t num_special = 0;
  if (is_plain(batch.all(), options)) {
    assert(scratch.owner == nullptr || scratch.owner == this);
    scratch.owner = this;
    encode_row(batch, scratch, out);
  } else {
    for (size_t i = 0; i < batch.size(); ++i) {
      num_special += encode(batch.text(i), scratch, out, options);
      const bool ends = end_id != kNoId && out.size() > lengths.begin;
      if (ends) out.push_back(end_id);
      lengths.counts.push_back(static_cast<int32_t>(out.size() - lengths.begin));
      lengths.begin = out.size();
    }
  }
  counts = lengths.counts;
  return num_special;
}

void Tokenizer::encode_row(const TextBatch& batch, Scratch& scratch, TokenBuffer& out) const {
  const PieceModel model{vocab_, cut_, hot_, level_};
  uint32_t marks[PieceRun::kBlock / 4];
  TextRow row{.ends = batch.ends(), .marks = marks};
  BoundaryScan scan(source_.pretokenizer, batch.all(), row, level_,
                    model.parts_are_pieces() ? &cut_.neighbours() : nullptr);
  const std::string_view readable(batch.all().data(),
                                  batch.all().size() + TextBatch::kReadableBytes);
  PieceRun run(model, readable, 0, scratch.pieces, out, &scratch.lengths);
  while (const size_t count = scan.next(run.room().data(), PieceRun::kBlock)) {
    run.add(count, {marks, row.num_marks});
  }
  run.finish();
}

int64_t Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& out,
                                const EncodeOptions& options) const {
  Scratch scratch(0, 0);
  const auto append = [&](const std::vector<int32_t>& ids) {
    out.insert(out.end(), ids.begin(), ids.end());
  };
  if (options.add_special_tokens) append(source_.prefix_ids);
  const int64_t num_special = walk(
      text, scratch, options.special_tokens_in_text,
      [&](std::string_view segment, bool begins_text) {
        segment = pretokenizable(segment, begins_text, scratch);
        PieceCutter cutter(source_.pretokenizer, segment);
        for (std::string_view piece = cutter.next(); !piece.empty(); piece = cutter.next()) {
          encode_piece_plain(vocab_, piece, out);
        }
      },
      [&](int32_t id) { out.push_back(id); });
  if (options.add_special_tokens) append(source_.suffix_ids);
  return num_special;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Scratch scratch(size_t{1} << 12, size_t{1} << 6);
  TokenBuffer out;
  encode(text, scratch, out, options);
  return {out.tokens().begin(), out.tokens().end()};
}

int64_t Tokenizer::count(std::string_view text, Scratch& scratch,
                         const EncodeOptions& options) const {
  scratch.counted.clear();
  encode(text, scratch, scratch.counted, options);
  return static_cast<int64_t>(scratch.counted.size());
}

void Tokenizer::decode(std::span<const int32_t> ids, std::string& out,
                       DecodeOptions options) const {
  const DecodeRules& rules = source_.decode_rules;
  const bool skips = options.skip_special_tokens || rules.hides_special;
  const size_t begin = out.size();
  bool strips = rules.leading != LeadingBlank::keep;
  for (int32_t id : ids) {
    if (skips && is_special(id)) continue;
    const std::vector<int32_t>& hidden = rules.hidden_ids;
    if (std::find(hidden.begin(), hidden.end(), id) != hidden.end()) continue;
    const std::string_view whole =
        id == rules.unk_id && id != kNoId ? rules.unk_text : token_bytes(id);
    if (!strips) {
      out += whole;
      continue;
    }
    std::string text(whole);
    strips = strip_leading(text, id);
    out += text;
    strips = strips && out.size() == begin;
  }
}

/// Takes from the text of an id, before which is none, what decode_rules say; whether the next id's
/// is still to be asked about.
bool Tokenizer::strip_leading(std::string& text, int32_t id) const {
  const LeadingBlank rule = source_.decode_rules.leading;
  const bool is_piece = vocab_.byte_of(id) < 0 && id != source_.decode_rules.unk_id;
  if (rule == LeadingBlank::strip_first_token) {
    // A blank that an added token has of its own stays.
    const auto added = added_by_id_.find(id);
    if (added == added_by_id_.end()) {
      if (!vocab_.text_only(id)) std::erase(text, ' ');
      return false;
    }
    text = source_.added_tokens[added->second].content;
    for (size_t at; (at = text.find(kBlankMark)) != std::string::npos;) {
      text.erase(at, kBlankMark.size());
    }
    return false;
  }
  if (rule != LeadingBlank::strip_one && !is_piece) return false;
  const bool has_blank = text.starts_with(' ');
  if (has_blank) text.erase(0, 1);
  return !has_blank || rule == LeadingBlank::strip_prefixes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string out;
  decode(ids, out, options);
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const noexcept {
  if (!added_by_id_.empty()) {
    const auto added = added_by_id_.find(id);
    if (added != added_by_id_.end()) return added_texts_[added->second];
  }
  static constexpr std::array<char, 256> kBytes = [] {
    std::array<char, 256> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
    return bytes;
  }();
  if (vocab_.by_characters() && !source_.decode_rules.names_bytes) {
    const int byte = vocab_.byte_of(id);
    if (byte >= 0) return {&kBytes[static_cast<size_t>(byte)], 1};
  }
  return vocab_.bytes(id);
}

std::optional<int32_t> Tokenizer::token_id(std::string_view content) const {
  for (const AddedToken& token : source_.added_tokens) {
    if (token.content == content) return token.id;
  }
  const std::string written =
      source_.has_blanks_for_marks() ? marks_to_blanks(content) : std::string(content);
  for (int32_t id : {vocab_.find(written), vocab_.find_text(content)}) {
    if (id != kNoId) return id;
  }
  return std::nullopt;
}

std::optional<int32_t> Tokenizer::eod_id() const {
  if (source_.eos_id != kNoId) return source_.eos_id;
  for (std::string_view name : kEodNames) {
    if (const std::optional<int32_t> id = token_id(name); id.has_value()) return id;
  }
  return std::nullopt;
}

bool Tokenizer::is_special(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && source_.added_tokens[added->second].special;
}

std::string Tokenizer::audit() const {
  std::string report = "tokens " + std::to_string(vocab_.size()) + ", with added tokens " +
                       std::to_string(vocab_size_) + ", largest id " +
                       std::to_string(id_limit_ - 1) + "\n";
  report += "cut by:";
  for (size_t i = 0; i < source_.pretokenizer.num_stages; ++i) {
    report.append(" ").append(family_name(source_.pretokenizer.stages[i]));
  }
  if (source_.pretokenizer.num_stages == 0) report += " nothing";
  report += "\n";
  MergeScratch scratch;
  std::vector<int32_t> ids;
  int64_t unreachable = 0;
  std::string examples;
  for (int32_t id = 0; id < vocab_.id_limit(); ++id) {
    const std::string_view bytes = vocab_.bytes(id);
    if (bytes.empty()) continue;
    ids.resize(bytes.size());
    if (!vocab_.text_only(id) && merge_piece(vocab_, bytes, scratch, ids.data()) == 1 &&
        ids[0] == id) {
      continue;
    }
    if (unreachable++ < 5) examples += " " + std::to_string(id);
  }
  if (unreachable > 0) {
    report += "unreachable by merges: " + std::to_string(unreachable) + " (ids" + examples +
              (unreachable > 5 ? " ..." : "") + ")" +
              (vocab_.whole_piece_first() ? "; used when a whole piece equals one" : "") + "\n";
  }
  if (!vocab_.id_follows_rank()) report += "ids do not follow merge ranks\n";
  if (vocab_.duplicate_merges() > 0) {
    report +=
        "merges listed again later, which counts: " + std::to_string(vocab_.duplicate_merges()) +
        "\n";
  }
  if (vocab_.missing_bytes() > 0) {
    report +=
        "bytes without a token: " + std::to_string(vocab_.missing_bytes()) +
        (vocab_.unk_id() == kNoId ? ", dropped where they occur\n"
                                  : ", encoded as id " + std::to_string(vocab_.unk_id()) + "\n");
  }
  for (const std::string& note : source_.notes) report += note + "\n";
  return report;
}

}  // namespace tok
