// The Tokenizer as a whole: fast against plain on random texts, independence of cache, chunks and
// threads, decoding, sizes, special tokens.
// SPDX-License-Identifier: MIT
#include "libtok/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "libtok/digest.h"
#include "libtok/unicode.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> ids_of(const tok::TokenBuffer& buffer) {
  return {buffer.tokens().begin(), buffer.tokens().end()};
}

/// Longer texts than the golden ones: runs, repeated words, mixed scripts.
std::string fuzz_text(Random& random) {
  std::string text;
  for (std::string& part : random_texts(1 + random.next(1u << 30), 3)) {
    text += part;
    const uint32_t run = random.next(4) == 0 ? random.next(300) : 0;
    std::string unit =
        class_alphabet()[random.next(static_cast<uint32_t>(class_alphabet().size()))];
    for (uint32_t i = 0; i < run; ++i) text += unit;
    for (uint32_t i = random.next(40); i > 0; --i)
      text += random.next(3) == 0 ? "\u6f22" : "\u0436";
  }
  return text;
}

class EveryCaseTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tokenizer_ = load_case(GetParam());
    if (!tokenizer_.has_value()) GTEST_SKIP() << "the sample data is not on this machine";
  }
  std::optional<tok::Tokenizer> tokenizer_;
};

/// Parts on threads of their own, begun from the last one.
void at_once_from_the_back(size_t count, const std::function<void(size_t)>& part) {
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::jthread> threads;
  for (size_t i = count; i-- > 0;) {
    threads.emplace_back([&, i] {
      try {
        part(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::jthread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

TEST(LoadingInParts, GivesTheSameTokenizer) {
  const std::string tokens[] = {"a", "b", "c", "ab", "abc", "bc", "cab", "abcab"};
  std::string vocab = "{";
  for (int32_t id = 0; const std::string& token : tokens) {
    vocab += (id > 0 ? ", \"" : "\"") + token + "\": " + std::to_string(id);
    ++id;
  }
  vocab += "}";
  const std::string merges = "#version: 0.2\na b\nab c\nb c\nc ab\nabc ab\n";
  const auto alone = tok::Tokenizer::from_gpt2(vocab, merges);
  const auto shared = tok::Tokenizer::from_gpt2(vocab, merges, {}, at_once_from_the_back);
  EXPECT_EQ(shared.identity(), alone.identity());
  EXPECT_EQ(shared.audit(), alone.audit());
  Random random(8);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (uint32_t n = random.next(60); n > 0; --n) text += "abc "[random.next(4)];
    std::vector<int32_t> plain;
    alone.encode_plain(text, plain);
    EXPECT_EQ(shared.encode(text), plain) << text;
  }
  // Whichever part finishes first, an error in the vocabulary is reported first.
  try {
    tok::Tokenizer::from_gpt2("[]", "no merge at all\n", {}, at_once_from_the_back);
    ADD_FAILURE() << "taken";
  } catch (const tok::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("vocab.json: not a JSON object"));
  }
  std::string bad;
  for (int i = 0; i < 100; ++i) bad += i < 37 ? "a b\n" : "b a\n";
  try {
    tok::Tokenizer::from_gpt2(vocab, bad, {}, at_once_from_the_back);
    ADD_FAILURE() << "taken";
  } catch (const tok::ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("merges.txt:38: \"b\" \"a\": \"ba\" is not"));
  }
}

TEST_P(EveryCaseTest, LoadingInPartsGivesTheSameTokenizer) {
  const std::optional<tok::Tokenizer> shared = load_case(GetParam(), at_once_from_the_back);
  EXPECT_EQ(shared->identity(), tokenizer_->identity());
  EXPECT_EQ(shared->audit(), tokenizer_->audit());
  for (const std::string& text : random_texts(12, 100)) {
    EXPECT_EQ(shared->encode(text), tokenizer_->encode(text)) << text;
  }
}

TEST_P(EveryCaseTest, FastEqualsPlainWhateverTheCache) {
  Random random(4);
  tok::Scratch usual;
  tok::Scratch tiny(2, 1);
  tok::Scratch none(0, 0);
  for (int i = 0; i < 300; ++i) {
    const std::string text = fuzz_text(random);
    const tok::EncodeOptions options = {
        .special_tokens_in_text = i % 2 == 0 ? tok::SpecialTokens::text : tok::SpecialTokens::parse,
        .add_special_tokens = i % 3 == 0};
    std::vector<int32_t> expected;
    const int64_t special = tokenizer_->encode_plain(text, expected, options);
    for (tok::Scratch* scratch : {&usual, &tiny, &none}) {
      tok::TokenBuffer out;
      ASSERT_EQ(tokenizer_->encode(text, *scratch, out, options), special);
      ASSERT_EQ(ids_of(out), expected) << testing::PrintToString(text);
    }
  }
}

TEST_P(EveryCaseTest, DocumentsDoNotSeeEachOther) {
  Random random(5);
  tok::Scratch scratch;
  tok::TokenBuffer all;
  std::vector<int32_t> expected;
  for (int i = 0; i < 100; ++i) {
    const std::string text = fuzz_text(random);
    tokenizer_->encode(text, scratch, all);
    for (int32_t id : tokenizer_->encode(text)) expected.push_back(id);
  }
  EXPECT_EQ(ids_of(all), expected);
}

class ReversibleCaseTest : public EveryCaseTest {};

TEST_P(ReversibleCaseTest, DecodeGivesTheTextBack) {
  Random random(6);
  for (int i = 0; i < 200; ++i) {
    const std::string text = fuzz_text(random);
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
  }
}

TEST_P(EveryCaseTest, ThreadsShareATokenizer) {
  std::vector<std::string> texts;
  Random random(7);
  for (int i = 0; i < 100; ++i) texts.push_back(fuzz_text(random));
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer_->encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      tok::Scratch scratch;
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t which = (i * (t + 1)) % texts.size();
        tok::TokenBuffer out;
        tokenizer_->encode(texts[which], scratch, out);
        wrong[t] += ids_of(out) != expected[which];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : golden_cases().items()) {
    if (name != "versions") names.push_back(name);
  }
  return names;
}

// Normalisers, prefix spaces, lost bytes and stripping added tokens change the text on purpose.
std::vector<std::string> reversible_case_names() {
  std::vector<std::string> names = case_names();
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::any_of(
        std::array{"qwen", "nfk", "prefix", "dropped", "unk", "neox", "llama3"},
        [&](const char* lossy) { return name.find(lossy) != std::string::npos; });
  });
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, EveryCaseTest, testing::ValuesIn(case_names()), test_name);
INSTANTIATE_TEST_SUITE_P(, ReversibleCaseTest, testing::ValuesIn(reversible_case_names()),
                         test_name);

