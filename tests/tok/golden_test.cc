// SPDX-License-Identifier: MIT
// Ids of the real Hugging Face tokenizers and tiktoken, held by checksums that
// tests/reference/make_tok_goldens.py made: every code point alone and in context, all short
// strings over a class alphabet, adversarial and random texts, and the sample files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "libtok/unicode.h"
#include "tests/sanitized.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::json;

/// CRC-32 of, for each text, the number of ids and the ids.
class Checksum {
 public:
  void add(std::span<const int32_t> ids) {
    add_word(static_cast<uint32_t>(ids.size()));
    for (int32_t id : ids) add_word(static_cast<uint32_t>(id));
  }
  std::string hex() const {
    std::string out;
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[~crc_ >> shift & 15];
    return out;
  }

 private:
  static constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
      table[i] = value;
    }
    return table;
  }
  void add_word(uint32_t word) {
    static constexpr std::array<uint32_t, 256> kTable = make_table();
    for (int i = 0; i < 4; ++i, word >>= 8) crc_ = kTable[(crc_ ^ word) & 255] ^ crc_ >> 8;
  }
  uint32_t crc_ = ~0u;
};

/// Encodes with one scratch for the whole case, so that the cache is warm and full as in a tool.
class Encoder {
 public:
  explicit Encoder(const tok::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::span<const int32_t> operator()(std::string_view text, bool parse = false,
                                      bool add_special_tokens = false) {
    out_.clear();
    tokenizer_.encode(
        text, scratch_, out_,
        {.special_tokens_in_text = parse ? tok::SpecialTokens::parse : tok::SpecialTokens::text,
         .add_special_tokens = add_special_tokens});
    return out_.tokens();
  }

 private:
  const tok::Tokenizer& tokenizer_;
  tok::Scratch scratch_;
  tok::TokenBuffer out_;
};

constexpr uint32_t kBlock = 4096;

std::vector<char32_t> code_points(uint32_t first, bool full) {
  const uint32_t step = full || first < 0x20000 || first == 0xE0000 ? 1 : 64;
  std::vector<char32_t> points;
  for (uint32_t c = first; c < first + kBlock; c += step) {
    if (c < 0xD800 || c >= 0xE000) points.push_back(c);
  }
  return points;
}

/// What stands before and after a code point; nothing after means the code point again.
struct Context {
  std::string_view before;
  std::optional<std::string_view> after;
};

constexpr Context kContexts[] = {{" ", ""}, {"", "'s"}, {"", std::nullopt}, {"\n", ""},
                                 {"1", ""}, {"", "1"},  {"a ", " b"}};

std::string checksum_in_context(Encoder& encode, const std::vector<char32_t>& points,
                                const Context& context) {
  Checksum sum;
  for (size_t first = 0; first < points.size(); first += 256) {
    std::string text;
    for (size_t i = first; i < std::min(points.size(), first + 256); ++i) {
      text += context.before;
      tok::append_utf8(text, points[i]);
      if (context.after.has_value()) {
        text += *context.after;
      } else {
        tok::append_utf8(text, points[i]);
      }
      text += '\n';
    }
    sum.add(encode(text));
  }
  return sum.hex();
}

void check_code_points(Encoder& encode, const json& sums, bool full) {
  for (uint32_t block = 0; block < 0x110000 / kBlock; ++block) {
    if (kSanitized && block > 3 && block % 29 != 0) continue;
    const std::vector<char32_t> points = code_points(block * kBlock, full);
    Checksum alone;
    std::string text;
    for (char32_t c : points) {
      text.clear();
      tok::append_utf8(text, c);
      alone.add(encode(text));
    }
    EXPECT_EQ(alone.hex(), sums["alone"][block].get<std::string>())
        << "code points alone, block " << std::hex << block * kBlock;
    for (size_t i = 0; i < std::size(kContexts); ++i) {
      EXPECT_EQ(checksum_in_context(encode, points, kContexts[i]),
                sums["contexts"][block][i].get<std::string>())
          << "context " << i << ", block " << std::hex << block * kBlock;
    }
  }
}

void check_short_strings(Encoder& encode, const json& sums, int longest) {
  const std::vector<std::string>& alphabet = class_alphabet();
  Checksum sum;
  size_t in_chunk = 0;
  size_t chunk = 0;
  const auto close_chunk = [&](std::string_view last) {
    EXPECT_EQ(sum.hex(), sums[chunk].get<std::string>())
        << "chunk " << chunk << " of short strings, which ends with "
        << testing::PrintToString(std::string(last));
    ++chunk;
    in_chunk = 0;
    sum = Checksum();
  };
  std::string text;
  for (int length = 1; length <= longest; ++length) {
    std::vector<size_t> symbols(static_cast<size_t>(length), 0);
    for (bool more = true; more;) {
      text.clear();
      for (size_t symbol : symbols) text += alphabet[symbol];
      sum.add(encode(text));
      if (++in_chunk == 50000) {
        close_chunk(text);
        if (kSanitized) return;
      }
      more = false;
      for (size_t i = symbols.size(); i-- > 0 && !more;) {
        more = ++symbols[i] < alphabet.size();
        if (!more) symbols[i] = 0;
      }
    }
  }
  if (in_chunk > 0) close_chunk(text);
  EXPECT_EQ(chunk, sums.size());
}

void check_random(Encoder& encode, const json& sums) {
  const std::vector<std::string> texts = random_texts(0x9E3779B97F4A7C15u, 4000);
  for (const char* name : {"random", "random_parse", "random_template"}) {
    const std::set<size_t> panics =
        sums.value("panics", json::object()).value(name, std::set<size_t>());
    for (size_t chunk = 0; chunk < sums[name].size(); chunk += kSanitized ? 8 : 1) {
      Checksum sum;
      for (size_t i = chunk * 100; i < (chunk + 1) * 100; ++i) {
        if (panics.count(i) > 0) continue;  // the reference has no answer
        sum.add(encode(texts[i], name == std::string_view("random_parse"),
                       name == std::string_view("random_template")));
      }
      EXPECT_EQ(sum.hex(), sums[name][chunk].get<std::string>()) << name << " " << chunk;
    }
  }
}

void check_adversarial(Encoder& encode, const json& sums, const json& vectors, const json& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i].get<std::string>();
    for (const char* mode : {"text", "parse"}) {
      Checksum sum;
      sum.add(encode(text, mode == std::string_view("parse")));
      EXPECT_EQ(sum.hex(), sums[mode][i].get<std::string>()) << mode << " " << texts[i];
    }
    if (vectors.is_null()) continue;
    const std::span<const int32_t> ids = encode(text);
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()), vectors[i].get<std::vector<int32_t>>())
        << texts[i];
  }
}

