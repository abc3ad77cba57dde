// The door to the CUDA backend: a factory, and nothing of CUDA. Included by trainer.cc,
// generate.cc, tests, bench. Not here: the class (cuda_ops.h). May include: trainer/ops.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "trainer/ops/gpus.h"
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
  /// Tests: keep to the shared memory of a GPU of this capability, and to what runs on it.
  Capability as{};
};

/// How many GPUs this process sees; 0 without a driver, or with one that does not serve.
int device_count() noexcept;

/// "NVIDIA H200". Errors: DeviceError when there is no such GPU.
std::string product_name(int device_index);

/// Why device_count() is 0 where that is the driver's matter: it is too old, does not start, or is
/// not there. Empty where GPUs can be used, or where it finds none.
std::string driver_objection();

/// GPU code that this program holds, as gpus.h parses it, and the CUDA release it is of, as 13000.
std::vector<GpuCode> own_gpu_code();
int cuda_release() noexcept;

/// kNoPeerAccess where two GPUs that this process sees do not reach each other's memory; else
/// empty.
std::string peer_note();

/// Errors: DeviceError when there is no such GPU, or it is one that gpu_refusal names.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace ops::cuda
