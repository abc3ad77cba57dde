// The bias that hides keys of other documents from cuDNN's attention.
// Lives here: the kernel that writes the bias into scratch before each call. Not here: cuDNN's
// graphs (sdpa.cc), who calls (attention.cu). Shapes as in sdpa.h.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/attention_layout.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/sdpa.h"

namespace ops::cuda {
namespace {

constexpr int kRows = 8;      // warps of a block, one row each
constexpr int kPackSize = 8;  // keys of one store

// A warp owns one row (sample, query), a lane 8 keys per iteration. Bound by stores.
__global__ void __launch_bounds__(kRows* kWarp)
    document_bias_kernel(uint16_t* bias, const int32_t* first_key, int64_t rows, int64_t length,
                         int64_t batch, int64_t pitch, uint32_t hidden) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;
  const auto first = static_cast<uint32_t>(first_key[row % length * batch + row / length]);
  for (uint32_t key = threadIdx.x * kPackSize; key < pitch; key += kWarp * kPackSize) {
    uint32_t packed[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      packed[i] =
          (key + 2 * i < first ? hidden : 0u) | (key + 2 * i + 1 < first ? hidden << 16 : 0u);
    *reinterpret_cast<uint4*>(bias + row * pitch + key) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

}  // namespace

void fill_document_bias(void* bias, const SdpaShape& s, const int32_t* first_key,
                        int64_t whole_batch, cudaStream_t stream) {
  // -1e30 in bf16, -65504 in fp16: finite, so that a tile of hidden keys does not give 0 / 0, and
  // so low that its exponential is 0.
  const uint32_t hidden = s.dtype == DType::f16 ? 0xfbff : 0xf14a;
  const int64_t rows = s.batch * s.length;
  document_bias_kernel<<<static_cast<unsigned>(ceil_div(rows, kRows)), dim3(kWarp, kRows), 0,
                         stream>>>(static_cast<uint16_t*>(bias), first_key, rows, s.length,
                                   whole_batch, sdpa_pitch(s.length), hidden);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace ops::cuda
