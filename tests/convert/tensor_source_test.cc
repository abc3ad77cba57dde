// SPDX-License-Identifier: MIT
// Sources out of sources: what lies in a file is found there again however it was taken apart, what
// is computed is what one number at a time would give, and blocks are the whole.
#include "convert/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "convert/canonical.h"
#include "convert/crc32.h"
#include "convert/tensor_blocks.h"
#include "convert/transpose_block.h"
#include "libindexed/format.h"
#include "trainer/ops/number.h"

namespace convert {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A matrix of bytes that stands for a mapped file's; both live as long as the test.
struct InFile {
  Bytes bytes;
  TensorSource source;
  int releases = 0;
  InFile(const std::string& dtype, int64_t rows, int64_t columns) {
    source = {dtype, {rows, columns}, {}, "file"};
    bytes = random_bytes(static_cast<size_t>(source.bytes()));
    source =
        mapped_source(dtype, {rows, columns}, "file",
                      {.data = bytes.data(), .release = [this](int64_t, int64_t) { ++releases; }});
  }
  InFile(const InFile&) = delete;
};

// The same bytes from a source that lies nowhere.
TensorSource computed(const InFile& file) {
  TensorSource source{file.source.dtype, file.source.shape, {}, "computed"};
  source.read_rows = [&file, row = source.row_bytes()](int64_t first, int64_t count,
                                                       std::byte* out) {
    std::memcpy(out, file.bytes.data() + first * row, static_cast<size_t>(count * row));
  };
  return source;
}

Bytes turned(const Bytes& in, int64_t rows, int64_t columns, int64_t size) {
  Bytes out(in.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(&out[static_cast<size_t>((c * rows + r) * size)],
                  &in[static_cast<size_t>((r * columns + c) * size)], static_cast<size_t>(size));
  return out;
}

TEST(SourcesInPlace, TakenApartAndJoinedTheyAreTheFilesBytes) {
  for (const QkvShape shape : {QkvShape{4, 4, 3}, QkvShape{6, 2, 4}, QkvShape{3, 1, 2}}) {
    const InFile file("BF16", shape.rows(), 5);
    const std::vector<TensorSource> parts = split_qkv(file.source, shape, QkvOrder::grouped);
    const TensorSource fused = join_qkv(parts[0], parts[1], parts[2], shape);
    EXPECT_EQ(fused.in_place(0, fused.rows()), file.bytes.data());
    EXPECT_EQ(parts[1].in_place(0, shape.head_size),
              file.bytes.data() + shape.heads / shape.groups * shape.head_size * 10);
    if (shape.groups > 1) {
      EXPECT_EQ(parts[1].in_place(0, parts[1].rows()), nullptr);
      EXPECT_EQ(parts[1].in_place(shape.head_size - 1, 2), nullptr);
    }
  }
  const InFile file("F32", 7, 12);  // as GPT-2's c_attn: stored (in, out)
  const QkvShape shape{2, 2, 2};
  const std::vector<TensorSource> parts =
      split_qkv(transpose(file.source), shape, QkvOrder::grouped);
  const TensorSource back = transpose(join_qkv(parts[0], parts[1], parts[2], shape));
  EXPECT_EQ(back.in_place(0, 7), file.bytes.data());
  EXPECT_EQ(back.shape, file.source.shape);
  EXPECT_EQ(
      join_rows({slice_rows(file.source, 0, 3), slice_rows(file.source, 3, 4)}).in_place(1, 5),
      file.bytes.data() + 12 * 4);
}

// Where a file has q, k and v one after another, a fused tensor is a piece of it for each of them
// and each group: rows of a matrix, or columns of a transposed one.
TEST(SourcesInPlace, PiecesAreWhereTheRowsLie) {
  const QkvShape shape{4, 2, 3};
  for (const bool transposed : {false, true}) {
    const int64_t rows = shape.rows();
    const InFile file("BF16", transposed ? 7 : rows, transposed ? rows : 7);
    const TensorSource stacked = transposed ? transpose(file.source) : file.source;
    const TensorSource fused = join_qkv(slice_rows(stacked, 0, 12), slice_rows(stacked, 12, 6),
                                        slice_rows(stacked, 18, 6), shape);
    const std::vector<MappedPiece> pieces = fused.mapped_pieces();
    ASSERT_EQ(pieces.size(), 6u);
    const Bytes wanted = fused.load();
    int64_t next = 0;
    for (const MappedPiece& piece : pieces) {
      EXPECT_EQ(piece.first, next);
      EXPECT_EQ(piece.transposed, transposed);
      EXPECT_EQ(piece.row_bytes, transposed ? rows * 2 : 14);
      next += piece.count;
      for (int64_t r = 0; r < piece.count; ++r)
        for (int64_t c = 0; c < 7; ++c) {
          const std::byte* number = transposed ? piece.data + c * piece.row_bytes + r * 2
                                               : piece.data + r * piece.row_bytes + c * 2;
          EXPECT_EQ(std::memcmp(number, &wanted[size_t(((piece.first + r) * 7 + c) * 2)], 2), 0);
        }
    }
    EXPECT_EQ(next, rows);
  }
}

TEST(SourcesInPlace, WhatIsComputedHasNoPieces) {
  const InFile file("BF16", 6, 6);
  EXPECT_EQ(file.source.mapped_pieces().size(), 1u);
  EXPECT_TRUE(computed(file).mapped_pieces().empty());
  EXPECT_TRUE(transpose(computed(file)).mapped_pieces().empty());
  EXPECT_TRUE(convert_dtype(file.source, "F32").mapped_pieces().empty());
  EXPECT_TRUE(join_rows({file.source, computed(file)}).mapped_pieces().empty());
  EXPECT_TRUE(transpose(join_rows({file.source, computed(file)})).mapped_pieces().empty());
  // The rows of two files are in two places; their transpose is nowhere.
  const InFile other("BF16", 6, 6);
  EXPECT_EQ(join_rows({file.source, other.source}).mapped_pieces().size(), 2u);
  EXPECT_TRUE(transpose(join_rows({file.source, other.source})).mapped_pieces().empty());
}

TEST(SourcesInPlace, WhatIsDamagedIsRefusedEveryWay) {
  const Bytes bytes(4 * 6 * 6);
  const TensorSource file = mapped_source(
      "F32", {6, 6}, "file", {.data = bytes.data(), .check = [](int64_t begin, int64_t end) {
                                // Row 4 is damaged.
                                if (begin < 5 * 24 && end > 4 * 24)
                                  throw indexed::FormatError("damaged");
                              }});
  Scratch scratch;
  EXPECT_NO_THROW(file.in_place(0, 4));
  EXPECT_THROW(file.in_place(3, 2), indexed::FormatError);
  EXPECT_THROW(file.mapped_pieces(), indexed::FormatError);
  EXPECT_THROW(transpose(file).mapped_pieces(), indexed::FormatError);
  EXPECT_EQ(slice_rows(file, 0, 4).mapped_pieces().size(), 1u);
  EXPECT_THROW(file.load(), indexed::FormatError);
  EXPECT_THROW(file.block(4 * 24 - 1, 2, scratch), indexed::FormatError);
  EXPECT_THROW(transpose(file).block(0, 24, scratch), indexed::FormatError);
  EXPECT_THROW(convert_dtype(file, "BF16").load(), indexed::FormatError);
  EXPECT_THROW(pick_rows(file, 6, [](int64_t row) { return 5 - row; }).load(),
               indexed::FormatError);
  EXPECT_THROW(join_columns({file, file}).load(), indexed::FormatError);
  EXPECT_NO_THROW(slice_rows(file, 5, 1).load());
}

TEST(SourcesInPlace, WhatIsCopiedIsGivenBackOnce) {
  const InFile file("BF16", 40, 30);
  int given_back = 0;
  const TensorSource copy = copied_source(
      {"BF16", file.source.shape, file.source.read_rows, "copy"}, [&] { ++given_back; });
  EXPECT_EQ(copy.load(), file.source.load());
  copy.release();
  EXPECT_EQ(given_back, 1);
  transpose(copy).release();
  EXPECT_EQ(given_back, 2);
  convert_dtype(slice_rows(copy, 3, 9), "F32").release();
  EXPECT_EQ(given_back, 3);
}

TEST(Transposes, EverySizeOfElementAndBlock) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                      {7, 100},
                                      {100, 7},
                                      {64, 64},
                                      {37, 133},
                                      {1100, 65},
                                      {8, 33},
                                      {33, 8},
                                      {9, 9},
                                      {40, 41}})
    for (const int64_t size : {1, 2, 4, 8, 16}) {
      const Bytes in = random_bytes(static_cast<size_t>(rows * columns * size));
      Bytes out(in.size());
      transpose_block(in.data(), columns * size, rows, columns, size, out.data(), rows * size);
      EXPECT_EQ(out, turned(in, rows, columns, size)) << rows << " " << columns << " " << size;
    }
}

