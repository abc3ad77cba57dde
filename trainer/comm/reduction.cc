// Reductions on the host.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/reduction.h"

#include <algorithm>

#include "trainer/ops/number.h"

namespace comm {
namespace {

/// Like std::max, but a NaN is kept.
template <class T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

/// `load` widens an element of type T to A, `store` narrows the result.
template <class T, class A, class Load, class Store>
void reduce_as(void* dst, std::span<const void* const> parts, int64_t elements, Reduce reduce,
               Load load, Store store) {
  T* out = static_cast<T*>(dst);
  const A count = static_cast<A>(parts.size());
  for (int64_t i = 0; i < elements; ++i) {
    A sum = load(static_cast<const T*>(parts[0])[i]);
    for (const void* part : parts.subspan(1)) {
      const A x = load(static_cast<const T*>(part)[i]);
      sum = reduce == Reduce::max ? larger(sum, x) : static_cast<A>(sum + x);
    }
    out[i] = store(reduce == Reduce::mean ? static_cast<A>(sum / count) : sum);
  }
}

template <class T>
void reduce_plain(void* dst, std::span<const void* const> parts, int64_t elements, Reduce reduce) {
  const auto same = [](T x) { return x; };
  reduce_as<T, T>(dst, parts, elements, reduce, same, same);
}

}  // namespace

void reduce_parts(void* dst, std::span<const void* const> parts, int64_t elements, ops::DType dtype,
                  Reduce reduce) {
  using ops::DType;
  if (dtype == DType::e4m3 || dtype == DType::e5m2)
    throw ops::ShapeError(std::string("comm: reduction of ") + ops::name(dtype));
  if (reduce == Reduce::mean && (dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8))
    throw ops::ShapeError(std::string("comm: mean of ") + ops::name(dtype) + ": a float expected");
  switch (dtype) {
    case DType::f32:
      return reduce_plain<float>(dst, parts, elements, reduce);
    case DType::i32:
      return reduce_plain<int32_t>(dst, parts, elements, reduce);
    case DType::i64:
      return reduce_plain<int64_t>(dst, parts, elements, reduce);
    case DType::u8:
      return reduce_plain<uint8_t>(dst, parts, elements, reduce);
    case DType::bf16:
      return reduce_as<uint16_t, float>(dst, parts, elements, reduce, ops::bf16_to_float,
                                        ops::float_to_bf16);
    case DType::f16:
      return reduce_as<uint16_t, float>(dst, parts, elements, reduce, ops::f16_to_float,
                                        ops::float_to_f16);
    default:
      return;
  }
}

}  // namespace comm
