// SPDX-License-Identifier: MIT
// The safetensors container: written files read back, files of the reference library read, damage
// refused. Golden: tests/golden/trainer/reference.safetensors, by
// tests/reference/safetensors_golden.py.
#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "libindexed/format.h"
#include "tests/own.h"

namespace trainer {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  // A file of `header` (its size in front) and `data` zero bytes.
  std::string raw(const std::string& header, size_t data, int64_t claim = -1) const {
    const std::string p = path("raw.safetensors");
    std::ofstream out(p, std::ios::binary);
    const uint64_t n = claim < 0 ? header.size() : static_cast<uint64_t>(claim);
    out.write(reinterpret_cast<const char*>(&n), 8);
    out << header << std::string(data, '\0');
    return p;
  }

  void expect_refused(const std::string& header, size_t data, const std::string& why,
                      int64_t claim = -1) const {
    const std::string p = raw(header, data, claim);
    try {
      SafetensorsFile::open(p);
      ADD_FAILURE() << "accepted " << header;
    } catch (const indexed::FormatError& e) {
      EXPECT_THAT(e.what(), HasSubstr(why)) << header;
      EXPECT_THAT(e.what(), HasSubstr("raw.safetensors: "));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }

  tests::OwnFolder folder_;
};

std::span<const std::byte> as_bytes(const std::vector<float>& v) {
  return std::as_bytes(std::span<const float>(v));
}

TEST_F(SafetensorsTest, WhatIsWrittenInPiecesIsReadBack) {
  std::vector<float> a(6), b(1);
  std::iota(a.begin(), a.end(), 1.0F);
  b[0] = -2.5F;
  SafetensorsWriter out(path("m"),
                        {{"a.weight", "F32", {2, 3}},
                         {"none", "F32", {0, 7}},
                         {"scalar", "F32", {}},
                         {"u", "U8", {3}}},
                        {{"format", "pt"}, {"quo\"te", "caf\xc3\xa9"}});
  out.append("a.weight", as_bytes(a).first(5));
  out.append("a.weight", as_bytes(a).subspan(5));
  out.append("scalar", as_bytes(b));
  const char u[] = {'x', 'y', 'z'};
  out.append("u", std::as_bytes(std::span<const char>(u)));
  EXPECT_FALSE(fs::exists(path("m"))) << "the name appears at commit only";
  out.commit();
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(path("m"))), out.file_bytes());

  const SafetensorsFile in = SafetensorsFile::open(path("m"));
  ASSERT_EQ(in.tensors().size(), 4U);
  EXPECT_EQ(in.metadata().at("quo\"te"), "caf\xc3\xa9");
  EXPECT_EQ(in.at("a.weight").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(in.at("a.weight").dtype, "F32");
  EXPECT_EQ(std::memcmp(in.bytes(in.at("a.weight")).data(), a.data(), 24), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(in.bytes(in.at("a.weight")).data()) % 64, 0U);
  EXPECT_TRUE(in.at("scalar").shape.empty());
  EXPECT_EQ(std::memcmp(in.bytes(in.at("scalar")).data(), b.data(), 4), 0);
  EXPECT_EQ(in.bytes(in.at("none")).size(), 0U);
  EXPECT_EQ(std::memcmp(in.bytes(in.at("u")).data(), u, 3), 0);
  EXPECT_EQ(in.find("b"), nullptr);
  EXPECT_THROW(in.at("b"), indexed::FormatError);
  in.release(in.at("a.weight"));
  EXPECT_EQ(std::memcmp(in.bytes(in.at("a.weight")).data(), a.data(), 24), 0)
      << "released bytes stay readable";
}

TEST_F(SafetensorsTest, NoTensorsAtAll) {
  SafetensorsWriter(path("empty"), {}, {}).commit();
  EXPECT_TRUE(SafetensorsFile::open(path("empty")).tensors().empty());
  SafetensorsWriter(path("meta"), {}, {{"format", "pt"}}).commit();
  EXPECT_EQ(SafetensorsFile::open(path("meta")).metadata().at("format"), "pt");
}

