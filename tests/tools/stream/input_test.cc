// SPDX-License-Identifier: MIT
// Tests of unpacking: members one behind another, reads of any size, and every kind of damage,
// which must always be an error and never a short text.
#include "tools/stream/input.h"

#include <random>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tools/stream/packing.h"

namespace stream {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string read_all(const std::string& path, size_t piece = 1 << 16, UnpackLimit limit = {}) {
  Input input(path, limit);
  std::string out;
  std::string buffer(piece, '\0');
  while (const size_t size = input.read(buffer)) out.append(buffer, 0, size);
  return out;
}

std::string error_of(const std::string& path, UnpackLimit limit = {}) {
  try {
    read_all(path, 1 << 16, limit);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

/// Text with both repetition and noise, so that packed forms have many blocks.
std::string sample_text(size_t size) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < size) {
    text += "a line of text number " + std::to_string(random()) + "\n";
    for (int i = 0; i < 9; ++i) text += static_cast<char>(random());
  }
  text.resize(size);
  return text;
}

class AnyKind : public testing::TestWithParam<Kind> {};
class Packed : public testing::TestWithParam<Kind> {};

TEST_P(AnyKind, ComesOutWholeForReadsOfAnySize) {
  const std::string text = sample_text(400000);
  const TestFile file(pack(GetParam(), text));
  EXPECT_EQ(Input(file.path).kind(), GetParam());
  for (const size_t piece : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    EXPECT_TRUE(read_all(file.path, piece) == text) << piece;
  }
}

TEST_P(AnyKind, MembersOneBehindAnother) {
  const std::string text = sample_text(50000);
  const std::string packed = pack(GetParam(), text);
  const TestFile file(packed + pack(GetParam(), "") + packed);
  EXPECT_TRUE(read_all(file.path) == text + text);
}

TEST_P(Packed, EveryTruncationIsAnError) {
  const std::string packed = pack(GetParam(), sample_text(3000));
  for (size_t size = 1; size < packed.size(); ++size) {
    const TestFile file(std::string_view(packed).substr(0, size));
    if (Input(file.path).kind() == Kind::plain) continue;  // not even the magic bytes are whole
    EXPECT_THAT(error_of(file.path), HasSubstr("the file is cut short")) << size;
  }
}

TEST_P(Packed, EveryFlippedBitIsAnErrorOrChangesNothing) {
  if (GetParam() == Kind::lzma) GTEST_SKIP() << "lzma has no checksum";
  const std::string text = sample_text(2000);
  const std::string packed = pack(GetParam(), text);
  for (size_t bit = 0; bit < packed.size() * 8; bit += 3) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    if (kind_of(damaged) != GetParam()) continue;
    const TestFile file(damaged);
    try {  // a header's time stamp or name may change
      EXPECT_TRUE(read_all(file.path) == text) << bit;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), StartsWith(file.path + ":byte "));
    }
  }
}

TEST_P(Packed, ZerosMayFollowOtherBytesMayNot) {
  const std::string packed = pack(GetParam(), "text\n");
  EXPECT_EQ(read_all(TestFile(packed + std::string(100000, '\0')).path), "text\n");
  const TestFile file(packed + std::string(3, '\0') + "x");
  EXPECT_EQ(
      error_of(file.path),
      file.path + ":byte " + std::to_string(packed.size() + 4) + ": " +
          std::string(name_of(GetParam())) +
          " data ends, but other bytes follow: expected the end of the file or another member");
}

TEST_P(Packed, BombsStopAtTheLimit) {
  const TestFile file(pack(GetParam(), std::string(8 << 20, '\n')));
  const UnpackLimit limit{.ratio = 100, .allowance = 1 << 20};
  EXPECT_THAT(error_of(file.path, limit), HasSubstr("unpacks to more than 100 times its size"));
  EXPECT_EQ(read_all(file.path).size(), size_t{8} << 20);
}

