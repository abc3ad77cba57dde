// SPDX-License-Identifier: MIT
// transpose_block.h: squares of a vector's lanes, in tiles that are one cache line wide and high. A
// square of 2^n lanes is transposed in n rounds, each of which interleaves the upper half of its
// rows with the lower half. That is one instruction per row on every processor with vectors of 16
// bytes.
#include "convert/transpose_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace convert {
namespace {

constexpr int64_t kLine = 64;

template <class T>
struct Vector {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  typedef T type __attribute__((vector_size(16)));
};

/// Lanes of a and b in turn, from lane kFirst of both on.
template <class V, int kFirst, int... kLane>
[[gnu::always_inline]] inline void zip(V& out, const V& a, const V& b,
                                       std::integer_sequence<int, kLane...>) noexcept {
  constexpr int kLanes = sizeof...(kLane);
  out = __builtin_shufflevector(a, b, (kFirst + kLane / 2 + kLane % 2 * kLanes)...);
}

template <class T>
[[gnu::always_inline]] inline void interleave(
    typename Vector<T>::type (&rows)[Vector<T>::kLanes]) noexcept {
  using V = typename Vector<T>::type;
  constexpr int kLanes = Vector<T>::kLanes;
  constexpr std::make_integer_sequence<int, kLanes> kIndices;
  V out[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes / 2; ++i) {
    zip<V, 0>(out[2 * i], rows[i], rows[i + kLanes / 2], kIndices);
    zip<V, kLanes / 2>(out[2 * i + 1], rows[i], rows[i + kLanes / 2], kIndices);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = out[i];
}

template <class T>
[[gnu::always_inline]] inline void square(const std::byte* in, int64_t in_row, std::byte* out,
                                          int64_t out_row) noexcept {
  constexpr int kLanes = Vector<T>::kLanes;
  typename Vector<T>::type rows[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(&rows[i], in + i * in_row, 16);
#pragma GCC unroll 4
  for (int turn = 1; turn < kLanes; turn *= 2) interleave<T>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(out + i * out_row, &rows[i], 16);
}

void one_by_one(const std::byte* in, int64_t in_row, int64_t rows, int64_t columns, int64_t element,
                std::byte* out, int64_t out_row) noexcept {
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out + c * out_row + r * element, in + r * in_row + c * element,
                  static_cast<size_t>(element));
}

// Squares at most `kLine` bytes wide and high from (r0, c0) on. One that would end beyond the block
// is moved back, over what was moved already: single elements take many times as long.
template <class T>
[[gnu::always_inline]] inline void tile(const std::byte* in, int64_t in_row, int64_t rows,
                                        int64_t columns, int64_t r0, int64_t c0, std::byte* out,
                                        int64_t out_row) noexcept {
  constexpr int64_t kSize = sizeof(T), kLanes = Vector<T>::kLanes, kTile = kLine / kSize;
  for (int64_t c = c0; c < std::min(c0 + kTile, columns); c += kLanes)
    for (int64_t r = r0; r < std::min(r0 + kTile, rows); r += kLanes) {
      const int64_t row = std::min(r, rows - kLanes), column = std::min(c, columns - kLanes);
      square<T>(in + row * in_row + column * kSize, in_row, out + column * out_row + row * kSize,
                out_row);
    }
}

// Rows in bands of one cache line of `out`; within a band, one cache line of `in` at a time, while
// the same one of the next band is fetched: rows are too far apart for a processor to foresee them.
template <class T>
void by_vectors(const std::byte* in, int64_t in_row, int64_t rows, int64_t columns, std::byte* out,
                int64_t out_row) noexcept {
  constexpr int64_t kSize = sizeof(T), kTile = kLine / kSize;
  if (std::min(rows, columns) < Vector<T>::kLanes)
    return one_by_one(in, in_row, rows, columns, kSize, out, out_row);
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (int64_t r = r0 + kTile; r < std::min(r0 + 2 * kTile, rows); ++r)
        __builtin_prefetch(in + r * in_row + c0 * kSize);
      tile<T>(in, in_row, rows, columns, r0, c0, out, out_row);
    }
}

}  // namespace

void transpose_block(const std::byte* in, int64_t in_row, int64_t rows, int64_t columns,
                     int64_t element, std::byte* out, int64_t out_row) noexcept {
  switch (element) {
    case 1:
      return by_vectors<uint8_t>(in, in_row, rows, columns, out, out_row);
    case 2:
      return by_vectors<uint16_t>(in, in_row, rows, columns, out, out_row);
    case 4:
      return by_vectors<uint32_t>(in, in_row, rows, columns, out, out_row);
    case 8:
      return by_vectors<uint64_t>(in, in_row, rows, columns, out, out_row);
    default:
      return one_by_one(in, in_row, rows, columns, element, out, out_row);
  }
}

}  // namespace convert
