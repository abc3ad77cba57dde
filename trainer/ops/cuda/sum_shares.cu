// The sum of the ranks' values of one range, once copy engines have brought them here. Lives here:
// sum_shares. Bound by memory; a thread owns 16 bytes at a time. At most 128 blocks, since products
// run beside it.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/sum_shares.h"

#include <algorithm>

#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMostBlocks = 128;

// A thread adds the ranks' values of 16 bytes, a block those of 8 KiB, and so on by strides of the
// grid. No shared memory. Bound by memory: (ranks + 1) times the bytes of out.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_packs(T* out, SharesOfRanks shares, float scale, int64_t packs) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    // From the first rank's values, not from 0, to which -0 would add up to 0.
    const Pack<T> first = load_pack_once(static_cast<const T*>(shares.of[0]) + i * Pack<T>::kSize);
    float sum[Pack<T>::kSize];
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] = first.get(j);
#pragma unroll 4
    for (int rank = 1; rank < shares.ranks; ++rank) {
      const Pack<T> pack =
          load_pack_once(static_cast<const T*>(shares.of[rank]) + i * Pack<T>::kSize);
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] += pack.get(j);
    }
    Pack<T> result;
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) result.set(j, scale * sum[j]);
    store_pack(out + i * Pack<T>::kSize, result);
  }
}

// A thread adds the ranks' values of one element: what is left of packs, or is not aligned.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_values(T* out, SharesOfRanks shares, float scale, int64_t begin, int64_t end) {
  const int64_t i = begin + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= end) return;
  float sum = to_float(static_cast<const T*>(shares.of[0])[i]);
  for (int rank = 1; rank < shares.ranks; ++rank)
    sum += to_float(static_cast<const T*>(shares.of[rank])[i]);
  out[i] = from_float<T>(scale * sum);
}

}  // namespace

void sum_shares(void* out, const SharesOfRanks& shares, float scale, DType dtype, int64_t elements,
                cudaStream_t stream) {
  dispatch_float(dtype, [&]<typename T>(T*) {
    auto bits = reinterpret_cast<uintptr_t>(out);
    for (int rank = 0; rank < shares.ranks; ++rank)
      bits |= reinterpret_cast<uintptr_t>(shares.of[rank]);
    const int64_t packs = bits % 16 == 0 ? elements / Pack<T>::kSize : 0;
    if (packs > 0) {
      const auto blocks =
          static_cast<unsigned>(std::min<int64_t>(ceil_div(packs, kThreads), kMostBlocks));
      sum_packs<T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(out), shares, scale, packs);
      CUDA_CHECK(cudaGetLastError());
    }
    const int64_t begin = packs * Pack<T>::kSize;
    if (begin == elements) return;
    const auto blocks = static_cast<unsigned>(ceil_div(elements - begin, kThreads));
    sum_values<T>
        <<<blocks, kThreads, 0, stream>>>(static_cast<T*>(out), shares, scale, begin, elements);
    CUDA_CHECK(cudaGetLastError());
  });
}

}  // namespace ops::cuda