void check_files(Encoder& encode, const json& sums) {
  for (const auto& [name, expected] : sums.items()) {
    const std::optional<std::string> text = read_shared(name);
    if (!text.has_value() || (kSanitized && name != "wagahai-ja.txt")) continue;
    Checksum whole;
    const std::span<const int32_t> ids = encode(*text);
    whole.add(ids);
    EXPECT_EQ(ids.size(), expected[0].get<size_t>()) << name;
    EXPECT_EQ(whole.hex(), expected[1].get<std::string>()) << name;
    Checksum lines;
    std::string_view rest = *text;
    for (bool more = true; more;) {
      const size_t end = rest.find('\n');
      more = end != std::string_view::npos;
      lines.add(encode(rest.substr(0, end), true));
      if (more) rest = rest.substr(end + 1);
    }
    EXPECT_EQ(lines.hex(), expected[2].get<std::string>()) << name << " by lines";
  }
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, IdsAreThoseOfTheReference) {
  const json& entry = golden_cases()[GetParam()];
  const std::optional<tok::Tokenizer> tokenizer = load_case(GetParam());
  if (!tokenizer.has_value()) GTEST_SKIP() << "the sample data is not on this machine";
  static const json kVectors = json::parse(read_golden("vectors.json"));
  Encoder encode(*tokenizer);
  const json& sums = entry["sums"];
  check_adversarial(encode, sums["adversarial"],
                    kVectors.contains(GetParam()) ? kVectors[GetParam()] : json(),
                    kVectors["texts"]);
  check_random(encode, sums);
  check_short_strings(encode, sums["short"], entry["full"].get<bool>() ? 5 : 4);
  check_files(encode, sums["files"]);
  check_code_points(encode, sums, entry["full"]);
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : golden_cases().items()) {
    if (name != "versions") names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(, GoldenTest, testing::ValuesIn(case_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tok_test
