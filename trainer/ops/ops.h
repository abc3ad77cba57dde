// Ops: every operation of the trainer, declared once. Backends: ops/cpu (the plain twin, and the
// law), ops/cuda, and plan.h (computes nothing, counts everything). Not here: shapes of arguments
// (layer_args.h, attention_args.h,
// step_args.h), checks shared by all backends (check.h), memory (arena.h).
// May include: trainer/ops only. All operations of one Ops run one after another in the order of
// their calls ("queued"), on one compute stream; a call returns before the work is done (CPU:
// after). Tensors must live until then and must be this Ops' device. The same calls with the same
// bits in give the same bits out: on CPU for any number of threads, on a GPU for the same device
// and library versions.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "trainer/ops/attention_args.h"
#include "trainer/ops/layer_args.h"
#include "trainer/ops/step_args.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// dst = 0 (all bytes), or a constant; casts; contiguous copies. Kept apart from the methods so
/// that a recorded call (AnyArgs) holds everything.
struct Fill {
  Tensor dst;  ///< fp32, bf16, fp16 or int32.
  float value = 0;
};
/// dst = src, converted.
struct Copy {
  Tensor dst, src;  ///< Equal element counts. Float dtypes may differ: rounds to nearest even.
};
/// dst (+)= a * alpha for gradients and bench code: dst fp32, bf16 or fp16 and a of any float
/// dtype.
struct Add {
  Tensor dst, a;
  float alpha = 1;
};

/// A copy to host memory of allocate_host.
struct HostCopy {
  void* host = nullptr;
  Tensor src;
};

/// Any operation with its arguments: what PlanOps records and what workspace_bytes and prepare are
/// asked about.
using AnyArgs =
    std::variant<Fill, Copy, Add, NormalFill, EmbeddingForward, EmbeddingBackward,
                 ResidualNormForward, ResidualNormBackward, LinearForward, LinearBackwardInput,
                 LinearBackwardWeight, ActivationForward, ActivationBackward, Rotary,
                 AttentionForward, AttentionBackward, AttentionDecode, LossWeights, CrossEntropy,
                 CrossEntropyStatistics, CrossEntropyGradient, AccumulateLoss, StepInputs,
                 SumSquares, JudgeGradients, AdamW, CountNonfinite>;

/// Operations on tensors of one device. Errors of every operation: ShapeError from the shared
/// checks before anything is queued; DeviceError when the device refuses. One thread at a time may
/// call an Ops, where nothing else is said.
class Ops {
 public:
  virtual ~Ops() = default;

  // --- the device and its memory -----------------------------------------------------------------
  virtual Device device() const = 0;
  /// "cpu, 2 threads, avx512" or "NVIDIA H200, CUDA 13.0": for the log.
  virtual std::string describe() const = 0;
  /// The same for two Ops of one device, different for two devices; empty where any number of
  /// processes may share it.
  virtual std::string identity() const { return ""; }
  /// Bytes that can still be allocated.
  virtual int64_t free_bytes() const = 0;
  /// A block of device memory, aligned to 1024 bytes; Arena is its only caller. Errors:
  /// DeviceError.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  /// Host memory from which upload and into which download run without a stop (page-locked beside a
  /// GPU). Any thread may call both. Errors: DeviceError.
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void release_host(void* block) noexcept = 0;

  // --- before the first step ---------------------------------------------------------------------
  /// Scratch bytes that this backend wants for one call; may build and keep plans. Pointers in args
  /// are not followed. The largest of all calls of a step is given by set_workspace; operations of
  /// one stream share it.
  virtual int64_t workspace_bytes(const AnyArgs& args) { return static_cast<void>(args), 0; }
  /// Gives scratch memory; it stays the Ops' until the Ops ends or another is given.
  virtual void set_workspace(Tensor workspace) { static_cast<void>(workspace); }
  /// Chooses algorithms for these calls (timing them on workspace memory) so that the first step is
  /// as fast as the rest. Tensors named in args are not changed. Calls never prepared are prepared
  /// when they come.
  virtual void prepare(std::span<const AnyArgs> calls) { static_cast<void>(calls); }

