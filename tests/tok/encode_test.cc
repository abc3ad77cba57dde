// SPDX-License-Identifier: MIT
// The fast encoder against the reference encoder, for real vocabularies: at every level of
// this processor, with tables of any size, fresh or full, and whatever was encoded before.
// TOK_FUZZ_SECONDS=N fuzzes for N seconds more, from the seed in TOK_FUZZ_SEED.
#include "libtok/encode.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "libtok/text_batch.h"
#include "libtok/tokenizer.h"
#include "tests/sanitized.h"
#include "tests/tok/tok_data.h"

namespace tok {
namespace {

/// Empty where the file is not on this machine.
std::string shared(const std::string& name) { return tok_test::read_shared(name).value_or(""); }

/// A small vocabulary that every machine has: bytes, and merges that make chains, ties across
/// characters, a token of many bytes, and one that merging its bytes does not give.
TokenizerSource small_source(Family family, bool whole_piece_first) {
  TokenizerSource source;
  source.pretokenizer = make_pretokenizer(family);
  std::vector<VocabSource::Token>& tokens = source.vocab.tokens;
  for (int i = 0; i < 256; ++i) tokens.push_back({std::string(1, static_cast<char>(i)), i});
  auto merge = [&](const std::string& left, const std::string& right) {
    source.vocab.merges.emplace_back(left, right);
    for (const auto& token : tokens) {
      if (token.bytes == left + right) return;
    }
    tokens.push_back({left + right, static_cast<int32_t>(tokens.size())});
  };
  merge("a", "b");
  merge("b", "a");
  merge("ab", "a");
  merge("l", "l");
  merge(" ", "a");
  merge(" a", "ba");
  merge(" ", " ");
  merge("  ", "  ");
  merge("    ", "    ");
  merge("\xE4", "\xB8");
  merge("\xE4\xB8", "\xAD");
  merge("\xAD", "\xE4");
  merge("\xE3", "\x80");
  merge("1", "1");
  if (whole_piece_first) tokens.push_back({"bab", static_cast<int32_t>(tokens.size())});
  source.vocab.whole_piece_first = whole_piece_first;
  return source;
}

struct Named {
  std::string name;
  TokenizerSource source;
};

/// Every vocabulary on this machine. Real ones are in the shared data.
std::vector<Named> sources() {
  std::vector<Named> out;
  for (Family family : {Family::gpt2, Family::cl100k, Family::qwen2, Family::o200k}) {
    for (bool whole : {false, true}) {
      std::string name = std::string(family_name(family)) + (whole ? " whole first" : "");
      out.push_back({name, small_source(family, whole)});
    }
  }
  out.push_back({"DeepSeek-V3", small_source(Family::deepseek3, false)});
  out.back().source.pretokenizer =
      make_pretokenizer(Family::digit_triples, Family::cjk_runs, Family::deepseek3);
  if (std::string vocab = shared("gpt2-vocab.json"); !vocab.empty()) {
    out.push_back({"GPT-2", read_gpt2(vocab, shared("gpt2-merges.txt"))});
  }
  if (std::string json = shared("gpt-neox-20b-tokenizer.json"); !json.empty()) {
    out.push_back({"NeoX", read_tokenizer_json(json)});
  }
  if (std::string ranks = shared("cl100k_base.tiktoken.gz"); !ranks.empty()) {
    out.push_back({"cl100k_base", read_tiktoken(ranks, "cl100k_base")});
  }
  return out;
}

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> out;
  for (SimdLevel level :
       {SimdLevel::plain, SimdLevel::avx2, SimdLevel::avx512bw, SimdLevel::avx512vbmi2}) {
    if (level <= best_simd_level()) out.push_back(level);
  }
  return out;
}

const std::vector<std::string> kSymbols = {"a",          "b",
                                           "ab",         "aba",
                                           "l",          "s",
                                           "t",          "1",
                                           "11",         "0",
                                           " ",          "  ",
                                           "\n",         "\t",
                                           "'",          "'s",
                                           "!",          "-",
                                           "--",         "é",
                                           "É",          "中",
                                           "中",         "国",
                                           "の",         "。",
                                           "、",         "か",
                                           "\u3000",     "\u00a0",
                                           "\u0301",     "😀",
                                           "Ж",          "жа",
                                           "٣",          "{",
                                           "();",        "<|endoftext|>",
                                           "the ",       " quick",
                                           " brown fox", "Hello",
                                           "\r\n",       "    ",
                                           "_name",      "Return"};

std::string random_text(uint64_t& state, size_t most) {
  auto step = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  step();
  size_t length = (state >> 33) % most;
  uint64_t sticky = state >> 59 & 31;
  std::string text;
  size_t symbol = 0;
  for (size_t k = 0; k < length; ++k) {
    step();
    if ((state >> 35) % 32 >= sticky) symbol = (state >> 40) % kSymbols.size();
    text += kSymbols[symbol];
  }
  return text;
}

std::vector<int32_t> ids_of(const TokenBuffer& buffer) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < buffer.size(); ++i) ids.push_back(buffer[i]);
  return ids;
}

