// dgelu_gemm in a program without Hopper's code: it runs on no GPU, and a call is a bug.
// Replaces dgelu_gemm.cu where the build's list of GPU code has no 9.0a (cmake/cuda.cmake).
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/dgelu_gemm.h"

namespace ops::cuda {

bool dgelu_gemm_runs_on(Capability) noexcept { return false; }

void dgelu_gemm(const LinearBackwardInput&, float*, cudaStream_t) {
  throw DeviceError("cuda: slope product: this build has no code for 9.0a");
}

}  // namespace ops::cuda
