// MemoryStore: a map under a lock.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/store.h"

#include "trainer/ops/tensor.h"

namespace rendezvous {

void MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) != 0; }))
    throw ops::DeviceError("comm: no rank has set " + key + " within " +
                           std::to_string(timeout.count()) + " ms");
  return values_[key];
}

}  // namespace rendezvous