  // --- order -------------------------------------------------------------------------------------
  /// The end of all work queued so far.
  virtual Mark mark() = 0;
  /// Work queued from now on runs after `mark` (of a Comm or another Ops). The host does not wait.
  virtual void follow(const Mark& mark) = 0;
  /// The host waits for `mark` of this Ops, or for all work.
  virtual void wait(const Mark& mark) = 0;
  virtual void synchronize() = 0;
  /// How many seconds the queue has stood still in follow() of Comms' marks so far, in work that
  /// the host has waited for; nothing where the host itself waits there.
  virtual std::optional<double> seconds_waited() const { return std::nullopt; }
  /// Queued: device bytes from host memory of allocate_host and back; the host memory stays
  /// untouched by its owner until a later mark() is reached. Sizes are dst.bytes() and src.bytes().
  virtual void upload(Tensor dst, const void* host) = 0;
  virtual void download(void* host, Tensor src) = 0;
  /// Downloads on a queue of their own: after all work queued so far, beside what is queued later.
  /// Who changes the sources must follow() the mark that comes back.
  virtual Mark download_beside(std::span<const HostCopy> copies) {
    for (const HostCopy& copy : copies) download(copy.host, copy.src);
    return mark();
  }

  /// Records all calls up to end_capture without running them; false where the device cannot (then
  /// calls run as usual, and end_capture gives 0). upload, download, begin_step, mark and wait are
  /// not for captured code.
  virtual bool begin_capture() { return false; }
  /// A number for launch, valid until forget.
  virtual int64_t end_capture() { return 0; }
  /// Queues the recorded calls once more, as they were. Errors: DeviceError for an unknown number.
  virtual void launch(int64_t captured) { static_cast<void>(captured); }
  /// Gives a recording back; the host waits for its last launch. A Comm whose calls are in one ends
  /// only after it. Numbers below 1 are let pass.
  virtual void forget(int64_t captured) { static_cast<void>(captured); }

  // --- memory and initial values -----------------------------------------------------------------
  virtual void fill(const Fill& args) = 0;
  virtual void copy(const Copy& args) = 0;
  virtual void add(const Add& args) = 0;
  virtual void normal_fill(const NormalFill& args) = 0;

  // --- a layer -----------------------------------------------------------------------------------
  virtual void embedding_forward(const EmbeddingForward& args) = 0;
  virtual void embedding_backward(const EmbeddingBackward& args) = 0;
  virtual void residual_norm_forward(const ResidualNormForward& args) = 0;
  virtual void residual_norm_backward(const ResidualNormBackward& args) = 0;
  virtual void linear_forward(const LinearForward& args) = 0;
  /// Apart from linear_backward_weight, so that a schedule can put the weight gradient later (zero
  /// bubble).
  virtual void linear_backward_input(const LinearBackwardInput& args) = 0;
  virtual void linear_backward_weight(const LinearBackwardWeight& args) = 0;
  virtual void activation_forward(const ActivationForward& args) = 0;
  virtual void activation_backward(const ActivationBackward& args) = 0;
  virtual void rotary(const Rotary& args) = 0;
  virtual void attention_forward(const AttentionForward& args) = 0;
  virtual void attention_backward(const AttentionBackward& args) = 0;
  virtual void attention_decode(const AttentionDecode& args) = 0;

  // --- the loss; the walk over chunks of rows is model/head.h ------------------------------------
  virtual void loss_weights(const LossWeights& args) = 0;
  virtual void cross_entropy(const CrossEntropy& args) = 0;
  virtual void cross_entropy_statistics(const CrossEntropyStatistics& args) = 0;
  virtual void cross_entropy_gradient(const CrossEntropyGradient& args) = 0;
  virtual void accumulate_loss(const AccumulateLoss& args) = 0;

  // --- the step ----------------------------------------------------------------------------------
  /// Writes the step's numbers into state and zeroes its loss; never captured.
  virtual void begin_step(const StepInputs& args) = 0;
  virtual void sum_squares(const SumSquares& args) = 0;
  virtual void judge_gradients(const JudgeGradients& args) = 0;
  virtual void adamw(const AdamW& args) = 0;
  virtual void count_nonfinite(const CountNonfinite& args) = 0;
};

}  // namespace ops
