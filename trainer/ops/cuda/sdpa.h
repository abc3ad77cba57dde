// Fused attention through cuDNN's graph front end: one graph for each shape, forward and backward.
// Here: the shape as cuDNN sees it and the cache of graphs. Not here: how tensors are packed
// (attention.cu), attention that cuDNN does not support (attention_plain.cu). sdpa.cc alone
// includes cudnn_frontend.h; attention_bias.cu fills biases. Strides in elements.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "trainer/ops/tensor.h"

namespace ops::cuda {

/// One attention: q, k, v and out with their strides over (batch, head, position); columns are
/// contiguous.
struct SdpaShape {
  int64_t batch = 0, heads = 0, groups = 0, length = 0, channels = 0;
  int64_t q_stride[3] = {}, kv_stride[3] = {}, out_stride[3] = {};  ///< batch, head, position.
  DType dtype = DType::bf16;
  float scale = 0;
  float dropout = 0;  ///< Share of probabilities that cuDNN drops, by a mask of its own.
  bool bias = false;  ///< Whether a bias, the same for every head, is added to the scaled scores.
  bool causal = true;
  bool with_stats = true;  ///< Forward only: whether the log-sum-exp is written.
  bool backward = false;

  auto operator<=>(const SdpaShape&) const = default;
};

/// Elements from one row of a bias to the next.
constexpr int64_t sdpa_pitch(int64_t length) noexcept { return (length + 63) / 64 * 64; }

/// Device memory of one call. stats is (batch, heads, length) fp32; seed and offset are int64
/// scalars, for dropout; bias is (batch, length, sdpa_pitch) in `dtype`, finite.
struct SdpaCall {
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *stats = nullptr;
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void *seed = nullptr, *offset = nullptr, *bias = nullptr;
};

/// Queues the bias that hides keys before first_key (length, whole_batch); the pointer is to the
/// call's first sample.
void fill_document_bias(void* bias, const SdpaShape& shape, const int32_t* first_key,
                        int64_t whole_batch, cudaStream_t stream);

/// Graphs of all shapes seen so far. One thread at a time.
class Sdpa {
 public:
  /// Errors: DeviceError.
  Sdpa();
  ~Sdpa();
  Sdpa(const Sdpa&) = delete;
  Sdpa& operator=(const Sdpa&) = delete;

  /// True when cuDNN has a kernel for this shape; builds and keeps its graph (a second or so,
  /// once).
  bool supports(const SdpaShape& shape);
  /// cuDNN's reason where it is not supported.
  const std::string& why_not(const SdpaShape& shape);
  /// Scratch bytes of one call. Errors: DeviceError when not supported.
  int64_t workspace_bytes(const SdpaShape& shape);
  /// Queues it. The backward is the deterministic one.
  void run(const SdpaShape& shape, const SdpaCall& call, void* workspace, cudaStream_t stream);

 private:
  struct Plan;
  struct Impl;
  Plan& plan(const SdpaShape& shape);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ops::cuda
