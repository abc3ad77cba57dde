// Clock and power of the GPU while something runs: a thread that asks the driver's management
// library ten times a second. Not here: what is measured. The library is opened at run time, so
// nothing is linked.
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace bench {

class DeviceMeter {
 public:
  struct Reading {
    double mean_mhz = 0, mean_watts = 0;
    int64_t samples = 0;  ///< 0: the library is missing.
  };
  DeviceMeter();
  ~DeviceMeter();
  DeviceMeter(const DeviceMeter&) = delete;
  DeviceMeter& operator=(const DeviceMeter&) = delete;
  /// Stops, and gives the means since the start.
  Reading stop();

 private:
  void sample();
  std::atomic<bool> running_{true};
  double mhz_ = 0, watts_ = 0;
  int64_t samples_ = 0;
  std::thread thread_;
};

}  // namespace bench
