// Ops: every operation of the trainer, on one device. Backends: ops/cpu (the reference), ops/cuda,
// and plan.h (computes nothing, adds up costs). Not here: what an operation is, and the operations
// themselves (operation.h and the families it names), memory (arena.h).
// May include: trainer/ops only. All operations of one Ops run one after another in the order of
// their calls ("queued"), on one compute stream; a call returns before the work is done (CPU:
// after). Tensors must live until then and must be this Ops' device. The same calls with the same
// bits in give the same bits out: on CPU for any number of threads, on a GPU for the same device
// and library versions.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trainer/ops/activation.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/elementwise.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/fp8.h"
#include "trainer/ops/fp8_flat.h"
#include "trainer/ops/gpus.h"
#include "trainer/ops/head_norm.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/loss.h"
#include "trainer/ops/muon.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/operation.h"
#include "trainer/ops/optimizer.h"
#include "trainer/ops/product.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// A copy to host memory of allocate_host.
struct HostCopy {
  void* host = nullptr;
  Tensor src;
};

/// Every operation: the one list, which makes the interface below, PlanOps and the tables.
using Operations =
    Join<ElementwiseOperations, EmbeddingOperations, NormOperations, LinearOperations,
         ActivationOperations, AttentionOperations, HeadNormOperations, LossOperations,
         OptimizerOperations, MuonOperations, ProductOperations, Fp8Operations, Fp8FlatOperations>;
/// An operation with its arguments, kept: what a plan records and prepare() is asked about.
using AnyArgs = Operations::Values;
/// An operation whose arguments live until the call returns.
using AnyCall = Operations::Pointers;

/// Operations on tensors of one device. Errors of every operation: ShapeError from the shared
/// checks before anything is queued; DeviceError when the device refuses. One thread at a time may
/// call an Ops, unless stated otherwise.
class Ops {
 public:
  virtual ~Ops() = default;

  /// Checks one operation and queues it: `ops.run(LinearForward{.y = y, .x = x, .weight = w})`.
  template <Operation Args>
  void run(const Args& args) {
    run_call(AnyCall(std::in_place_type<const Args*>, &args));
  }

  // --- the device and its memory -----------------------------------------------------------------
  virtual Device device() const = 0;
  /// "cpu, 2 threads, avx512" or "NVIDIA H200, CUDA 13.0": for the log.
  virtual std::string describe() const = 0;
  /// The same for two Ops of one device, different for two devices; empty where any number of
  /// processes may share it.
  virtual std::string identity() const { return ""; }
  /// Why this device cannot compute an Fp8Product with such scales; empty where it can.
  virtual std::string fp8_objection(Fp8Scales) const { return ""; }
  /// Whether linears in FP8 should leave the norms before them to Quantize and QuantizeInBlocks
  /// here, instead of reading what ResidualNormForward has written; the bits are the same.
  virtual bool quantizes_norms() const { return false; }
  /// Bytes that can still be allocated.
  virtual int64_t free_bytes() const = 0;
  /// A block of device memory, aligned to 1024 bytes; Arena is its only caller. Errors:
  /// DeviceError.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  /// Host memory for upload and download that do not block the host (page-locked for a GPU). Any
  /// thread may call both. Errors: DeviceError.
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void release_host(void* block) noexcept = 0;

  // --- before the first step ---------------------------------------------------------------------
  /// Scratch bytes that this backend wants for one call; may build and keep plans. Pointers in args
  /// are not followed. set_workspace gets the largest size of all calls of a step; operations of
  /// one stream share it.
  int64_t workspace_bytes(const AnyArgs& args);
  /// Sets the scratch memory; the Ops uses it until it is destroyed or another is set.
  virtual void set_workspace(Tensor workspace) { static_cast<void>(workspace); }
  /// Chooses algorithms for these calls by timing them on temporary memory, so that the first step
  /// is as fast as the rest. Tensors named in args are not touched. A call that was not prepared is
  /// prepared when it is first run.
  virtual void prepare(std::span<const AnyArgs> calls) { static_cast<void>(calls); }

  // --- order -------------------------------------------------------------------------------------
  /// The end of all work queued so far.
  virtual Mark mark() = 0;
  /// Work queued from now on runs after `mark` (of a Comm or another Ops). The host does not wait.
  virtual void follow(const Mark& mark) = 0;
  /// The host waits for `mark` of this Ops, or for all work.
  virtual void wait(const Mark& mark) = 0;
  virtual void synchronize() = 0;
  /// How many seconds the queue has waited in follow() for Comms' marks so far, counting work that
  /// the host has waited for; empty where the host itself waits.
  virtual std::optional<double> seconds_waited() const { return std::nullopt; }
  /// Runs `parts` in turn, queued without waiting in between, and waits. Seconds that the device
  /// has spent on each.
  virtual std::vector<double> timed(std::span<const std::function<void()>> parts);
  /// Queued: device bytes from host memory of allocate_host and back; the host memory stays
  /// untouched by its owner until a later mark() is reached. Sizes are dst.bytes() and src.bytes().
  virtual void upload(Tensor dst, const void* host) = 0;
  virtual void download(void* host, Tensor src) = 0;
  /// Downloads on a queue of their own: after all work queued so far, in parallel with what is
  /// queued later. Before overwriting the sources, follow() the returned mark.
  virtual Mark download_beside(std::span<const HostCopy> copies) {
    for (const HostCopy& copy : copies) download(copy.host, copy.src);
    return mark();
  }

  /// Records all calls up to end_capture without running them; false where the device cannot (then
  /// calls run as usual, and end_capture gives 0). upload, download, begin_step, mark and wait must
  /// not be called while recording.
  virtual bool begin_capture() { return false; }
  /// The recording's number for replay, valid until forget.
  virtual int64_t end_capture() { return 0; }
  /// Queues the recorded calls once more, as they were. Errors: DeviceError for an unknown number.
  virtual void replay(int64_t captured) { static_cast<void>(captured); }
  /// Destroys a recording after waiting for its last replay. A Comm whose calls were recorded must
  /// outlive the recording. Numbers below 1 are ignored.
  virtual void forget(int64_t captured) { static_cast<void>(captured); }

 protected:
  /// A backend hands each call to Launch<Self, Args>: run_call to run(), scratch_of to scratch().
  virtual void run_call(const AnyCall& call) = 0;
  virtual int64_t scratch_of(const AnyCall& call) = 0;
};

}  // namespace ops
