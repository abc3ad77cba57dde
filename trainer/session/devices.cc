// See devices.h. Without the CUDA half of the build, a GPU is a device that is not there: the
// message says so, and nothing runs elsewhere unasked.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/devices.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "tools/cli/flags.h"
#include "trainer/ops/cpu/cpu_ops.h"
#ifdef GRISTMILL_CUDA
#include "trainer/ops/cuda/cuda.h"
#endif

namespace trainer {
namespace {

std::unique_ptr<ops::Ops> open_gpu(const TrainConfig& config) {
#ifdef GRISTMILL_CUDA
  if (config.device == "cpu" || (config.device == "auto" && ops::cuda::device_count() == 0))
    return nullptr;
  // Algorithms chosen by timing are kept beside the checkpoints: a resumed run computes the same
  // bits.
  ops::cuda::CudaOptions options;
  if (!config.save.empty()) {
    std::filesystem::create_directories(config.save);
    options.gemm_choices_path = config.save + "/gemm_choices.json";
  }
  return ops::cuda::make_cuda_ops(options);
#else
  if (config.device == "cuda")
    throw cli::UsageError("--device cuda: this trainer was built without CUDA");
  return nullptr;
#endif
}

}  // namespace

std::unique_ptr<ops::Ops> open_device(const TrainConfig& config) {
  if (std::unique_ptr<ops::Ops> gpu = open_gpu(config)) return gpu;
  if (config.fp16 || config.bf16) {
    throw cli::UsageError(config.fp16
                              ? "--fp16 needs a GPU: on a CPU the trainer computes in fp32"
                              : "--bf16 needs a GPU: on a CPU the trainer computes in fp32");
  }
  const int64_t threads =
      config.cpu_threads.value_or(std::max(1u, std::thread::hardware_concurrency()));
  return std::make_unique<ops::cpu::CpuOps>(static_cast<int>(threads));
}

}  // namespace trainer
