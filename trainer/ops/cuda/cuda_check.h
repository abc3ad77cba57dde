// CUDA_CHECK and its relatives: a failed call of CUDA, cuBLASLt or cuDNN becomes an
// ops::DeviceError naming call, file and line; where the hardware has failed, a DeviceFault.
// Included inside ops/cuda and comm/nccl only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "trainer/ops/tensor.h"

namespace ops::cuda {

inline std::string describe_failure(const char* call, const char* file, int line,
                                    const std::string& why) {
  return "cuda: " + std::string(call) + ": " + why + " (" + file + ":" + std::to_string(line) + ")";
}

[[noreturn]] inline void throw_device_error(const char* call, const char* file, int line,
                                            const std::string& why) {
  throw DeviceError(describe_failure(call, file, line, why));
}

/// Whether `status` reports a failure of the hardware or its driver, not of the call.
inline bool is_fault(cudaError_t status) noexcept {
  return status == cudaErrorECCUncorrectable || status == cudaErrorNvlinkUncorrectable ||
         status == cudaErrorContained || status == cudaErrorNoDevice ||
         status == cudaErrorDevicesUnavailable || status == cudaErrorUnknown;
}

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const std::string what = describe_failure(call, file, line, cudaGetErrorString(status));
  if (is_fault(status)) throw DeviceFault(what);
  throw DeviceError(what);
}

}  // namespace ops::cuda

#define CUDA_CHECK(call) ::ops::cuda::check_cuda((call), #call, __FILE__, __LINE__)