// bpe-train's files: the pair's end of a text is looked for in the normalised text, as transformers
// has it, that of tokenizer.json in the original, which is the same where nothing normalises it.
TEST(TokenizerTest, WhereAnAddedTokenIsFoundCountsOnlyBesideANormalizer) {
  const auto identity = [](const char* normalizer, const char* normalized) {
    return tok::Tokenizer::from_tokenizer_json(
               std::string(R"({"version":"1.0","added_tokens":[{"id":0,"content":"<|endoftext|>",
      "single_word":false,"lstrip":false,"rstrip":false,"normalized":)") +
               normalized + R"(,"special":true}],"normalizer":)" + normalizer +
               R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
      "use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",
      "add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",
      "vocab":{"<|endoftext|>":0,"a":1,"b":2,"ab":3},"merges":["a b"]}})")
        .identity();
  };
  const tok::Tokenizer pair = tok::Tokenizer::from_gpt2(R"({"<|endoftext|>":0,"a":1,"b":2,"ab":3})",
                                                        "#version: 0.2\na b\n");
  EXPECT_EQ(pair.identity(), identity("null", "true"));
  EXPECT_EQ(pair.identity(), identity("null", "false"));
  EXPECT_NE(identity(R"({"type":"NFC"})", "true"), identity(R"({"type":"NFC"})", "false"));
}

TEST(TokenizerTest, Gpt2FromEitherFormIsOneTokenizer) {
  const std::optional<tok::Tokenizer> files = load_case("gpt2-files");
  const std::optional<tok::Tokenizer> json = load_case("gpt2");
  if (!files.has_value() || !json.has_value()) GTEST_SKIP() << "no sample data";
  EXPECT_EQ(files->identity(), json->identity());
  EXPECT_EQ(files->base_vocab_size(), 50257);
  EXPECT_EQ(files->vocab_size(), 50257);
  EXPECT_EQ(files->id_limit(), 50257);
  EXPECT_EQ(files->eod_id(), 50256);
  EXPECT_TRUE(files->is_special(50256));
  EXPECT_FALSE(files->is_special(50255));
  EXPECT_THAT(files->audit(), HasSubstr("unreachable by merges: 1 (ids 50256)"));
}

TEST(TokenizerTest, NeoxSizesAndSpaceRuns) {
  const std::optional<tok::Tokenizer> neox = load_case("neox");
  if (!neox.has_value()) GTEST_SKIP() << "no sample data";
  EXPECT_EQ(neox->base_vocab_size(), 50254);
  EXPECT_EQ(neox->vocab_size(), 50277);
  EXPECT_EQ(neox->eod_id(), 0);
  EXPECT_THAT(neox->encode("    x"), ElementsAre(50274, 89));
  EXPECT_THAT(neox->encode(std::string(25, ' ') + "x"), ElementsAre(50254, 1269));
  EXPECT_THAT(neox->encode(std::string(26, ' ') + "x"), ElementsAre(50254, 50276, 89));
  EXPECT_THAT(neox->encode("a\n    b"), ElementsAre(66, 187, 50274, 67));
  EXPECT_THAT(neox->encode("a\n\n\t  b"), ElementsAre(66, 6886, 50276, 67));
}