/// Texts of no more than `most` symbols each, none empty.
std::vector<std::string> random_texts(uint64_t& state, size_t count, size_t most) {
  std::vector<std::string> texts;
  while (texts.size() < count) {
    texts.push_back(random_text(state, most));
    if (texts.back().empty()) texts.pop_back();
  }
  return texts;
}

/// One tokenizer at all levels, each with scratches of several sizes that are kept between texts.
class Subject {
 public:
  explicit Subject(const Named& named) : name_(named.name) {
    for (SimdLevel level : levels()) {
      tokenizers_.push_back(std::make_unique<Tokenizer>(named.source, level));
      for (auto [num_short, num_long] :
           {std::pair<size_t, size_t>{0, 0}, {4, 2}, {size_t{1} << 12, size_t{1} << 8}}) {
        runs_.push_back(
            {tokenizers_.back().get(), level, std::make_unique<Scratch>(num_short, num_long)});
      }
    }
  }

  void check(std::string_view text) {
    std::vector<int32_t> want;
    tokenizers_[0]->encode_plain(text, want);
    for (Run& run : runs_) {
      for (IdWidth width : {IdWidth::four, IdWidth::two}) {
        if (width == IdWidth::two && run.tokenizer->id_limit() > 65536) continue;
        TokenBuffer got(width);
        run.tokenizer->encode(text, *run.scratch, got);
        ASSERT_EQ(ids_of(got), want)
            << name_ << " " << simd_level_name(run.level) << " " << text.substr(0, 300);
      }
    }
  }

  /// Short texts together; `end_id` behind each.
  void check_batch(const std::vector<std::string>& texts, int32_t end_id) {
    std::vector<int32_t> want, want_counts;
    for (const std::string& text : texts) {
      const size_t before = want.size();
      tokenizers_[0]->encode_plain(text, want);
      if (want.size() > before && end_id != kNoId) want.push_back(end_id);
      want_counts.push_back(static_cast<int32_t>(want.size() - before));
    }
    for (Run& run : runs_) {
      for (IdWidth width : {IdWidth::four, IdWidth::two}) {
        if (width == IdWidth::two && run.tokenizer->id_limit() > 65536) continue;
        TokenBuffer got(width);
        std::vector<int32_t> got_counts;
        TextBatch batch;
        const auto flush = [&] {
          std::span<const int32_t> counts;
          run.tokenizer->encode(batch, *run.scratch, got, counts, {}, end_id);
          got_counts.insert(got_counts.end(), counts.begin(), counts.end());
          batch.clear();
        };
        for (const std::string& text : texts) {
          if (!batch.has_room_for(text)) flush();
          ASSERT_TRUE(batch.has_room_for(text));
          batch.add(text);
        }
        flush();
        const std::string place = name_ + " " + std::string(simd_level_name(run.level));
        ASSERT_EQ(got_counts, want_counts) << place;
        ASSERT_EQ(ids_of(got), want) << place;
      }
    }
  }

 private:
  struct Run {
    const Tokenizer* tokenizer;
    SimdLevel level;
    std::unique_ptr<Scratch> scratch;
  };
  std::string name_;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
  std::vector<Run> runs_;
};

