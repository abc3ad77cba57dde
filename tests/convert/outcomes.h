// SPDX-License-Identifier: MIT
// How a reader's call ends, as a text to compare, for all tests of convert's readers. Files
// for them to read: golden ones, or those of foreign_bytes.h.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "convert/megatron_source.h"

namespace convert {

/// All bytes of a file.
inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The message of the `Error` that `run` throws, which must be one line; "accepted" where it throws
/// nothing. Errors of other types pass through.
template <class Error = std::exception>
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one line";
    return message;
  }
  return "accepted";
}

/// error_of reading the checkpoint at `path` with all its tensors.
inline std::string outcome(const std::string& path) {
  return error_of([&] {
    const CanonicalModel model = read_megatron(path, {});
    for (const auto& [name, source] : model.tensors) source.load();
  });
}

}  // namespace convert
