// The end of the pipeline against transformers: checkpoints of the trainer, one of each family,
// exported here, must give exactly the files that transformers loaded when the goldens were made,
// and our own decoder must give the logits, token ids and greedy text that transformers computed
// from them.
// Source of the goldens: tests/reference/whole_job_golden.py. Environment: WHOLE_JOB, another
// folder that it wrote.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/hf_folder.h"
#include "convert/tokenizer_files.h"
#include "convert/trainer_source.h"
#include "libtok/tokenizer.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/generation/decoder.h"
#include "trainer/generation/decoder_weights.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

std::string golden_folder() {
  const char* other = std::getenv("WHOLE_JOB");
  return other != nullptr ? other : std::string(GOLDEN_DIR) + "/convert/whole_job";
}
std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class WholeJob : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    expected_ = nlohmann::json::parse(read(golden_folder() + "/" + GetParam() + "/expected.json"));
    std::string name = fs::temp_directory_path() / "whole_job.XXXXXX";
    hf_ = std::string(::mkdtemp(name.data())) + "/hf";
    CanonicalModel model = read_trainer_checkpoint(checkpoint(), std::nullopt, false);
    const TokenizerFiles tokenizer =
        tokenizer_from_vocab(golden_folder() + "/vocab.json", golden_folder() + "/merges.txt",
                             model.spec.max_position_embeddings);
    trim_vocabulary(model, model.spec.vocab_size);
    write_hf_folder(model, choose_family(model.spec), tokenizer, {.folder = hf_});
  }
  void TearDown() override { fs::remove_all(fs::path(hf_).parent_path()); }

  std::string checkpoint() const { return golden_folder() + "/" + GetParam() + "/checkpoint"; }

  nlohmann::json expected_;
  std::string hf_;
};

TEST_P(WholeJob, ExportedFilesAreThoseThatTransformersLoaded) {
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(hf_)) {
    const std::string name = entry.path().filename(), text = read(entry.path());
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())),
              expected_.at("files").value(name, uint32_t{0}))
        << name;
    ++files;
  }
  EXPECT_EQ(files, expected_.at("files").size());
}

TEST_P(WholeJob, IdsLogitsAndGreedyTextAreTransformers) {
  const nlohmann::json texts = nlohmann::json::parse(read(golden_folder() + "/texts.json"));
  const tok::Tokenizer tokenizer =
      tok::Tokenizer::from_tokenizer_json(read(hf_ + "/tokenizer.json"));
  const trainer::SafetensorsFile golden =
      trainer::SafetensorsFile::open(golden_folder() + "/" + GetParam() + "/logits.safetensors");
  ops::cpu::CpuOps cpu(1);
  for (const std::string& source : {checkpoint(), hf_}) {
    const trainer::DecoderModel model = trainer::open_decoder_model(source, std::nullopt);
    trainer::Decoder decoder(model.spec, trainer::DType::f32, model.spec.max_position_embeddings,
                             cpu);
    model.load(decoder, cpu);
    const std::span<const std::byte> raw = golden.bytes(golden.at("logits"));
    std::vector<float> wanted(raw.size() / sizeof(float));
    std::memcpy(wanted.data(), raw.data(), raw.size());
    size_t row = 0;
    double worst = 0;
    for (size_t i = 0; i < texts.at("texts").size(); ++i) {
      const std::vector<int32_t> ids =
          tokenizer.encode(texts["texts"][i].get<std::string>(),
                           {.special_tokens_in_text = tok::SpecialTokens::parse});
      ASSERT_EQ(nlohmann::json(ids), expected_.at("ids").at(i)) << texts["texts"][i];
      decoder.reset();
      for (size_t t = 0; t < ids.size(); ++t, ++row) {
        const std::vector<float> logits = decoder.append(std::span(&ids[t], 1));
        const float* want = &wanted.at(10 * row);
        for (size_t c = 0; c < 8; ++c) {
          worst = std::max<double>(
              worst, std::abs(logits.at((37 * t + 11 * c) % logits.size()) - want[c]));
        }
        const float largest = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (float x : logits) sum += std::exp(double{x} - largest);
        worst = std::max<double>(worst, std::abs(largest - want[8]));
        worst = std::max<double>(worst, std::abs(largest + std::log(sum) - want[9]));
      }
    }
    EXPECT_EQ(10 * row, wanted.size());
    EXPECT_LT(worst, 1e-4) << source;
    for (size_t i = 0; i < texts.at("prompts").size(); ++i) {
      decoder.reset();
      std::vector<float> logits =
          decoder.append(tokenizer.encode(texts["prompts"][i].get<std::string>()));
      std::vector<int32_t> made;
      while (made.size() < 30) {
        const auto next =
            static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        if (next == tokenizer.eod_id().value_or(-1)) break;
        made.push_back(next);
        logits = decoder.append(std::span(&next, 1));
      }
      EXPECT_EQ(nlohmann::json(made), expected_.at("greedy").at(i)) << texts["prompts"][i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WholeJob, testing::Values("gpt2", "opt", "gpt_neox", "llama"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace convert
