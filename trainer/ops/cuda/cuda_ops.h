// CudaOps: the operations of ops.h on one NVIDIA GPU, queued on one compute stream.
// Here: the class and the small state that its launchers share. Not here: kernels (one .cu file for
// each kind), matrix products (gemm.h), fused attention (sdpa.h), the factory that other rooms call
// (cuda.h). May include: trainer/ops and CUDA. Every method only queues work; the shared checks of
// check.h come first.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/cuda/host_memory.h"
#include "trainer/ops/cuda/wait_clock.h"
#include "trainer/ops/ops.h"

namespace ops::cuda {

class Gemm;
class Sdpa;

/// See the room card. Errors of every method: ShapeError, DeviceError. One thread at a time.
class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);
  ~CudaOps() override;
  CudaOps(const CudaOps&) = delete;
  CudaOps& operator=(const CudaOps&) = delete;

  Device device() const override { return Device::cuda; }
  std::string describe() const override;
  std::string identity() const override { return identity_; }
  int64_t free_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* block) noexcept override;
  void* allocate_host(int64_t bytes) override;
  void release_host(void* block) noexcept override;

  int64_t workspace_bytes(const AnyArgs& args) override;
  void set_workspace(Tensor workspace) override;
  void prepare(std::span<const AnyArgs> calls) override;

  Mark mark() override;
  void follow(const Mark& mark) override;
  void wait(const Mark& mark) override;
  void synchronize() override;
  std::optional<double> seconds_waited() const override { return waits_->seconds(); }
  void upload(Tensor dst, const void* host) override;
  void download(void* host, Tensor src) override;
  Mark download_beside(std::span<const HostCopy> copies) override;
  bool begin_capture() override;
  int64_t end_capture() override;
  void launch(int64_t captured) override;
  void forget(int64_t captured) override;

  void fill(const Fill& args) override;
  void copy(const Copy& args) override;
  void add(const Add& args) override;
  void normal_fill(const NormalFill& args) override;

  void embedding_forward(const EmbeddingForward& args) override;
  void embedding_backward(const EmbeddingBackward& args) override;
  void residual_norm_forward(const ResidualNormForward& args) override;
  void residual_norm_backward(const ResidualNormBackward& args) override;
  void linear_forward(const LinearForward& args) override;
  void linear_backward_input(const LinearBackwardInput& args) override;
  void linear_backward_weight(const LinearBackwardWeight& args) override;
  void activation_forward(const ActivationForward& args) override;
  void activation_backward(const ActivationBackward& args) override;
  void rotary(const Rotary& args) override;
  void attention_forward(const AttentionForward& args) override;
  void attention_backward(const AttentionBackward& args) override;
  void attention_decode(const AttentionDecode& args) override;

  void loss_weights(const LossWeights& args) override;
  void cross_entropy(const CrossEntropy& args) override;
  void cross_entropy_statistics(const CrossEntropyStatistics& args) override;
  void cross_entropy_gradient(const CrossEntropyGradient& args) override;
  void accumulate_loss(const AccumulateLoss& args) override;

  void begin_step(const StepInputs& args) override;
  void sum_squares(const SumSquares& args) override;
  void judge_gradients(const JudgeGradients& args) override;
  void adamw(const AdamW& args) override;
  void count_nonfinite(const CountNonfinite& args) override;

  /// The compute stream, for the NCCL room and for benchmarks that place their own events.
  cudaStream_t stream() const noexcept { return stream_; }

 private:
  /// Scratch memory of at least `bytes`, 256-byte aligned, valid until the next operation is
  /// queued. Errors: DeviceError when the workspace given is smaller and a capture forbids growing
  /// it.
  char* scratch(int64_t bytes);
  /// Column sums of dy into `out`; `workspace` holds column_sum_scratch.
  void column_sum(const Tensor& dy, const Tensor& out, bool accumulate, char* workspace);
  /// activation_backward (not swiglu) and, with dbias, the column sums of dx in the same pass.
  void activation_backward_sum(const ActivationBackward& args, const Tensor& dbias, bool accumulate,
                               char* workspace);
  int64_t attention_scratch(const AttentionShape& shape, const Tensor& qkv, const Tensor& first_key,
                            float dropout, bool backward);
  /// Whether cuDNN computes it, forward and backward: their masks must be one. Kept for describe().
  bool cudnn_attends(const AttentionShape& shape, const Tensor& qkv, bool documents, float dropout);
  /// Attention by plain products and a softmax kernel: fp32, and what cuDNN does not take here.
  void attention_forward_plain(const AttentionForward& args);
  void attention_backward_plain(const AttentionBackward& args);

  int device_index_ = 0;
  HostMemory host_memory_;
  int multiprocessors_ = 0;
  int shared_bytes_per_block_ = 0;
  bool fuses_slope_ = false;  ///< Whether slope_product runs on this GPU, in this program.
  std::string device_name_;
  std::string code_note_;                 ///< Capability, and whose code runs.
  std::set<std::string> attention_ways_;  ///< Those chosen so far, in words.
  std::string identity_;                  ///< The GPU's UUID, or its MIG instance's.
  cudaStream_t stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;  // of download_beside, made when first wanted
  cudaEvent_t copied_ = nullptr;
  std::unique_ptr<WaitClock> waits_;
  bool capturing_ = false;
  Tensor workspace_;
  void* own_workspace_ = nullptr;  // when none was given, or one too small
  int64_t own_workspace_bytes_ = 0;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Sdpa> sdpa_;
  std::vector<cudaGraphExec_t> graphs_;
  std::vector<cudaEvent_t> events_;  // two rings of kMarks: for plain and for recorded code
  uint64_t serial_ = 0, captured_serial_ = 0;
};

}  // namespace ops::cuda