TEST(Transposes, OfFilesOfPartsAndOfWhatIsComputed) {
  const InFile file("F16", 90, 41);
  const Bytes want = turned(file.bytes, 90, 41, 2);
  const TensorSource mixed =
      join_rows({slice_rows(file.source, 0, 30), slice_rows(computed(file), 30, 60)});
  for (const TensorSource& source : {file.source, computed(file), mixed}) {
    const TensorSource other = transpose(source);
    EXPECT_EQ(other.load(), want);
    EXPECT_EQ(other.load(), want);  // what was let go is read again
    Scratch scratch;
    for (const auto& [at, size] :
         {std::pair<int64_t, int64_t>{0, 2}, {179, 363}, {41 * 180 - 1, 1}}) {
      const std::span<const std::byte> block = other.block(at, size, scratch);
      EXPECT_TRUE(std::equal(block.begin(), block.end(), want.begin() + at));
    }
  }
  // Larger than what is turned at once, with a rest of any width.
  for (const int64_t columns : {96, 97, 127, 301}) {
    const InFile large("F16", 5003, columns);
    const Bytes all = turned(large.bytes, 5003, columns, 2);
    EXPECT_EQ(transpose(large.source).load(), all) << columns;
    EXPECT_EQ(transpose(computed(large)).load(), all) << columns;
  }
  // Columns side by side, and numbers converted, are turned before they are joined and converted.
  const TensorSource wide = join_columns({file.source, computed(file)});
  EXPECT_EQ(transpose(wide).load(), turned(wide.load(), 90, 82, 2));
  const TensorSource converted = convert_dtype(file.source, "F32");
  EXPECT_EQ(transpose(converted).load(), turned(converted.load(), 90, 41, 4));
}

