// The public interface of the CUDA backend: a factory, without CUDA's headers. Included by
// trainer.cc, generate.cc, tests, bench. Not here: the class (cuda_ops.h). May include:
// trainer/ops.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "trainer/ops/gpus.h"
#include "trainer/ops/ops.h"

namespace ops::cuda {

/// Options of one Ops.
struct CudaOptions {
  int device_index = 0;  ///< Of the GPUs that this process sees.
  /// Algorithms chosen by timing are stored in a file of the run, which takes precedence, and in a
  /// file of this folder for each kind of device (gemm_choices.h), so that a resumed or repeated
  /// run computes the same bits. Empty: not stored.
  std::string gemm_choices_path, cache_folder;
  bool tune = true;  ///< false: the library's first suggestion for every product, no timing.
  /// The fastest algorithms of a product run this long each, and are timed at the clock that the
  /// power limit then allows; 0: only in bursts of some microseconds, on a cooler card.
  double hold_seconds = 0;
  /// For tests: use only the shared memory and features of a GPU of this capability.
  Capability as{};
};

/// How many GPUs this process sees; 0 without a driver, or with an unusable one.
int device_count() noexcept;

/// "NVIDIA H200". Errors: DeviceError when there is no such GPU.
std::string product_name(int device_index);

/// Why device_count() is 0, where the driver is the reason: it is too old, does not start, or is
/// missing. Empty where GPUs can be used, or where the driver finds none.
std::string driver_objection();

/// The GPU code in this program, as gpus.h parses it, and the CUDA release it was built with, as
/// 13000.
std::vector<GpuCode> own_gpu_code();
int cuda_release() noexcept;

/// kNoPeerAccess where two GPUs that this process sees cannot access each other's memory; else
/// empty.
std::string peer_note();

/// Errors: DeviceError when there is no such GPU, or gpu_refusal refuses it.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace ops::cuda
