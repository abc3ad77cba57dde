// SPDX-License-Identifier: MIT
// Manifest: what is written reads back; every damaged byte of a dataset is found; a damaged
// manifest is refused and never crashes. Also the JSON text and the checksum beneath.
#include "libindexed/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "libindexed/builder.h"
#include "libindexed/crc32c.h"
#include "libindexed/json.h"
#include "libindexed/mapped_file.h"
#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xe3069283u);            // RFC 3720
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\0'))), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(crc32c(0, bytes_of("1234")), bytes_of("56789")), 0xe3069283u);
  std::mt19937 random(1);
  // Short inputs, and those that are processed in three parts of 1,024 bytes.
  for (size_t size = 0; size < 20000; size += size < 200 ? 1 : 431) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_EQ(crc32c(7, bytes_of(text)), crc32c_by_table(7, bytes_of(text)));
  }
}

TEST(Crc32c, OfTwoPartsIsJoined) {
  std::mt19937 random(2);
  std::string text(100000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (const size_t size : {0, 1, 2, 3, 7, 8, 255, 4096, 65537, 100000}) {
    const auto first = bytes_of(text).first(text.size() - size);
    const auto last = bytes_of(text).last(size);
    EXPECT_EQ(crc32c_joined(crc32c(0, first), crc32c(0, last), static_cast<int64_t>(size)),
              crc32c(0, bytes_of(text)));
  }
}

TEST(Manifest, ChecksumsOfPartsMakeThoseOfBlocks) {
  std::mt19937 random(3);
  std::string text(static_cast<size_t>(2 * kBlockBytes) + 12345, '\0');
  for (char& c : text) c = static_cast<char>(random());
  Segment whole;
  whole.add(bytes_of(text));
  Segment parts;
  for (std::string_view rest = text; !rest.empty();) {
    // Some end where a block does.
    const size_t to_block = static_cast<size_t>(kBlockBytes - parts.bytes % kBlockBytes);
    const size_t size = random() % 8 == 0 ? to_block : random() % 3000000;
    const auto part = bytes_of(rest.substr(0, size));
    parts.add(part, crc32c(0, part));
    rest.remove_prefix(part.size());
  }
  EXPECT_EQ(parts.bytes, whole.bytes);
  EXPECT_EQ(parts.block_crc32c, whole.block_crc32c);
}

TEST(Json, WritesAsPythonDoes) {
  EXPECT_EQ(python_float(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(1.5e300), "1.5e+300");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  Json json;
  json.set("a", "\"\\/\b\f\n\r\t\x01\x7f\xc3\xa9\xf0\x9f\x98\x80\xff");
  json.set("b", Json::Array{});
  json.set("c", Json::Object{});
  json.set("d", Json::Array{1, -2.5, true, Json()});
  EXPECT_EQ(
      json.dump(4),
      "{\n    \"a\": \"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\\u00e9\\ud83d\\ude00\\udcff\",\n    "
      "\"b\": [],\n"
      "    \"c\": {},\n    \"d\": [\n        1,\n        -2.5,\n        true,\n        null\n    "
      "]\n}");
}

TEST(Json, ReadsAndRefuses) {
  const Json json =
      Json::parse(" {\"k\": [1, 2.5, \"\\u00e9\\ud83d\\ude00\\n\", null, false]} ", "t");
  const Json::Array& items = *json.find("k")->array();
  EXPECT_EQ(*items[0].integer(), 1);
  EXPECT_EQ(*items[2].string(), "\xc3\xa9\xf0\x9f\x98\x80\n");
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "\"\\ud800\"", "\"\\x\"", "1 2", "tru",
                          "01x", "\"a\nb\"", "+", "{\"a\":1,}", "\"\\u12\"", "--1"}) {
    EXPECT_THROW(Json::parse(bad, "t"), FormatError) << bad;
  }
  EXPECT_THROW(Json::parse(std::string(100000, '['), "t"), FormatError);
  // 64 levels around a value, not 65.
  const auto nested = [](size_t levels) {
    return Json::parse(std::string(levels, '[') + "1" + std::string(levels, ']'), "t");
  };
  EXPECT_NO_THROW(nested(64));
  EXPECT_THROW(nested(65), FormatError);
}

Manifest build(const std::string& prefix) {
  IndexedDatasetBuilder builder(prefix, {.dtype = DType::uint16});
  std::vector<int32_t> tokens(5'000'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 50000);
  for (int k = 0; k < 4; ++k) builder.add_document(std::span<const int32_t>(tokens));
  builder.finish({.tool = "test 1",
                  .command = {"test", "--x"},
                  .tokenizer = "GPT2",
                  .tokenizer_hash = "abc",
                  .vocab_size = 50257,
                  .configuration_hash = "def",
                  .eod_token = 50256,
                  .sources = {{"a.jsonl", 0, 3, 1}, {"b\xff.jsonl", 3, 1, 9}},
                  .shuffle_unit = "",
                  .shuffle_seed = 0});
  return *read_manifest(prefix);
}