TEST_F(SafetensorsTest, AnUnfinishedWriterLeavesNothing) {
  {
    SafetensorsWriter out(path("half"), {{"a", "F32", {4}}}, {});
    out.append("a", std::as_bytes(std::span<const char>("12345678", 8)));
    EXPECT_THROW(out.commit(), std::logic_error);
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(SafetensorsTest, WritesOutOfOrderAreOurMistake) {
  SafetensorsWriter out(path("o"), {{"a", "U8", {1}}, {"b", "U8", {1}}}, {});
  EXPECT_THROW(out.append("b", std::as_bytes(std::span<const char>("1", 1))), std::logic_error);
  EXPECT_THROW(out.append("a", std::as_bytes(std::span<const char>("12", 2))), std::logic_error);
}

TEST_F(SafetensorsTest, WriterRefusesWhatNoReaderTakes) {
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"a", "U8", {1}}, {"a", "U8", {1}}}, {}),
               indexed::FormatError);
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"__metadata__", "U8", {1}}}, {}),
               indexed::FormatError);
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"a", "F33", {1}}}, {}), indexed::FormatError);
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"a", "F32", {-1}}}, {}), indexed::FormatError);
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"a\xff", "U8", {1}}}, {}), indexed::FormatError);
  EXPECT_THROW(SafetensorsWriter(path("x"), {{"a", "F32", {int64_t{1} << 62}}}, {}),
               indexed::FormatError);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(SafetensorsTest, ReadsTheReferenceLibrarysFile) {
  const SafetensorsFile in =
      SafetensorsFile::open(std::string(GOLDEN_DIR) + "/trainer/reference.safetensors");
  EXPECT_EQ(in.metadata().at("format"), "pt");
  EXPECT_EQ(in.at("f32").shape, (std::vector<int64_t>{2, 3}));
  const float expected[] = {0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  EXPECT_EQ(std::memcmp(in.bytes(in.at("f32")).data(), expected, 24), 0);
  EXPECT_EQ(in.at("bf16").dtype, "BF16");
  const uint16_t bf16[] = {0x3f80, 0xc000, 0x3f00};  // 1, -2, 0.5
  EXPECT_EQ(std::memcmp(in.bytes(in.at("bf16")).data(), bf16, 6), 0);
  EXPECT_EQ(in.at("f16").dtype, "F16");
  EXPECT_EQ(in.at("i64").dtype, "I64");
  EXPECT_EQ(in.at("bool").dtype, "BOOL");
  EXPECT_TRUE(in.at("scalar").shape.empty());
  EXPECT_EQ(in.at("empty").shape, (std::vector<int64_t>{0, 5}));
}

TEST_F(SafetensorsTest, DamagedHeadersAreRefused) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  ASSERT_EQ(SafetensorsFile::open(raw(good + "   ", 4)).tensors().size(), 1U);
  expect_refused(good, 3, "unfinished or foreign");
  expect_refused(good, 5, "unfinished or foreign");
  expect_refused(good, 4, "header of", 1 << 20);
  expect_refused(good, 4, "header of", 100'000'001);
  expect_refused("", 0, "does not start with {");
  expect_refused(" " + good, 4, "does not start with {");
  expect_refused(good.substr(0, good.size() - 1), 4, "not JSON");
  expect_refused(good + "x", 4, "not JSON");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                 8, "stands twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                 6, "hole or overlap");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, "hole or overlap");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]}})", 5, "expected 4");
  expect_refused(R"({"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}})", 4, "unknown dtype");
  expect_refused(R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "negative");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", 4, "fraction");
  expect_refused(R"({"a":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}})", 4, "a string");
  expect_refused(R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", 4, "an array");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,5]}})", 4,
                 "not two numbers");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4]}})", 4, "is missing");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", 4,
                 "unknown field");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
                 "stands twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
                 "overflows");
  expect_refused(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "inside a byte");
  expect_refused(R"({"a":7})", 0, "number 7");
  expect_refused(R"({"__metadata__":{"k":1}})", 0, "number 1");
  expect_refused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "twice");
}

TEST_F(SafetensorsTest, EveryCutOfAFileIsRefused) {
  SafetensorsWriter out(path("cut"), {{"a", "F32", {16}}}, {{"format", "pt"}});
  out.append("a", as_bytes(std::vector<float>(16)));
  out.commit();
  const auto size = fs::file_size(path("cut"));
  for (auto cut = size; cut-- > 0;) {
    fs::resize_file(path("cut"), cut);
    EXPECT_THROW(SafetensorsFile::open(path("cut")), indexed::FormatError) << cut;
  }
}

TEST_F(SafetensorsTest, AMissingFileNamesItself) {
  try {
    SafetensorsFile::open(path("absent"));
    ADD_FAILURE();
  } catch (const std::system_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("absent"));
  }
}

}  // namespace
}  // namespace trainer