/// Reports when the tests below had only the constructed vocabularies.
// Two stages of normalisation use two buffers in turn; texts of all lengths meet in them.
TEST(Encode, StagesOfNormalisationKeepTextsApart) {
  TokenizerSource source = small_source(Family::gpt2, false);
  source.normal_forms = {NormalForm::nfc, NormalForm::nfkc};
  const Tokenizer tokenizer(std::move(source));
  Scratch scratch;
  const std::string parts[] = {"e\xCC\x81", "\xEF\xAC\x81", "\xE2\x80\xA6", "ab"};
  for (int length = 1; length < 60; ++length) {
    for (size_t first = 0; first < 4; ++first) {
      std::string text;
      for (int i = 0; i < length % 13 + 1; ++i)
        text += parts[(first + static_cast<size_t>(i * length)) % 4];
      TokenBuffer out;
      tokenizer.encode(text, scratch, out);
      std::vector<int32_t> ids;
      for (size_t i = 0; i < out.size(); ++i) ids.push_back(out[i]);
      ASSERT_EQ(ids, tokenizer.encode(text)) << testing::PrintToString(text);
    }
  }
}

TEST(Encode, RealVocabulariesAreHere) {
  std::string missing;
  for (const char* name : {"gpt2-vocab.json", "gpt2-merges.txt", "gpt-neox-20b-tokenizer.json",
                           "cl100k_base.tiktoken.gz"}) {
    if (shared(name).empty()) missing += std::string(" ") + name;
  }
  if (!missing.empty()) GTEST_SKIP() << "not in the shared data:" << missing;
}