TEST(TokenizerTest, Cl100kSizes) {
  const std::optional<tok::Tokenizer> cl100k = load_case("cl100k");
  if (!cl100k.has_value()) GTEST_SKIP() << "no sample data";
  EXPECT_EQ(cl100k->base_vocab_size(), 100256);
  EXPECT_EQ(cl100k->id_limit(), 100277);
  EXPECT_EQ(cl100k->eod_id(), 100257);
}

TEST(TokenizerTest, SpecialTokensInTextAreCountedAndTextUnlessParsed) {
  const tok::Tokenizer tokenizer = *load_case("small-prefix");
  tok::Scratch scratch;
  tok::TokenBuffer as_text;
  tok::TokenBuffer parsed;
  const std::string text = "a<s>b</s><|endoftext|>";
  EXPECT_EQ(tokenizer.encode(text, scratch, as_text), 3);
  EXPECT_EQ(tokenizer.encode(text, scratch, parsed,
                             {.special_tokens_in_text = tok::SpecialTokens::parse}),
            3);
  const int32_t start = *tokenizer.token_id("<s>");
  EXPECT_THAT(ids_of(as_text), testing::Not(testing::Contains(start)));
  EXPECT_THAT(ids_of(parsed), testing::Contains(start));
  EXPECT_EQ(tokenizer.decode(parsed.tokens(), {.skip_special_tokens = true}), " a b");
  EXPECT_EQ(tokenizer.decode(parsed.tokens()), " a<s> b</s><|endoftext|>");
  EXPECT_EQ(tokenizer.count(text, scratch), static_cast<int64_t>(as_text.size()));
}

TEST(TokenizerTest, ManySpecialTokensStayLinear) {
  nlohmann::json root = nlohmann::json::parse(read_golden("base.json"));
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  root["added_tokens"] = nlohmann::json::array();
  const int first = static_cast<int>(root["model"]["vocab"].size());
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    const std::string content = "<|reserved_special_token_" + std::to_string(i) + "|>";
    root["added_tokens"].push_back({{"id", first + i}, {"content", content}, {"special", true}});
    text += content + "<|reserved_special_token_" + std::to_string(i) + "|";
  }
  const tok::Tokenizer tokenizer = tok::Tokenizer::from_tokenizer_json(root.dump());
  std::string all;
  while (all.size() < (1 << 20)) all += text;
  tok::Scratch scratch;
  tok::TokenBuffer out;
  const auto start = std::chrono::steady_clock::now();
  const int64_t special =
      tokenizer.encode(all, scratch, out, {.special_tokens_in_text = tok::SpecialTokens::parse});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%zu bytes with %d special tokens: %.3f s\n", all.size(), static_cast<int>(special),
              took.count());
  EXPECT_EQ(special, static_cast<int64_t>(2000 * (all.size() / text.size())));
  EXPECT_EQ(tokenizer.decode(out.tokens()), all);
}

TEST(TokenizerTest, OptFilesTakeRanksFromMergesAndIdsFromVocab) {
  const nlohmann::json root = nlohmann::json::parse(read_golden("base.json"));
  nlohmann::json vocab = {{"[BOS]", 0}, {"[PAD]", 1}, {"[EOS]", 2}, {"[UNK]", 3}};
  const int32_t size = static_cast<int32_t>(root["model"]["vocab"].size());
  for (const auto& [token, id] : root["model"]["vocab"].items()) {
    vocab[token] = 4 + (id.get<int32_t>() * 7 + 5) % size;
  }
  ASSERT_EQ(vocab.size(), static_cast<size_t>(size) + 4) << "the permutation must be one";
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : root["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  const tok::Tokenizer opt = tok::Tokenizer::from_gpt2(
      vocab.dump(), merges, {.special_tokens = {"[BOS]", "[PAD]", "[EOS]", "[UNK]"}});
  const tok::Tokenizer base = *load_case("small-gpt2");
  Random random(8);
  for (int i = 0; i < 200; ++i) {
    const std::string text = fuzz_text(random);
    std::vector<int32_t> expected = base.encode(text);
    for (int32_t& id : expected) id = 4 + (id * 7 + 5) % size;
    ASSERT_EQ(opt.encode(text), expected);
  }
  EXPECT_THAT(opt.audit(), HasSubstr("ids do not follow merge ranks"));
  EXPECT_THAT(opt.audit(), HasSubstr("largest id " + std::to_string(opt.id_limit() - 1) + "\n"));
  EXPECT_THAT(opt.encode("[EOS]a[UNK]", {.special_tokens_in_text = tok::SpecialTokens::parse}),
              ElementsAre(2, base.encode("a")[0] * 7 % size + 9, 3));
}

TEST(DigestTest, KnownAnswers) {
  EXPECT_EQ(tok::sha256_hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(tok::sha256_hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(tok::sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace tok_test
