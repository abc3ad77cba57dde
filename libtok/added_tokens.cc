// The automaton, and the white space that an added token takes with it.
// SPDX-License-Identifier: MIT
#include "libtok/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <map>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "libtok/boundaries.h"
#include "libtok/unicode.h"

namespace tok {
namespace {

struct Range {
  char32_t first, last;
};

/// Characters of class kNumber that are not \w: general category No.
constexpr Range kOtherNumbers[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0xBC, 0xBE},       {0x9F4, 0x9F9},
    {0xB72, 0xB77},     {0xBF0, 0xBF2},     {0xC78, 0xC7E},     {0xD58, 0xD5E},
    {0xD70, 0xD78},     {0xF2A, 0xF33},     {0x1369, 0x137C},   {0x17F0, 0x17F9},
    {0x19DA, 0x19DA},   {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},
    {0x2150, 0x215F},   {0x2189, 0x2189},   {0x2460, 0x249B},   {0x24EA, 0x24FF},
    {0x2776, 0x2793},   {0x2CFD, 0x2CFD},   {0x3192, 0x3195},   {0x3220, 0x3229},
    {0x3248, 0x324F},   {0x3251, 0x325F},   {0x3280, 0x3289},   {0x32B1, 0x32BF},
    {0xA830, 0xA835},   {0x10107, 0x10133}, {0x10175, 0x10178}, {0x1018A, 0x1018B},
    {0x102E1, 0x102FB}, {0x10320, 0x10323}, {0x10858, 0x1085F}, {0x10879, 0x1087F},
    {0x108A7, 0x108AF}, {0x108FB, 0x108FF}, {0x10916, 0x1091B}, {0x109BC, 0x109BD},
    {0x109C0, 0x109CF}, {0x109D2, 0x109FF}, {0x10A40, 0x10A48}, {0x10A7D, 0x10A7E},
    {0x10A9D, 0x10A9F}, {0x10AEB, 0x10AEF}, {0x10B58, 0x10B5F}, {0x10B78, 0x10B7F},
    {0x10BA9, 0x10BAF}, {0x10CFA, 0x10CFF}, {0x10E60, 0x10E7E}, {0x10F1D, 0x10F26},
    {0x10F51, 0x10F54}, {0x10FC5, 0x10FCB}, {0x11052, 0x11065}, {0x111E1, 0x111F4},
    {0x1173A, 0x1173B}, {0x118EA, 0x118F2}, {0x11C5A, 0x11C6C}, {0x11DE0, 0x11DE9},
    {0x11FC0, 0x11FD4}, {0x1246F, 0x1246F}, {0x12475, 0x1247F}, {0x12550, 0x12686},
    {0x16B5B, 0x16B61}, {0x16E80, 0x16E96}, {0x16FF4, 0x16FF6}, {0x1D2C0, 0x1D2D3},
    {0x1D2E0, 0x1D2F3}, {0x1D360, 0x1D378}, {0x1E8C7, 0x1E8CF}, {0x1EC71, 0x1ECAB},
    {0x1ECAD, 0x1ECAF}, {0x1ECB1, 0x1ECB4}, {0x1ED01, 0x1ED2D}, {0x1ED2F, 0x1ED3D},
    {0x1F100, 0x1F10C},
};

/// Characters of other classes than letter, mark and number that are \w.
constexpr Range kOtherWord[] = {
    {0x5F, 0x5F},       {0x200C, 0x200D},   {0x203F, 0x2040},   {0x2054, 0x2054},
    {0x24B6, 0x24E9},   {0xFE33, 0xFE34},   {0xFE4D, 0xFE4F},   {0xFF3F, 0xFF3F},
    {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};

template <size_t N>
bool contains(const Range (&ranges)[N], char32_t code_point) noexcept {
  const Range* range = std::lower_bound(
      std::begin(ranges), std::end(ranges), code_point,
      [](const Range& candidate, char32_t wanted) { return candidate.last < wanted; });
  return range != std::end(ranges) && range->first <= code_point;
}

/// Start of the character that ends before `end`.
size_t previous_character(std::string_view text, size_t end) noexcept {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) noexcept {
  if (text.empty()) return false;
  return is_word_character(decode(text, previous_character(text, text.size())).value);
}

bool starts_with_word(std::string_view text) noexcept {
  return !text.empty() && is_word_character(decode(text, 0).value);
}

/// Beginning of the white space that ends `text`.
size_t trailing_space(std::string_view text) noexcept {
  size_t end = text.size();
  while (end > 0) {
    const size_t at = previous_character(text, end);
    if (class_of(decode(text, at).value) != kSpace) break;
    end = at;
  }
  return end;
}

/// Bytes of white space at the beginning of `text`.
size_t leading_space(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = decode(text, at);
    if (class_of(c.value) != kSpace) break;
    at += c.length;
  }
  return at;
}

}  // namespace