TEST(Encode, EqualsThePlainLaw) {
  for (const Named& named : sources()) {
    Subject subject(named);
    uint64_t state = 17;
    for (int i = 0; i < rounds(700); ++i) {
      subject.check(random_text(state, i % 4 == 0 ? 400 : 40));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Encode, RealTexts) {
  std::string texts[] = {shared("wikitext2-valid.txt"), shared("wagahai-ja.txt"),
                         shared("gpt2-merges.txt"), shared("enwiki-sample.jsonl")};
  if (texts[0].empty()) GTEST_SKIP() << "no shared data";
  for (const Named& named : sources()) {
    Subject subject(named);
    for (const std::string& text : texts) {
      std::string_view some = std::string_view(text).substr(0, kSanitized ? 15000 : 150000);
      while (!some.empty() && (static_cast<uint8_t>(some.back()) & 0xC0) == 0x80) {
        some.remove_suffix(1);
      }
      if (!some.empty()) some.remove_suffix(1);
      subject.check(some);
      for (size_t at = 0; at + 4096 < some.size(); at += 9973) {
        size_t from = at;
        while ((static_cast<uint8_t>(some[from]) & 0xC0) == 0x80) ++from;
        size_t to = from + at % 700;
        while ((static_cast<uint8_t>(some[to]) & 0xC0) == 0x80) ++to;
        subject.check(some.substr(from, to - from));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Encode, BatchesEqualTheirTexts) {
  for (const Named& named : sources()) {
    Subject subject(named);
    uint64_t state = 29;
    const int32_t last = static_cast<int32_t>(named.source.vocab.tokens.size()) - 1;
    for (int i = 0; i < rounds(60); ++i) {
      const size_t most = i % 3 == 0 ? 200 : i % 3 == 1 ? 30 : 3;
      subject.check_batch(random_texts(state, i % 5 == 0 ? 1 : 40, most), i % 2 ? kNoId : last);
      if (HasFatalFailure()) return;
    }
  }
}

/// A batch is full of texts before it is full of bytes.
TEST(Encode, BatchesOfTheShortestTexts) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < 2 * TextBatch::kTexts + 3; ++i)
    texts.push_back(std::string(1 + i % 3 / 2, static_cast<char>(' ' + i % 90)));
  for (const Named& named : sources()) Subject(named).check_batch(texts, 0);
}

TEST(Encode, BatchesOfRealTexts) {
  std::string text = shared("wikitext2-valid.txt");
  if (text.empty()) GTEST_SKIP() << "no shared data";
  std::vector<std::string> texts;
  for (size_t at = 0; at < (kSanitized ? 6000 : 60000);) {
    size_t end = at + 1 + (at * 7919) % 300;
    while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
    texts.push_back(text.substr(at, end - at));
    at = end;
  }
  for (const Named& named : sources()) Subject(named).check_batch(texts, 0);
}

TEST(Encode, EntriesHoldTheirIds) {
  const auto held = [](const HotEntry& entry, bool narrow) {
    int32_t ids[PieceRun::kWordsPerPiece];
    const size_t count =
        narrow ? write_ids<true>(entry.words, ids) : write_ids<false>(entry.words, ids);
    return std::vector<int32_t>(ids, ids + count);
  };
  for (const bool narrow : {true, false}) {
    const int32_t largest = narrow ? 0xFFFF : 0xFFFFFF;
    std::vector<int32_t> ids;
    for (size_t count = 0; count <= HotEntry::max_ids(narrow); ++count) {
      HotEntry entry{};
      ASSERT_TRUE(entry.set_ids(narrow, ids));
      EXPECT_EQ(held(entry, narrow), ids);
      ids.push_back(count % 2 == 0 ? largest - static_cast<int32_t>(count) : 1);
    }
    HotEntry entry{};
    EXPECT_FALSE(entry.set_ids(narrow, ids)) << "one too many";
    EXPECT_EQ(held(entry, narrow), std::vector<int32_t>{});
  }
  HotEntry entry{};
  EXPECT_FALSE(entry.set_ids(false, std::vector<int32_t>{1, 0x1000000})) << "too large";
  EXPECT_EQ(held(entry, false), std::vector<int32_t>{});
}

TEST(Encode, EntriesHoldManyIdsWhoseEndIsOne) {
  const auto held = [](const HotEntry& entry, bool narrow) {
    int32_t ids[HotEntry::kMaxMany + 1];
    const size_t count =
        narrow ? write_many_ids<true>(entry.words, ids) : write_many_ids<false>(entry.words, ids);
    return std::vector<int32_t>(ids, ids + count);
  };
  for (const bool narrow : {true, false}) {
    const size_t places = HotEntry::max_ids(narrow);
    for (size_t count = places + 1; count <= HotEntry::kMaxMany; ++count) {
      std::vector<int32_t> ids(count, 220);
      for (size_t i = 0; i + 1 < places; ++i) ids[i] = static_cast<int32_t>(i) + 60000;
      HotEntry entry{.key = {1, 2}, .words = {}};
      entry.set_many_ids(narrow, ids);
      EXPECT_TRUE(entry.holds_many(narrow));
      EXPECT_EQ(entry.key, (PieceKey{1, 2}).as_many());
      EXPECT_EQ(entry.key.as_one(), (PieceKey{1, 2}));
      EXPECT_EQ(held(entry, narrow), ids);
      for (size_t other = places - 1; other < count; ++other) {
        std::vector<int32_t> mixed = ids;
        mixed[other] = 221;
        entry = {.key = {1, 2}, .words = {}};
        entry.set_many_ids(narrow, mixed);
        EXPECT_FALSE(entry.holds_many(narrow));
        EXPECT_TRUE(entry.key.is_many()) << "what else it has is in the table of long pieces";
        EXPECT_EQ(held(entry, narrow), std::vector<int32_t>{});
      }
    }
  }
}

TEST(Encode, LongPiecesAreRememberedWithTheirIds) {
  for (const size_t size : {1, 15, 16, 44, 45, 124, 125}) {
    const std::string piece(size, 'x');
    for (const size_t count : {0, 1, 20, 21, 32, 33}) {
      PieceCache cache(4);
      std::vector<int32_t> ids(count);
      for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i) * 100000;
      cache.insert(piece, 1, ids);
      const bool fits = size <= 124 && count > 0 && count <= 32;
      const std::span<const int32_t> found = cache.find(piece, 1);
      EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()),
                fits ? ids : std::vector<int32_t>{});
      EXPECT_TRUE(cache.find(piece, 0).empty()) << "another tag";
      EXPECT_TRUE(cache.find(std::string(size - 1, 'x') + "y", 1).empty());
      EXPECT_TRUE(cache.find(piece + "x", 1).empty());
    }
    EXPECT_TRUE(PieceCache(0).find(piece, 1).empty());
  }
}