TEST(Transposes, WhatIsComputedIsReadOnceByAnyNumberOfBlocks) {
  const InFile file("F32", 20, 30);
  TensorSource source = computed(file);
  std::atomic<int> reads = 0;
  source.read_rows = [inner = source.read_rows, &reads](int64_t first, int64_t count,
                                                        std::byte* out) {
    ++reads;
    inner(first, count, out);
  };
  const TensorSource other = transpose(source);
  Bytes row(80);
  for (int64_t i = 0; i < 30; ++i) other.read_rows(i, 1, row.data());
  EXPECT_EQ(reads, 1);
  other.read_rows(3, 1, row.data());
  EXPECT_EQ(reads, 2);
}

// More runs than a list holds; and rows without bytes, which a file of no size may have 2^60 of.
TEST(PickedRows, AreFoundHoweverManyRunsTheyMake) {
  const InFile file("U8", 150'000, 1);
  const TensorSource backwards =
      pick_rows(file.source, 150'000, [](int64_t row) { return 149'999 - row; });
  EXPECT_EQ(backwards.load(), Bytes(file.bytes.rbegin(), file.bytes.rend()));
  EXPECT_EQ(slice_rows(backwards, 70'000, 10).load(),
            Bytes(file.bytes.rbegin() + 70'000, file.bytes.rbegin() + 70'010));
  const int64_t most = int64_t{1} << 60;
  const TensorSource none = mapped_source("U8", {most, 0}, "file", {.data = file.bytes.data()});
  const TensorSource picked = pick_rows(none, most, [](int64_t row) { return row; });
  EXPECT_EQ(picked.rows(), most);
  EXPECT_TRUE(slice_rows(picked, 1, most - 1).load().empty());
}

// One number as it was converted before there were loops of many: through a double.
double as_double(std::string_view dtype, const std::byte* data) {
  uint16_t half = 0;
  float single = 0;
  double wide = 0;
  if (dtype == "F64") std::memcpy(&wide, data, 8);
  if (dtype == "F32") std::memcpy(&single, data, 4);
  if (dtype == "F16" || dtype == "BF16") std::memcpy(&half, data, 2);
  if (dtype == "F64") return wide;
  if (dtype == "F32") return single;
  return dtype == "F16" ? ops::f16_to_float(half) : ops::bf16_to_float(half);
}

Bytes from_double(std::string_view dtype, double value) {
  const float single = static_cast<float>(value);
  Bytes out(dtype == "F64" ? 8 : dtype == "F32" ? 4 : 2);
  const uint16_t half = dtype == "F16" ? ops::float_to_f16(single) : ops::float_to_bf16(single);
  if (dtype == "F64")
    std::memcpy(out.data(), &value, 8);
  else
    std::memcpy(out.data(), dtype == "F32" ? static_cast<const void*>(&single) : &half, out.size());
  return out;
}

// Numbers of every kind: all bits of 16, and of wider ones all exponents with hard mantissas.
Bytes numbers(std::string_view dtype) {
  Bytes out;
  const auto add = [&](const auto& bits) {
    const auto* data = reinterpret_cast<const std::byte*>(&bits);
    out.insert(out.end(), data, data + sizeof bits);
  };
  if (dtype == "F16" || dtype == "BF16")
    for (uint32_t i = 0; i < 65536; ++i) add(static_cast<uint16_t>(i));
  std::mt19937 random(5);
  for (uint32_t exponent = 0; exponent < 512; ++exponent)
    for (const uint32_t mantissa : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x7fffU,
                                    0x8000U, 0x8001U, 0x17fffU, 0x18000U, 0x3fffffU, 0x400000U,
                                    0x7fe000U, 0x7ff000U, 0x7fffffU, uint32_t(random() >> 9)}) {
      const uint32_t bits = exponent << 23 | mantissa;
      if (dtype == "F32") add(bits);
      if (dtype != "F64") continue;
      add(static_cast<double>(std::bit_cast<float>(bits)) * (1 + 0x1p-30));
      add(uint64_t{bits} << 32 | random());
    }
  return out;
}

