// See devices.h. In a build without CUDA, using a GPU is an error that says so; nothing falls back
// to the CPU unless asked.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/ops/cpu/cpu_ops.h"
#ifdef GRISTMILL_CUDA
#include "trainer/ops/cuda/cuda.h"
#endif

namespace trainer {
namespace {

#ifdef GRISTMILL_CUDA
// Empty if the user's cache folder is not available.
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

// Whether the system has a GPU, whatever its driver says: checks device files of Linux and WSL.
bool gpu_file_is_there() {
  for (int i = 0; i < 64; ++i)
    if (std::filesystem::exists(cli::concat("/dev/nvidia", i))) return true;
  return std::filesystem::exists("/dev/dxg");
}
#endif

std::unique_ptr<ops::Ops> open_gpu(const TrainConfig& config, const DeviceShare& share) {
#ifdef GRISTMILL_CUDA
  if (config.device == "cpu") return nullptr;
  if (ops::cuda::device_count() == 0) {
    const std::string objection = ops::cuda::driver_objection();
    if (!objection.empty() && (config.device == "cuda" || gpu_file_is_there()))
      throw ops::DeviceError(cli::concat("cuda: ", objection, "; --device cpu needs no GPU"));
    if (config.device == "auto") return nullptr;
  }
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

#ifdef GRISTMILL_CUDA
constexpr char kNeedsGpu[] =
    " needs a GPU, and there is none here: without it the trainer computes in fp32 on the CPU";
#else
constexpr char kNeedsGpu[] =
    " needs a GPU, and this build has no CUDA half: without it the trainer computes in fp32 on the "
    "CPU; ./bootstrap builds it where nvcc is found";
#endif

ops::Fp8Scales fp8_scales(const TrainConfig& config) {
  const bool parts = config.fp8_recipe == "rowwise" || config.fp8_recipe == "blockwise";
  return parts ? ops::Fp8Scales::parts : ops::Fp8Scales::tensors;
}

/// `objection`: why the GPU does not support it. `chooses`: a layout will be chosen, and bf16 with
/// it where no precision is given.
void check_fp8(const TrainConfig& config, const std::string& objection, bool chooses) {
  if (config.fp8_format.empty()) return;
  const std::string flag = cli::concat("--fp8-format ", config.fp8_format);
  if (!objection.empty()) throw cli::UsageError(cli::concat(flag, ": ", objection));
  if (!config.bf16 && !config.fp16 && !chooses)
    throw cli::UsageError(cli::concat(flag, " needs --bf16 or --fp16 on a GPU"));
}

}  // namespace

std::string gpu_support() {
#ifdef GRISTMILL_CUDA
  const int release = ops::cuda::cuda_release();
  return cli::concat("GPUs: CUDA ", release / 1000, ".", release % 1000 / 10, ", ",
                     ops::describe(ops::cuda::own_gpu_code()), "\n");
#else
  return "GPUs: none, built without CUDA\n";
#endif
}

const ops::Gpu* planned_gpu(const TrainConfig& config) {
  if (config.gpu.empty()) return nullptr;
  if (!config.dry_run && !config.auto_layout && !config.max_global_batch_size)
    throw cli::UsageError("--gpu needs --dry-run or --auto-layout");
  if (config.device == "cpu") throw cli::UsageError("--gpu contradicts --device cpu");
  const ops::Gpu* gpu = ops::find_gpu(config.gpu);
  if (gpu == nullptr) {
    std::vector<std::string> names;
    for (const ops::Gpu& known : ops::known_gpus()) {
      if (known.capability >= ops::kOldestCapability) names.emplace_back(known.name);
      // A prefix of cards that are all too old: v100 for v100-16gb.
      else if (known.name.starts_with(config.gpu + "-"))
        gpu = &known;
    }
    if (gpu == nullptr &&
        (config.gpu.find('/') != std::string::npos || config.gpu.ends_with(".json")))
      throw cli::UsageError(cli::concat("--gpu ", config.gpu, ": no such file"));
    if (gpu == nullptr)
      throw cli::UsageError(
          cli::concat("--gpu ", config.gpu, ": expected one of ", cli::join(names, ", ")));
  }
  // For a card that is elsewhere only its capability matters: this build need not have code for it.
  const ops::GpuCode any{.capability = ops::kOldestCapability};
  if (const std::string refusal = ops::gpu_refusal(gpu->capability, {&any, 1}); !refusal.empty())
    throw cli::UsageError(cli::concat("--gpu ", config.gpu, ": ", gpu->product, ": ", refusal));
  check_fp8(config, ops::fp8_refusal(gpu->capability, fp8_scales(config)),
            config.auto_layout || config.max_global_batch_size.has_value());
  return gpu;
}

std::string link_note(const TrainConfig& config) {
#ifdef GRISTMILL_CUDA
  return config.device == "cpu" ? "" : ops::cuda::peer_note();
#else
  static_cast<void>(config);
  return "";
#endif
}

int visible_gpus(const TrainConfig& config) {
#ifdef GRISTMILL_CUDA
  return config.device == "cpu" ? 0 : ops::cuda::device_count();
#else
  static_cast<void>(config);
  return 0;
#endif
}

std::string gpu_product(const TrainConfig& config) {
#ifdef GRISTMILL_CUDA
  return visible_gpus(config) > 0 ? ops::cuda::product_name(0) : "";
#else
  static_cast<void>(config);
  return "";
#endif
}

std::unique_ptr<ops::Ops> open_device(const TrainConfig& config, const DeviceShare& share) {
  if (std::unique_ptr<ops::Ops> gpu = open_gpu(config, share)) {
    check_fp8(config, gpu->fp8_objection(fp8_scales(config)), false);
    return gpu;
  }
  if (config.fp16 || config.bf16) {
    throw cli::UsageError(cli::concat("--", config.fp16 ? "fp16" : "bf16", kNeedsGpu));
  }
  const int64_t threads = config.cpu_threads.value_or(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / share.ranks_on_host));
  return std::make_unique<ops::cpu::CpuOps>(static_cast<int>(threads));
}

}  // namespace trainer
