// Hugging Face folders whose weights are pytorch_model.bin, whole or in shards: which file counts,
// and what is wrong with one. Golden: tests/golden/convert/families/*_bin.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "convert/hf_folder.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TorchWeights : public testing::Test {
 protected:
  TorchWeights() {
    std::string name = fs::temp_directory_path() / "torch_weights_test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~TorchWeights() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

// pytorch_model.bin counts where there are no safetensors, and is checked as any foreign file.
TEST_F(TorchWeights, OfFolders) {
  const auto refusal = [&](const std::string& folder) -> std::string {
    try {
      const CanonicalModel model = read_hf_folder(folder);
      for (const auto& [name, source] : model.tensors) source.load();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  const std::string golden = std::string(GOLDEN_DIR) + "/convert/families/";
  fs::copy(golden + "gpt2_bin", path("both"));
  std::string bytes = read_file(path("both/pytorch_model.bin"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(path("both/pytorch_model.bin"), std::ios::binary) << bytes;
  EXPECT_THAT(refusal(path("both")), testing::HasSubstr("both/pytorch_model.bin: "));
  fs::copy(golden + "gpt2/model.safetensors", path("both"));
  EXPECT_EQ(refusal(path("both")), "") << "safetensors come first";
  fs::copy(golden + "llama_bin", path("shards"));
  fs::remove(path("shards/pytorch_model-00002-of-00002.bin"));
  EXPECT_THAT(refusal(path("shards")), testing::HasSubstr("pytorch_model-00002-of-00002.bin"));
  fs::copy(path("shards/pytorch_model-00001-of-00002.bin"),
           path("shards/pytorch_model-00002-of-00002.bin"));
  EXPECT_THAT(refusal(path("shards")), testing::HasSubstr("stands in two files"));
  fs::remove(path("shards/pytorch_model.bin.index.json"));
  EXPECT_EQ(refusal(path("shards")),
            path("shards") +
                ": no weights there: neither model.safetensors nor pytorch_model.bin, "
                "nor an index of either");
  // A dict that holds something else than tensors.
  fs::copy(golden + "gpt2/config.json", fs::create_directory(path("other")) ? path("other") : "");
  fs::copy(std::string(GOLDEN_DIR) + "/convert/protocol4.pt", path("other/pytorch_model.bin"));
  EXPECT_THAT(refusal(path("other")), testing::HasSubstr("other/pytorch_model.bin"));
}

}  // namespace
}  // namespace convert
