// The door to the CUDA backend: a factory, and nothing of CUDA. Included by trainer.cc,
// generate.cc, tests, bench. Not here: the class (cuda_ops.h). May include: trainer/ops.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "trainer/ops/ops.h"

namespace ops::cuda {

/// What the host chooses once.
struct CudaOptions {
  int device_index = 0;  ///< Of the GPUs that this process sees.
  /// Algorithms chosen by timing are kept in a file of the run, which decides, and in one of this
  /// folder for each kind of device (gemm_choices.h): a run that is resumed, and one that is made
  /// again, compute the same bits. Empty: not kept.
  std::string gemm_choices_path, cache_folder;
  bool tune = true;  ///< false: the library's first suggestion for every product, no timing.
};

/// How many GPUs this process sees; 0 without a driver.
int device_count() noexcept;

/// Errors: DeviceError when there is no such GPU or it is older than compute capability 9.0.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace ops::cuda
