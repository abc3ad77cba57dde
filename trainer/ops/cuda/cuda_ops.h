// CudaOps: the operations on one NVIDIA GPU, queued on one compute stream. Here: the backend, the
// state that its operations share, and the functions that their files share. Not here: kernels and
// launches (one file a family, named as its header), matrix products (gemm.h), fused attention
// (sdpa.h), the factory that other rooms call (cuda.h). May include: trainer/ops and CUDA. Every
// method only queues work.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/cuda/host_memory.h"
#include "trainer/ops/cuda/stream_wait_timer.h"
#include "trainer/ops/gpus.h"
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
  std::string fp8_objection(Fp8Scales scales) const override {
    return fp8_refusal(capability_, scales);
  }
  bool quantizes_norms() const override { return kGpusQuantizeNorms; }
  int64_t free_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* block) noexcept override;
  void* allocate_host(int64_t bytes) override;
  void release_host(void* block) noexcept override;

  void set_workspace(Tensor workspace) override;
  void prepare(std::span<const AnyArgs> calls) override;

  Mark mark() override;
  void follow(const Mark& mark) override;
  void wait(const Mark& mark) override;
  void synchronize() override;
  std::optional<double> seconds_waited() const override { return waits_->seconds(); }
  std::vector<double> timed(std::span<const std::function<void()>> parts) override;
  void upload(Tensor dst, const void* host) override;
  void download(void* host, Tensor src) override;
  Mark download_beside(std::span<const HostCopy> copies) override;
  bool begin_capture() override;
  int64_t end_capture() override;
  void replay(int64_t captured) override;
  void forget(int64_t captured) override;

  /// The compute stream, for the NCCL room and for benchmarks that place their own events.
  cudaStream_t stream() const noexcept { return stream_; }

  // --- for the operations, in the files of this folder -------------------------------------------
  /// Scratch memory of at least `bytes`, 256-byte aligned, valid until the next operation is
  /// queued. Errors: DeviceError when the workspace given is smaller and a capture forbids growing
  /// it.
  char* scratch(int64_t bytes);
  int multiprocessors() const noexcept { return multiprocessors_; }
  int shared_bytes_per_block() const noexcept { return shared_bytes_per_block_; }
  bool capturing() const noexcept { return capturing_; }
  Gemm& gemm() noexcept { return *gemm_; }
  Sdpa& sdpa() noexcept { return *sdpa_; }
  /// Whether dgelu_gemm.cu has code for this GPU.
  bool fuses_dgelu() const noexcept { return fuses_dgelu_; }
  /// Whether cuDNN computes it, both forward and backward, since both need the same mask. Recorded
  /// for describe().
  bool cudnn_attends(const AttentionShape& shape, const Tensor& qkv, bool documents, float dropout);

 protected:
  void run_call(const AnyCall& call) override;
  int64_t scratch_of(const AnyCall& call) override;

 private:
  bool has_recordings() const noexcept;
  /// Frees the Ops' own workspace, or keeps it for recordings that may use it.
  void drop_own_workspace();

  int device_index_ = 0;
  HostMemory host_memory_;
  Capability capability_;
  int multiprocessors_ = 0;
  int shared_bytes_per_block_ = 0;
  bool fuses_dgelu_ = false;  ///< Whether dgelu_gemm runs on this GPU, in this program.
  std::string device_name_;
  std::string code_note_;                 ///< Capability, and which code runs.
  std::set<std::string> attention_ways_;  ///< Those chosen so far, in words.
  std::string identity_;                  ///< The GPU's UUID, or its MIG instance's.
  cudaStream_t stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;  // of download_beside, created on first use
  cudaEvent_t copied_ = nullptr;
  std::unique_ptr<StreamWaitTimer> waits_;
  bool capturing_ = false;
  Tensor workspace_;
  void* own_workspace_ = nullptr;  // when none was given, or one too small
  int64_t own_workspace_bytes_ = 0;
  std::vector<void*> outgrown_;  // former workspaces, which recordings may still use
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Sdpa> sdpa_;
  std::vector<cudaGraphExec_t> graphs_;
  std::vector<cudaEvent_t> events_;  // two rings of kMarks: for plain and for recorded code
  uint64_t serial_ = 0, captured_serial_ = 0;
};

/// Column sums of dy into `out`; `workspace` holds column_sum_scratch(columns) bytes.
void column_sum(CudaOps& cuda, const Tensor& dy, const Tensor& out, bool accumulate,
                char* workspace);
int64_t column_sum_scratch(int64_t columns);
/// ActivationBackward (not swiglu) and, with dbias, the column sums of dx in the same pass.
void activation_backward_sum(CudaOps& cuda, const ActivationBackward& args, const Tensor& dbias,
                             bool accumulate, char* workspace);
/// Attention by plain products and a softmax kernel: for fp32, and head sizes that cuDNN does not
/// support.
void attention_forward_plain(CudaOps& cuda, const AttentionForward& args);
void attention_backward_plain(CudaOps& cuda, const AttentionBackward& args);

}  // namespace ops::cuda