bool is_word_character(char32_t code_point) noexcept {
  const ClassSet set = class_of(code_point);
  if ((set & (kLetter | kMark)) != 0) return true;
  if (set == kNumber) return !contains(kOtherNumbers, code_point);
  return contains(kOtherWord, code_point);
}

AddedTokenFinder::AddedTokenFinder(const std::vector<Pattern>& patterns) {
  struct Node {
    std::map<uint8_t, int32_t> children;
    int32_t pattern = -1;
    uint32_t length = 0;
  };
  std::vector<Node> trie(1);
  bool one_pair = true;
  for (const Pattern& pattern : patterns) {
    if (pattern.content.empty()) continue;
    int32_t at = 0;
    for (char c : pattern.content) {
      const auto [edge, fresh] = trie[static_cast<size_t>(at)].children.try_emplace(
          static_cast<uint8_t>(c), static_cast<int32_t>(trie.size()));
      at = edge->second;
      if (fresh) trie.emplace_back();
    }
    Node& node = trie[static_cast<size_t>(at)];
    if (node.pattern < 0) node.pattern = static_cast<int32_t>(tokens_.size());
    node.length = static_cast<uint32_t>(pattern.content.size());
    tokens_.push_back(pattern.token);
    uint16_t pair = 0;
    if (pattern.content.size() < 2) {
      one_pair = false;
    } else {
      std::memcpy(&pair, pattern.content.data(), 2);
      one_pair = one_pair && (first_pair_ < 0 || first_pair_ == pair);
      first_pair_ = pair;
    }
  }
  if (!one_pair) first_pair_ = -1;
  std::vector<int32_t> breadth_first{kStart};
  states_.resize(trie.size());
  for (size_t i = 0; i < breadth_first.size(); ++i) {
    const Node& node = trie[static_cast<size_t>(breadth_first[i])];
    states_[static_cast<size_t>(breadth_first[i])] = {kStart, node.pattern, node.length,
                                                      static_cast<uint32_t>(edges_.size()),
                                                      static_cast<uint32_t>(node.children.size())};
    for (const auto& [byte, target] : node.children) {
      edges_.push_back({byte, target});
      breadth_first.push_back(target);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    start_[byte] = std::max(kStart, child(kStart, static_cast<uint8_t>(byte)));
  }
  set_failures(breadth_first);
}

/// Failure links of leftmost matching: after a match only candidates that began no later count, so
/// states that end a match, and all states below them, fail to kDead instead of to a later
/// beginning.
void AddedTokenFinder::set_failures(std::vector<int32_t>& breadth_first) {
  for (const int32_t at : breadth_first) {
    const State state = states_[static_cast<size_t>(at)];
    for (uint32_t e = state.first_edge; e < state.first_edge + state.num_edges; ++e) {
      State& next = states_[static_cast<size_t>(edges_[e].target)];
      if (next.pattern >= 0) {
        next.fail = kDead;
        continue;
      }
      next.fail = at == kStart ? kStart : step(state.fail, edges_[e].byte);
      if (next.fail == kDead) continue;
      const State& fallback = states_[static_cast<size_t>(next.fail)];
      next.pattern = fallback.pattern;
      next.pattern_length = fallback.pattern_length;
    }
  }
}

int32_t AddedTokenFinder::child(int32_t state, uint8_t byte) const noexcept {
  const State& from = states_[static_cast<size_t>(state)];
  const Edge* first = edges_.data() + from.first_edge;
  const Edge* last = first + from.num_edges;
  const Edge* edge = std::lower_bound(first, last, byte, [](const Edge& candidate, uint8_t wanted) {
    return candidate.byte < wanted;
  });
  return edge != last && edge->byte == byte ? edge->target : -1;
}

int32_t AddedTokenFinder::step(int32_t state, uint8_t byte) const noexcept {
  while (state != kDead) {
    if (state == kStart) return start_[byte];
    const int32_t next = child(state, byte);
    if (next >= 0) return next;
    state = states_[static_cast<size_t>(state)].fail;
  }
  return kDead;
}

#if defined(__x86_64__)
namespace {

/// Moves `at` to the first pair of bytes, or to less than 65 bytes before the end.
[[gnu::target("avx2")]] size_t find_pair_avx2(std::string_view text, size_t at, uint8_t first_byte,
                                              uint8_t second_byte) noexcept {
  const __m256i first = _mm256_set1_epi8(static_cast<char>(first_byte));
  const __m256i second = _mm256_set1_epi8(static_cast<char>(second_byte));
  for (; at + 65 <= text.size(); at += 64) {
    const auto* p = reinterpret_cast<const __m256i*>(text.data() + at);
    const auto* q = reinterpret_cast<const __m256i*>(text.data() + at + 1);
    // This is usually the first access to the text, and processors prefetch only within a page.
    _mm_prefetch(text.data() + at + 1024, _MM_HINT_T0);
    const __m256i low = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_loadu_si256(p), first),
                                         _mm256_cmpeq_epi8(_mm256_loadu_si256(q), second));
    const __m256i high = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_loadu_si256(p + 1), first),
                                          _mm256_cmpeq_epi8(_mm256_loadu_si256(q + 1), second));
    const __m256i any = _mm256_or_si256(low, high);
    if (!_mm256_testz_si256(any, any)) [[unlikely]] {
      const uint64_t mask = static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
                            static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(high)))
                                << 32;
      return at + static_cast<size_t>(__builtin_ctzll(mask));
    }
  }
  return at;
}

}  // namespace
#endif