TEST(FloatFormats, ManyNumbersAreWhatOneNumberIs) {
  for (const std::string from : {"F64", "F32", "F16", "BF16"})
    for (const std::string to : {"F64", "F32", "F16", "BF16"}) {
      if (from == to) continue;
      const Bytes in = numbers(from);
      const size_t size = from == "F64" ? 8 : from == "F32" ? 4 : 2;
      const size_t out_size = to == "F64" ? 8 : to == "F32" ? 4 : 2;
      const int64_t count = static_cast<int64_t>(in.size() / size) - 3;  // no whole vectors
      Bytes out(static_cast<size_t>(count) * out_size);
      convert_floats(from, in.data(), to, out.data(), count);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const Bytes want = from_double(to, as_double(from, &in[i * size]));
        ASSERT_EQ(std::memcmp(&out[i * out_size], want.data(), out_size), 0)
            << from << " to " << to << ": number " << i;
      }
    }
}

TEST(FloatFormats, NotFiniteNumbersAreCounted) {
  const uint16_t half[] = {0x7c00, 0xfc01, 0x7bff, 0x7f80, 0, 0xff80};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(half));
  EXPECT_EQ(count_not_finite("F16", bytes), 4);  // BF16's infinities are F16's NaN too
  EXPECT_EQ(count_not_finite("BF16", bytes), 2);
  EXPECT_EQ(count_not_finite("I16", bytes), 0);
  const std::vector<uint16_t> many(200'001, 0xffff);  // more than a counter of 16 bits holds
  EXPECT_EQ(count_not_finite("BF16", std::as_bytes(std::span(many))), 200'001);
  const std::vector<float> floats = {1, std::numeric_limits<float>::infinity(), 3, -NAN};
  EXPECT_EQ(count_not_finite("F32", std::as_bytes(std::span(floats))), 2);
  const std::vector<double> doubles = {1e300, -std::numeric_limits<double>::infinity()};
  EXPECT_EQ(count_not_finite("F64", std::as_bytes(std::span(doubles))), 1);
}

// As (float)x + 1 rounds: once, to the dtype.
TEST(FloatFormats, OneIsAddedInEveryDtype) {
  for (const std::string dtype : {"F64", "F32", "F16", "BF16"}) {
    const Bytes in = numbers(dtype);
    const size_t size = dtype == "F64" ? 8 : dtype == "F32" ? 4 : 2;
    const TensorSource source =
        mapped_source(dtype, {static_cast<int64_t>(in.size() / size)}, "file", {.data = in.data()});
    const Bytes out = add_one(source).load();
    for (size_t i = 0; i < in.size(); i += size) {
      const Bytes want = from_double(dtype, as_double(dtype, &in[i]) + 1.0);
      ASSERT_EQ(std::memcmp(&out[i], want.data(), size), 0) << dtype << ": number " << i / size;
    }
  }
}

// Computed numbers are rounded once, to what they are written as.
TEST(FloatFormats, ASumIsNotRoundedTwice) {
  for (const std::string dtype : {"F16", "BF16"}) {
    const Bytes in = numbers(dtype);
    const TensorSource source =
        mapped_source(dtype, {static_cast<int64_t>(in.size() / 2)}, "file", {.data = in.data()});
    const TensorSource sum = add_one(source);
    EXPECT_EQ(sum.dtype, dtype);
    const Bytes wide = convert_dtype(sum, "F32").load();
    for (size_t i = 0; i < in.size() / 2; ++i) {
      const Bytes want = from_double("F32", as_double(dtype, &in[2 * i]) + 1.0);
      ASSERT_EQ(std::memcmp(&wide[4 * i], want.data(), 4), 0) << dtype << ": number " << i;
    }
  }
}

TEST(TensorBlocks, AreAllBytesOnceAndGiveTheirPagesBack) {
  InFile large("BF16", 1500, 1601), small("F32", 3, 5);  // 4.8 MB: three blocks
  const InFile empty("F32", 0, 5);
  const std::vector<TensorSource> tensors = {large.source, empty.source, small.source,
                                             transpose(large.source)};
  std::vector<Bytes> seen;
  for (const TensorSource& tensor : tensors) seen.emplace_back(static_cast<size_t>(tensor.bytes()));
  std::atomic<int64_t> total = 0;
  for_each_block(tensors, [&](const TensorBlock& block) {
    EXPECT_LE(static_cast<int64_t>(block.bytes.size()), kBlockBytes);
    std::copy(block.bytes.begin(), block.bytes.end(), seen[block.tensor].begin() + block.at);
    total += static_cast<int64_t>(block.bytes.size());
  });
  EXPECT_EQ(total, 2 * large.source.bytes() + small.source.bytes());
  EXPECT_EQ(seen[0], large.bytes);
  EXPECT_EQ(seen[2], small.bytes);
  EXPECT_EQ(seen[3], turned(large.bytes, 1500, 1601, 2));
  EXPECT_EQ(large.releases, 2);  // of itself, and of its transpose
  EXPECT_EQ(small.releases, 1);
  std::vector<Bytes> loaded;
  std::vector<std::byte*> memories;
  for (const TensorSource& tensor : tensors)
    loaded.emplace_back(static_cast<size_t>(tensor.bytes()));
  for (Bytes& bytes : loaded) memories.push_back(bytes.data());
  load_all(tensors, memories);
  EXPECT_EQ(loaded, seen);
}

TEST(TensorBlocks, AnErrorComesOutAndEndsTheWalk) {
  const InFile file("BF16", 20'000, 1600);  // 31 blocks
  std::atomic<int> blocks = 0;
  EXPECT_THROW(for_each_block({&file.source, 1},
                              [&](const TensorBlock&) {
                                ++blocks;
                                throw indexed::FormatError("full");
                              }),
               indexed::FormatError);
  EXPECT_LE(blocks, 16);
}

TEST(Crc32, IsZlibs) {
  const Bytes bytes = random_bytes(100'000);
  const auto zlibs = [](uint32_t crc, std::span<const std::byte> of) {
    return static_cast<uint32_t>(
        ::crc32_z(crc, reinterpret_cast<const Bytef*>(of.data()), of.size()));
  };
  for (const uint32_t start : {0U, 1U, 0xdeadbeefU})
    for (size_t size = 0; size < 300; ++size)
      ASSERT_EQ(crc32(start, std::span(bytes).subspan(3, size)),
                zlibs(start, std::span(bytes).subspan(3, size)))
          << size;
  const std::span<const std::byte> all(bytes);
  EXPECT_EQ(crc32(0, all), zlibs(0, all));
  EXPECT_EQ(crc32_joined(crc32(0, all.first(777)), crc32(0, all.subspan(777)), 100'000 - 777),
            crc32(0, all));
}

}  // namespace
}  // namespace convert
