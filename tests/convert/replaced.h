// What the tests of conversions over another model share: a small model, tokenizers, links.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "convert/hf_folder.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {

/// A tokenizer whose files have this text.
inline TokenizerFiles tokenizer_of(const std::string& text) {
  TokenizerFiles files;
  files.files = {{"tokenizer.json", text}, {"tokenizer_config.json", text}};
  files.copied = true;
  return files;
}

/// A file's bytes; "" if there is none.
inline std::string text_of(const std::string& path) {
  return std::filesystem::exists(path) ? read_file(path) : "";
}

/// A model of two layers, and a folder with a file "blob".
class ReplacedModelTest : public testing::Test {
 protected:
  ReplacedModelTest()
      : model_(read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/llama")) {
    std::ofstream(own_ / "blob") << "another model's";
  }
  /// Puts a link to the blob in the place of a file.
  void link(const std::string& path) const {
    std::filesystem::remove(own_ / path);
    std::filesystem::create_symlink(own_ / "blob", own_ / path);
  }
  tests::OwnFolder own_;
  CanonicalModel model_;
};

}  // namespace convert
