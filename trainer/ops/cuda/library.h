// CUDA's shared libraries, loaded on first use: a program that uses no GPU does not load them, and
// runs on a machine without them. Included by the files that forward their functions
// (vendor_calls.cc, comm/nccl_calls.cc), and their test.
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ops::cuda {

/// A shared library, open until the process ends.
class Library {
 public:
  /// Opens `name`, such as "libcublasLt.so.13": where the loader finds it, else in
  /// library_folders(). Errors: DeviceError naming it, and where it was searched for or what is
  /// wrong with the file.
  explicit Library(const char* name);

  /// Errors: DeviceError naming the library's file, where it has no such function.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string path_;
};

/// Existing folders that may hold CUDA's libraries and that the loader does not search, in search
/// order: those of $CUDA_HOME; of the NVIDIA packages of Python in $VIRTUAL_ENV, in $CONDA_PREFIX,
/// of each python3 of $PATH and in $HOME/.local; of /usr/local/cuda. `environment` gives a
/// variable's value, empty where it is not set.
std::vector<std::string> library_folders(
    const std::function<std::string(const char*)>& environment);

}  // namespace ops::cuda

/// Defines a function of a vendor's header: it calls the library's function of that name.
#define FORWARD_TO(library, result, name, parameters, arguments)           \
  result name parameters {                                                 \
    static auto* const call = library().function<decltype(::name)>(#name); \
    return call arguments;                                                 \
  }
