// What cuDNN's attention is told besides q, k and v: which probabilities are dropped, and which
// keys a query may not see. Lives here: the kernels that write both into scratch, before each
// call. Not here: cuDNN's graphs (sdpa.cc), who calls (attention.cu). Shapes as in sdpa.h.
// The dropout mask is a function of sample, head, query and key alone, as the twin has it: any
// split of the batch or of the heads draws the same one.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/attention_layout.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/sdpa.h"

namespace ops::cuda {
namespace {

constexpr int kRows = 8;    // warps of a block, a row each
constexpr int kTile = 256;  // columns that no tile of cuDNN straddles: what lies behind is not read
constexpr int kPackSize = 8;  // keys that share one draw of Philox

struct MaskArgs {
  DropoutDraw draw;
  uint32_t site_of_head0;
  int64_t rows, heads, length, pitch;
  uint16_t one;
  bool causal;
};

// A warp owns one row (sample, head, query), a lane 8 keys a turn: one draw, one store of 16 bytes.
// Behind the diagonal zeros are written to the end of the tile. Bound by stores and by Philox
// alike: about 100 instructions for 16 bytes.
__global__ void __launch_bounds__(kRows* kWarp) dropout_mask_kernel(uint16_t* mask, MaskArgs a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= a.rows) return;
  const auto query = static_cast<uint32_t>(row % a.length);
  const auto head = static_cast<uint32_t>(row / a.length % a.heads);
  const auto sample = static_cast<uint32_t>(row / a.length / a.heads);
  const uint32_t keys = a.causal ? query + 1 : static_cast<uint32_t>(a.length);
  const uint32_t end = min(static_cast<uint32_t>(a.pitch),
                           (keys + kTile - 1) / kTile * static_cast<uint32_t>(kTile));
  const auto iteration = static_cast<uint32_t>(a.draw.state->iteration);
  for (uint32_t key = threadIdx.x * kPackSize; key < end; key += kWarp * kPackSize) {
    uint32_t packed[4] = {};
    if (key < keys) {
      const uint4 w = philox(make_uint4(key / kPackSize, a.draw.first_position + query,
                                        a.draw.first_sample + sample, iteration),
                             a.draw.seed, a.site_of_head0 + head);
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t low = (words[i] & 0xffffu) >= a.draw.threshold ? a.one : 0u;
        const uint32_t high = (words[i] >> 16) >= a.draw.threshold ? a.one : 0u;
        packed[i] = low | high << 16;
      }
    }
    *reinterpret_cast<uint4*>(mask + row * a.pitch + key) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

// The same owners; a row is (sample, query). Bound by stores.
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

void fill_dropout_mask(void* mask, const SdpaShape& s, const Dropout& dropout,
                       cudaStream_t stream) {
  const MaskArgs args{.draw = dropout_draw(dropout, s.batch),
                      .site_of_head0 = dropout.site + static_cast<uint32_t>(dropout.first_head),
                      .rows = s.batch * s.heads * s.length,
                      .heads = s.heads,
                      .length = s.length,
                      .pitch = sdpa_pitch(s.length),
                      .one = static_cast<uint16_t>(s.dtype == DType::f16 ? 0x3c00 : 0x3f80),
                      .causal = s.causal};
  dropout_mask_kernel<<<static_cast<unsigned>(ceil_div(args.rows, kRows)), dim3(kWarp, kRows), 0,
                        stream>>>(static_cast<uint16_t*>(mask), args);
  CUDA_CHECK(cudaGetLastError());
}

void fill_document_bias(void* bias, const SdpaShape& s, const int32_t* first_key,
                        int64_t whole_batch, cudaStream_t stream) {
  // -1e30 in bf16, -65504 in fp16: finite, so that a tile of hidden keys is no 0 / 0, and so low
  // that its exponential is 0.
  const uint32_t hidden = s.dtype == DType::f16 ? 0xfbff : 0xf14a;
  const int64_t rows = s.batch * s.length;
  document_bias_kernel<<<static_cast<unsigned>(ceil_div(rows, kRows)), dim3(kWarp, kRows), 0,
                         stream>>>(static_cast<uint16_t*>(bias), first_key, rows, s.length,
                                   whole_batch, sdpa_pitch(s.length), hidden);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace ops::cuda
