// See device_meter.h. The three functions and one constant of NVML that are needed are declared
// here.
// SPDX-License-Identifier: MIT
#include "bench/step/device_meter.h"

#include <dlfcn.h>

#include <chrono>

namespace bench {

DeviceMeter::DeviceMeter() : thread_([this] { sample(); }) {}

DeviceMeter::~DeviceMeter() { stop(); }

DeviceMeter::Reading DeviceMeter::stop() {
  running_ = false;
  if (thread_.joinable()) thread_.join();
  if (samples_ == 0) return {};
  const auto n = static_cast<double>(samples_);
  return {mhz_ / n, watts_ / n, samples_};
}

void DeviceMeter::sample() {
  constexpr int kSmClock = 1;  // NVML_CLOCK_SM
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return;
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto handle =
      reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  const auto clock =
      reinterpret_cast<int (*)(void*, int, unsigned*)>(dlsym(library, "nvmlDeviceGetClockInfo"));
  const auto power =
      reinterpret_cast<int (*)(void*, unsigned*)>(dlsym(library, "nvmlDeviceGetPowerUsage"));
  void* device = nullptr;
  if (init == nullptr || handle == nullptr || clock == nullptr || power == nullptr || init() != 0 ||
      handle(0, &device) != 0)
    return;
  while (running_) {
    unsigned mhz = 0, milliwatts = 0;
    if (clock(device, kSmClock, &mhz) == 0 && power(device, &milliwatts) == 0) {
      mhz_ += mhz;
      watts_ += milliwatts / 1000.0;
      ++samples_;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace bench