// Without a ratio the allowance alone counts: to the byte.
TEST_P(Packed, TheLimitIsExact) {
  constexpr int64_t kSize = 1000;
  const TestFile file(pack(GetParam(), std::string(kSize, 'x')));
  for (const int64_t more : {-1, 0, 1}) {
    const std::string error = error_of(file.path, {.ratio = 0, .allowance = kSize + more});
    if (more < 0) {
      EXPECT_THAT(error, HasSubstr("unpacks to more than 0 times its size"));
    } else {
      EXPECT_EQ(error, "no error") << more;
    }
  }
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  return std::string(name_of(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyKind,
                         testing::Values(Kind::plain, Kind::gzip, Kind::bzip2, Kind::xz, Kind::zstd,
                                         Kind::lzma),
                         kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, Packed,
                         testing::Values(Kind::gzip, Kind::bzip2, Kind::xz, Kind::zstd, Kind::lzma),
                         kind_name);

// A frame may ask for a window of 128 MiB, which this reader has, and not for more.
TEST(Zstd, WindowsOfMoreThan128MiBAreNamed) {
  for (const int log : {27, 28}) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    std::string packed(1 << 10, '\0');
    ZSTD_outBuffer out{packed.data(), packed.size(), 0};
    ZSTD_inBuffer in{"text", 4, 0};
    // Without the whole size, the frame's header has the window.
    ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
    ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
    ZSTD_freeCCtx(context);
    const TestFile file(packed.substr(0, out.pos));
    if (log == 27)
      EXPECT_EQ(error_of(file.path), "no error");
    else
      EXPECT_THAT(error_of(file.path), HasSubstr("needs a window of more than 128 MiB"));
  }
}

TEST(Input, PlainTextThatLooksAlmostPacked) {
  for (const char* text : {"", "B", "BZh9 is text", "(\xb5", "P", "A*M\x18 is text"}) {
    EXPECT_EQ(read_all(TestFile(text).path), text);
  }
}

/// The header of an .lzma file, and the first bytes of its data.
std::string lzma_head(uint64_t dictionary, uint64_t unpacked) {
  std::string head = "\x5d";
  for (int i = 0; i < 4; ++i) head += static_cast<char>(dictionary >> 8 * i);
  for (int i = 0; i < 8; ++i) head += static_cast<char>(unpacked >> 8 * i);
  return head + std::string(3, '\0');
}

TEST(Input, LzmaIsRecognisedByItsWholeHeader) {
  constexpr uint64_t kUnknown = ~uint64_t{0};
  for (const uint64_t dictionary : {1u << 16, 3u << 16, 1u << 23, 3u << 25, 5u << 20, 1u << 31}) {
    EXPECT_EQ(kind_of(lzma_head(dictionary, kUnknown)), Kind::lzma) << dictionary;
    EXPECT_EQ(kind_of(lzma_head(dictionary, 0)), Kind::lzma);
    EXPECT_EQ(kind_of(lzma_head(dictionary, (uint64_t{1} << 38) - 1)), Kind::lzma);
    EXPECT_EQ(kind_of(lzma_head(dictionary, uint64_t{1} << 38)), Kind::plain);
  }
  EXPECT_EQ(kind_of(lzma_head(0, kUnknown)), Kind::plain);
  EXPECT_EQ(kind_of(lzma_head(5u << 16, kUnknown)), Kind::plain) << "no dictionary of this size";
  std::string head = lzma_head(1u << 23, kUnknown);
  EXPECT_EQ(kind_of(std::string_view(head).substr(0, 13)), Kind::plain);
  head[13] = 'x';
  EXPECT_EQ(kind_of(head), Kind::plain);
  // Nothing of the text changes.
  const std::string text("]\0\0 is text\0\0\0\0\n", 17);
  EXPECT_EQ(read_all(TestFile(text).path), text);
}

TEST(Input, LzmaOfKnownSizeIsReadToItsEnd) {
  // As LZMA SDK's encoder makes it: the size in the header, no mark at the end.
  std::string packed = pack_lzma(std::string(1000, 'x'));
  packed.replace(5, 8, std::string("\xe8\x03\0\0\0\0\0\0", 8));
  EXPECT_EQ(read_all(TestFile(packed).path), std::string(1000, 'x'));
  EXPECT_THAT(error_of(TestFile(packed.substr(0, 20)).path), HasSubstr("the file is cut short"));
}

TEST(Input, CompressIsRefusedTextThatBeginsLikeItIsNot) {
  for (const char flags : {'\x90', '\x89', '\x10'}) {
    EXPECT_THAT(error_of(TestFile("\x1f\x9d" + std::string(1, flags) + "data").path),
                HasSubstr(": a file of compress (.Z), which `gzip -d` unpacks: expected"));
  }
  for (const char* text : {"\x1f\x9d", "\x1f\x9d\x20", "\x1f\x9dtext", "\x1f\x88"})
    EXPECT_EQ(read_all(TestFile(text).path), text);
}

TEST(Input, ForeignFilesAreNamed) {
  const TestFile zip("PK\x03\x04 and so on");
  EXPECT_EQ(
      error_of(zip.path),
      zip.path + ": a zip archive: expected UTF-8 text, plain or as gzip, bzip2, xz, lzma or zstd");
  EXPECT_THAT(error_of(TestFile("\xff\xfe{").path), HasSubstr("UTF-16"));
}

TEST(Input, AFileThatIsCutWhileItIsReadIsNoWholeInput) {
  const std::string text(1 << 20, 'x');
  for (const Kind kind : {Kind::plain, Kind::gzip}) {
    const std::string packed = pack(kind, text);
    const TestFile file(packed + std::string(8192, kind == Kind::plain ? 'y' : '\0'));
    Input input(file.path);
    std::string part(1 << 19, '\0');
    ASSERT_GT(input.read(part), 0u);
    // What is left would be a whole input; only a few of the file's bytes are gone.
    ASSERT_EQ(truncate(file.path.c_str(), static_cast<off_t>(packed.size() + 4096)), 0);
    EXPECT_THROW(while (input.read(part) > 0){}, InputError) << name_of(kind);
  }
}

TEST(Input, WhatCannotBeOpened) {
  try {
    Input input("/no/such/file");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOENT);
    EXPECT_THAT(error.what(), StartsWith("/no/such/file: "));
  }
  EXPECT_THROW(read_all("/"), std::system_error);
}

}  // namespace
}  // namespace stream
