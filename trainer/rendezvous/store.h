// Store: small values under keys, by which ranks find each other. Here: the interface, and the
// Store for threads of one process. Not here: the Stores between processes (control.h,
// file_store.h). May include: the C++ library only.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace rendezvous {

/// Keys and values that all ranks of a job share. Any number of threads may call at the same time.
class Store {
 public:
  virtual ~Store() = default;

  /// Sets `value` under `key` for all ranks. A key is set once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of `key`, as soon as some rank has set it.
  /// Errors: ops::DeviceError naming the key if no rank has set it within `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// A Store for ranks that are threads of this process.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace rendezvous
