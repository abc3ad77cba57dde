// Matrix products through cuBLASLt: one plan for each shape, its algorithm chosen by timing and
// remembered. Here: the product as cuBLASLt sees it (column-major D = alpha op(A) op(B) + beta C,
// with an epilogue) and the cache of plans. Not here: how linear layers use it (linear.cc),
// attention (sdpa.h, attention_plain.cu). Only algorithms that add in a fixed order are allowed, so
// the same product gives the same bits every time.
// SPDX-License-Identifier: MIT
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/cuda/gemm_choices.h"
#include "trainer/ops/fp8.h"

namespace ops::cuda {

/// What the product does after its sum: `gelu_aux_bias` keeps the sum with its bias in aux.
/// cuBLASLt's epilogues for the backward pass (DGELU, BGRADB) are left out: on an H200 a pass of
/// our own beats them (bench/training.md).
enum class Epilogue : uint8_t { none, bias, gelu_aux_bias };

/// Everything that decides a plan. m, n, k and leading dimensions are cuBLASLt's, column-major, in
/// elements.
struct GemmKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_d = 0;
  bool transpose_a = false, transpose_b = false;
  bool add_c = false;  ///< beta times C is added, which has D's layout (it may be D itself).
  DType a = DType::bf16, b = DType::bf16, d = DType::bf16;
  bool fast_sums = false;  ///< Of fp8 operands: partial sums of fewer bits than fp32.
  Scaling a_scaling = Scaling::tensor, b_scaling = Scaling::tensor;  ///< Of fp8 operands.
  Epilogue epilogue = Epilogue::none;
  int alignment =
      16;  ///< Bytes: 16, or the largest smaller power of two that all pointers are aligned to.

  auto operator<=>(const GemmKey&) const = default;
  /// The key in the file of choices: one line of words.
  std::string text() const;
};

/// The plan of an Fp8Product; fp8.cu has it.
GemmKey fp8_product_key(const Fp8Product& args);

/// One product's memory, all on the device.
struct GemmCall {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;      ///< m numbers of A's dtype; of D's with fp8 operands.
  const void* aux = nullptr;       ///< Written by gelu_aux_bias, of D's layout.
  const float* a_scale = nullptr;  ///< What fp8 operands are multiplied by, as GemmKey says.
  const float* b_scale = nullptr;
  float alpha = 1, beta = 1;
};

/// Plans of all products seen so far. One thread at a time.
class Gemm {
 public:
  /// The most scratch memory that a product may use.
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

  /// Uses the files and `tune` of CudaOptions. Errors: DeviceError.
  Gemm(const CudaOptions& options, const std::string& device_name);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Queues one product on `stream`; `workspace` holds kWorkspaceBytes. With `may_tune`, a new key
  /// is tuned first. Errors: DeviceError when cuBLASLt has no algorithm for it.
  void run(GemmKey key, const GemmCall& call, char* workspace, cudaStream_t stream, bool may_tune);
  /// Times the algorithms of all keys that are not known yet, on memory of its own, and adds them
  /// to the files of choices. Where memory or an algorithm is missing, the key stays as it is.
  /// Blocks the host.
  void tune(std::span<const GemmKey> keys, cudaStream_t stream);
  /// True when cuBLASLt offers any algorithm for `key`.
  bool supports(const GemmKey& key);

 private:
  struct Plan;
  struct Bench;
  Plan& plan(const GemmKey& key);
  /// Uses `choice` where there is one and cuBLASLt accepts it for this plan.
  void take(const GemmChoice* choice, Plan& plan);
  GemmChoice time_candidates(const GemmKey& key, Plan& plan, const Bench& bench,
                             cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  bool tune_;
  double hold_seconds_;
  std::map<GemmKey, std::unique_ptr<Plan>> plans_;
  GemmChoices choices_;
};

}  // namespace ops::cuda