TEST(Encode, BlocksOfAnySize) {
  uint64_t state = 31;
  for (const Named& named : sources()) {
    const Vocab vocab(named.source.vocab);
    const ExactCut cut(vocab);
    const HotTable hot(vocab);
    for (const SimdLevel level : levels()) {
      const PieceModel model{vocab, cut, hot, level};
      PieceScratch scratch(64, 16);
      for (int i = 0; i < rounds(20); ++i) {
        const std::string text = random_text(state, 3000);
        std::vector<int32_t> want;
        TokenBuffer got(vocab.id_limit() <= 65536 && i % 2 == 0 ? IdWidth::two : IdWidth::four);
        PieceRun run(model, text, 0, scratch, got);
        PieceCutter cutter(named.source.pretokenizer, text);
        const size_t most = size_t{1} << i % 11;
        for (bool more = true; more;) {
          size_t count = 0;
          state = state * 6364136223846793005u + 1442695040888963407u;
          for (const size_t size = (state >> 33) % (most + 1); count < size && more; ++count) {
            const std::string_view piece = cutter.next();
            if (!(more = !piece.empty())) break;
            run.room()[count] = static_cast<uint32_t>(cutter.position());
            encode_piece_plain(vocab, piece, want);
          }
          run.add(count);
        }
        run.finish();
        ASSERT_EQ(ids_of(got), want) << named.name << " " << simd_level_name(level) << " " << text;
      }
    }
  }
}

TEST(Encode, LongRunsAndPiecesOfEverySize) {
  for (const Named& named : sources()) {
    Subject subject(named);
    for (std::string_view unit : {"a", "ab", "l", " ", "\n", "-", "0", "中", "の", "aba"}) {
      if (kSanitized && unit != "ab" && unit != "中") continue;
      for (size_t bytes : {1, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 124, 125, 255, 256, 1000}) {
        std::string text;
        while (text.size() < bytes) text += unit;
        subject.check(text);
        subject.check("x" + text + "y");
        subject.check("\n" + text + "\t\t");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Encode, NeverReadsPastTheText) {
  const size_t kPage = 4096;
  void* map = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  char* end = static_cast<char*>(map) + kPage;
  ASSERT_EQ(mprotect(end, kPage, PROT_NONE), 0);
  Subject subject({"small", small_source(Family::gpt2, false)});
  uint64_t state = 23;
  for (int i = 0; i < rounds(3000); ++i) {
    // Long ones end while groups of pieces still wait; short ones are a few groups in all.
    std::string text = random_text(state, i % 8 == 0 ? 900 : 30).substr(0, kPage);
    while (!text.empty() && (static_cast<uint8_t>(text.back()) & 0x80) != 0) text.pop_back();
    std::memcpy(end - text.size(), text.data(), text.size());
    subject.check({end - text.size(), text.size()});
    if (HasFatalFailure()) return;
  }
  munmap(map, 2 * kPage);
}

TEST(Encode, Fuzz) {
  const char* seconds = std::getenv("TOK_FUZZ_SECONDS");
  const char* seed = std::getenv("TOK_FUZZ_SEED");
  uint64_t state = seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
  auto limit = std::chrono::steady_clock::now() +
               std::chrono::milliseconds(seconds != nullptr ? 1000 * std::atoi(seconds) : 500);
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const Named& named : sources()) subjects.push_back(std::make_unique<Subject>(named));
  while (std::chrono::steady_clock::now() < limit) {
    for (auto& subject : subjects) {
      SCOPED_TRACE("state " + std::to_string(state));
      subject->check(random_text(state, 200));
      if (HasFatalFailure()) return;
      subject->check_batch(random_texts(state, 30, 25), 7);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tok
