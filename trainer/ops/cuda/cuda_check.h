// CUDA_CHECK and its kin: a failed call of CUDA, cuBLASLt or cuDNN becomes ops::DeviceError naming
// call, file and line. Not here: anything else. Included inside ops/cuda and comm/nccl only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "trainer/ops/tensor.h"

namespace ops::cuda {

[[noreturn]] inline void throw_device_error(const char* call, const char* file, int line,
                                            const std::string& why) {
  throw DeviceError("cuda: " + std::string(call) + ": " + why + " (" + file + ":" +
                    std::to_string(line) + ")");
}

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) throw_device_error(call, file, line, cudaGetErrorString(status));
}

}  // namespace ops::cuda

#define CUDA_CHECK(call) ::ops::cuda::check_cuda((call), #call, __FILE__, __LINE__)
