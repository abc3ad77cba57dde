// See devices.h. Without the CUDA half of the build, a GPU is a device that is not there: the
// message says so, and nothing runs elsewhere unasked.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/ops/cpu/cpu_ops.h"
#ifdef GRISTMILL_CUDA
#include "trainer/ops/cuda/cuda.h"
#endif

namespace trainer {
namespace {

#ifdef GRISTMILL_CUDA
// Empty where the user's folder for caches cannot be had.
std::string cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const bool has_cache = cache != nullptr && *cache == '/';
  if (!has_cache && (home == nullptr || *home != '/')) return {};
  const std::string folder =
      has_cache ? cli::concat(cache, "/gristmill") : cli::concat(home, "/.cache/gristmill");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::string() : folder;
}
#endif

std::unique_ptr<ops::Ops> open_gpu(const TrainConfig& config, const DeviceShare& share) {
#ifdef GRISTMILL_CUDA
  if (config.device == "cpu" || (config.device == "auto" && ops::cuda::device_count() == 0))
    return nullptr;
  ops::cuda::CudaOptions options;
  options.device_index = share.gpu;
  options.cache_folder = cache_folder();
  if (!config.save.empty() && !config.dry_run) {
    std::filesystem::create_directories(config.save);
    options.gemm_choices_path = config.save + "/gemm_choices.txt";
  }
  return ops::cuda::make_cuda_ops(options);
#else
  static_cast<void>(share);
  if (config.device == "cuda")
    throw cli::UsageError("--device cuda: this trainer was built without CUDA");
  return nullptr;
#endif
}

}  // namespace

int visible_gpus(const TrainConfig& config) {
#ifdef GRISTMILL_CUDA
  return config.device == "cpu" ? 0 : ops::cuda::device_count();
#else
  static_cast<void>(config);
  return 0;
#endif
}

std::unique_ptr<ops::Ops> open_device(const TrainConfig& config, const DeviceShare& share) {
  if (std::unique_ptr<ops::Ops> gpu = open_gpu(config, share)) return gpu;
  if (config.fp16 || config.bf16) {
    throw cli::UsageError(cli::concat("--", config.fp16 ? "fp16" : "bf16",
                                      " needs a GPU, and there is none here: without it the "
                                      "trainer computes in fp32 on the CPU"));
  }
  const int64_t threads = config.cpu_threads.value_or(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / share.ranks_on_host));
  return std::make_unique<ops::cpu::CpuOps>(static_cast<int>(threads));
}

}  // namespace trainer
