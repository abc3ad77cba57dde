// FileStore: a Store in a folder that all ranks share. Not here: the Store over TCP (control.h).
// May include: rendezvous/store.h, POSIX.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "trainer/rendezvous/store.h"

namespace rendezvous {

/// One file for each key, complete when it has its name. The folder must exist; the caller empties
/// it. Errors: std::system_error naming the file.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::string path(const std::string& key) const;
  std::string folder_;
};

}  // namespace rendezvous