/// First position from `at` on where a match can begin.
size_t AddedTokenFinder::next_candidate(std::string_view text, size_t at) const noexcept {
#if defined(__x86_64__)
  if (first_pair_ >= 0) {
    uint8_t pair[2];
    const uint16_t packed = static_cast<uint16_t>(first_pair_);
    std::memcpy(pair, &packed, 2);
    if (chosen_simd_level() >= SimdLevel::avx2) at = find_pair_avx2(text, at, pair[0], pair[1]);
    const __m128i first = _mm_set1_epi8(static_cast<char>(pair[0]));
    const __m128i second = _mm_set1_epi8(static_cast<char>(pair[1]));
    for (; at + 17 <= text.size(); at += 16) {
      const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
      const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at + 1));
      const __m128i both = _mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(next, second));
      const unsigned mask = static_cast<unsigned>(_mm_movemask_epi8(both));
      if (mask != 0) return at + static_cast<size_t>(__builtin_ctz(mask));
    }
  }
#endif
  while (at < text.size() && start_[static_cast<uint8_t>(text[at])] == kStart) ++at;
  return at;
}

/// Finds the next match at or after `at`; on success `at` is its end.
bool AddedTokenFinder::next_match(std::string_view text, size_t& at, size_t& begin,
                                  int32_t& pattern) const noexcept {
  bool found = false;
  int32_t state = kStart;
  for (size_t i = at; i < text.size();) {
    if (state == kStart) {
      i = next_candidate(text, i);
      if (i == text.size()) break;
    }
    state = step(state, static_cast<uint8_t>(text[i++]));
    if (state == kDead) break;
    const State& here = states_[static_cast<size_t>(state)];
    if (here.pattern < 0) continue;
    found = true;
    pattern = here.pattern;
    begin = i - here.pattern_length;
    at = i;
  }
  return found;
}

int64_t AddedTokenFinder::find(std::string_view text, bool report_special,
                               std::vector<AddedMatch>& matches) const {
  if (empty()) return 0;
  int64_t special = 0;
  size_t at = 0;
  size_t taken = 0;  // end of the previous match
  size_t begin = 0;
  int32_t pattern = -1;
  while (next_match(text, at, begin, pattern)) {
    const AddedToken& token = tokens_[static_cast<size_t>(pattern)];
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(at)))) {
      continue;
    }
    special += token.special;
    if (token.special && !report_special) continue;
    size_t end = at;
    if (token.lstrip) {
      const size_t space = trailing_space(text.substr(0, begin));
      begin = std::max(space, taken);
    }
    if (token.rstrip) end += leading_space(text.substr(end));
    // A token that is white space vanishes if the previous one took that white space.
    if (begin < end) matches.push_back({begin, end, token.id});
    taken = end;
  }
  return special;
}

}  // namespace tok