TEST(Manifest, RoundTrip) {
  ScratchFolder folder;
  const Manifest manifest = build(folder / "m");
  EXPECT_EQ(manifest.dtype, "uint16");
  EXPECT_EQ(manifest.num_tokens, 20'000'000);
  EXPECT_EQ(manifest.bin_bytes, 40'000'000);
  EXPECT_EQ(manifest.bin.size(), 1u);
  EXPECT_EQ(manifest.bin[0].block_crc32c.size(), 3u);
  EXPECT_EQ(manifest.provenance.command.size(), 2u);
  EXPECT_EQ(manifest.provenance.sources[1].first_line, 9);
  EXPECT_EQ(write_manifest(parse_manifest(write_manifest(manifest), "t")),
            write_manifest(manifest));
  EXPECT_EQ(source_of(manifest.provenance.sources, 2)->line, 3);
  EXPECT_EQ(source_of(manifest.provenance.sources, 3)->line, 9);
  EXPECT_FALSE(source_of(manifest.provenance.sources, 4));
  SourceRun packed;  // whose lines are not known
  packed.path = "p";
  packed.num_documents = 2;
  packed.first_line = 0;
  EXPECT_EQ(source_of(std::vector{packed}, 1)->line, 0);
  EXPECT_FALSE(source_of(std::vector{packed}, 2));
  EXPECT_FALSE(read_manifest(folder / "none"));
}

TEST(Manifest, FindsDamage) {
  ScratchFolder folder;
  const Manifest manifest = build(folder / "m");
  std::string bin = read_whole(folder / "m.bin");
  EXPECT_FALSE(find_damage(bytes_of(bin), manifest.bin));
  EXPECT_FALSE(find_damage(bytes_of(read_whole(folder / "m.idx")), manifest.idx));
  bin[17'000'000] ^= 1;
  EXPECT_EQ(find_damage(bytes_of(bin), manifest.bin)->offset, kBlockBytes);
  bin[17'000'000] ^= 1;
  EXPECT_EQ(find_damage(bytes_of(bin.substr(0, bin.size() - 1)), manifest.bin)->offset,
            2 * kBlockBytes);
  EXPECT_EQ(find_damage(bytes_of(bin + "x"), manifest.bin)->bytes, 1);
  std::string idx = read_whole(folder / "m.idx");
  for (size_t bit = 0; bit < idx.size() * 8; ++bit) {
    idx[bit / 8] = static_cast<char>(idx[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(find_damage(bytes_of(idx), manifest.idx)) << bit;
    idx[bit / 8] = static_cast<char>(idx[bit / 8] ^ (1 << bit % 8));
  }
}

TEST(Manifest, MergedChecksumsStand) {
  ScratchFolder folder;
  const Manifest part = build(folder / "m");
  IndexedDatasetBuilder builder(folder / "twice", {.dtype = DType::uint16});
  const IndexedDataset dataset = IndexedDataset::open(folder / "m");
  builder.add_dataset(dataset, part.bin);
  builder.add_document(std::vector<int32_t>{1});
  builder.add_dataset(dataset, part.bin);
  builder.finish();
  const Manifest manifest = *read_manifest(folder / "twice");
  EXPECT_EQ(manifest.bin.size(), 3u);
  EXPECT_FALSE(find_damage(bytes_of(read_whole(folder / "twice.bin")), manifest.bin));
  EXPECT_FALSE(find_damage(bytes_of(read_whole(folder / "twice.idx")), manifest.idx));
}

// Of NullTokenizer's ids, and of a dataset that does not say, nobody knows whose they are.
TEST(Manifest, ATokenizerIsAnotherOneWhereBothAreKnown) {
  const auto from = [](const char* hash) {
    Provenance made;
    made.tokenizer = "t.json";
    made.tokenizer_hash = hash;
    return made;
  };
  KnownTokenizer known;
  for (const char* unknown : {"", "NullTokenizer"}) {
    EXPECT_EQ(known.other(from("1")), "");
    known.learn("n", from(unknown));
  }
  EXPECT_EQ(known.identity, "");
  known.learn("a", from("1"));
  EXPECT_EQ(known.other(from("1")), "");
  EXPECT_EQ(known.other(from("NullTokenizer")), "");
  EXPECT_EQ(known.other(from("")), "");
  EXPECT_EQ(known.other(from("2")),
            "its tokenizer (t.json) differs from that of a (t.json): the same ids may mean other "
            "tokens");
  known.learn("b", from("2"));
  EXPECT_EQ(known.identity, "1");
}

TEST(Manifest, DamagedTextNeverCrashes) {
  ScratchFolder folder;
  const std::string good = write_manifest(build(folder / "m"));
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned i = random() % 4 + 1; i > 0; --i) {
      text[random() % text.size()] = "\"{}[]:,0129-.eEx\\u \n\xff"[random() % 21];
    }
    if (random() % 10 == 0) text.resize(random() % text.size());
    try {
      parse_manifest(text, "t");
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace indexed
