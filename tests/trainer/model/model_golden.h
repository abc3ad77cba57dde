// The goldens of tests/reference/make_model_goldens.py, and their tiny models.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "trainer/engine/engine.h"
#include "trainer/spec/params.h"

namespace golden {

using namespace trainer;
using Arrays = std::map<std::string, std::vector<float>>;

inline Arrays read_golden(const std::string& family) {
  std::ifstream file(std::string(GOLDEN_DIR) + "/trainer/" + family + ".golden", std::ios::binary);
  std::string word;
  std::getline(file, word);
  EXPECT_EQ(word.substr(0, 19), "gristmill-golden 1 ");
  Arrays arrays;
  size_t count = 0;
  while (file >> word >> count) {
    file.get();
    std::vector<float>& values = arrays[word];
    values.resize(count);
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(count * sizeof(float)));
  }
  return arrays;
}

inline constexpr int64_t kS = 10, kB = 2, kM = 2;

inline ModelSpec tiny(const std::string& golden) {
  const bool llama = golden == "interpolated" || golden == "projected",
             post = golden.starts_with("opt_post"),
             gpt = golden.starts_with("gpt2") || golden == "scaled";
  ModelSpec spec = family_defaults(gpt ? "gpt2" : llama ? "llama" : post ? "opt" : golden);
  const bool gated = spec.gated();
  spec.num_layers = 2;
  spec.hidden_size = 16;
  spec.num_attention_heads = gated ? 4 : 2;
  spec.num_query_groups = golden == "scaled" ? 1 : 2;
  spec.ffn_hidden_size = gated ? 24 : 64;
  if (golden == "mistral" || golden == "qwen3") spec.kv_channels = 6;
  if (golden == "mistral") spec.sliding_window = 3;
  spec.post_norm = post;
  if (post || golden == "projected") spec.embedding_size = post ? 8 : 24;
  if (golden == "interpolated") {
    spec.attention_bias = true;
    spec.rotary_interpolation = 2;
  }
  if (golden == "scaled") {
    spec.position = Position::rotary;
    spec.linear_bias = false;
    spec.mlp_bias = spec.qk_norm = spec.rotary_scaling = true;
    spec.rotary_scaling_factor = 4;
    spec.rotary_low_freq_factor = 0.05f;
    spec.rotary_high_freq_factor = 0.75f;
    spec.rotary_original_positions = 6;
  }
  spec.max_position_embeddings = kS + 3;
  spec.vocab_size = 29;
  spec.padded_vocab_size = 32;
  const bool dropout = golden.ends_with("_dropout");
  spec.hidden_dropout = dropout ? 0.1f : 0.0f;
  spec.attention_dropout = dropout ? 0.2f : 0.0f;
  complete(spec);
  return spec;
}

inline EngineOptions options_for(const std::string& golden) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kM;
  options.adam_eps =
      1e-6f;  // The key bias has gradient 0; a tiny eps would turn its rounding noise into updates.
  options.head_rows = 7;  // A chunk that does not divide the rows.
  options.reset_attention_mask = golden == "gpt2_documents";
  return options;
}

inline void fill_batch(Engine& engine, const Arrays& golden) {
  const HostBatch batch = engine.host_batch();
  const auto integers = [&](std::span<int32_t> to, const char* name) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<int32_t>(golden.at(name)[i]);
  };
  integers(batch.tokens, "tokens");
  integers(batch.labels, "labels");
  integers(batch.positions, "positions");
  integers(batch.first_key, "first_key");
  std::copy(golden.at("loss_mask").begin(), golden.at("loss_mask").end(), batch.loss_mask.begin());
}

/// Copies into main parameters, on any device, and from there into model parameters.
inline void load_weights(Engine& engine, const Arrays& golden) {
  engine.initialise();
  for (const ParamView& view : engine.parameters()) {
    const std::vector<float>& values = golden.at("init." + view.param->spec.name);
    ASSERT_EQ(static_cast<int64_t>(values.size()), view.main.elements()) << view.param->spec.name;
    void* host = engine.ops().allocate_host(view.main.bytes());
    std::copy(values.begin(), values.end(), static_cast<float*>(host));
    engine.ops().upload(view.main, host);
    engine.ops().synchronize();
    engine.ops().release_host(host);
  }
  engine.refresh_model_parameters();
}

/// An fp32 tensor of the engine's device.
inline std::vector<float> values(Engine& engine, const Tensor& tensor) {
  void* host = engine.ops().allocate_host(tensor.bytes());
  engine.ops().download(host, tensor);
  engine.ops().synchronize();
  const float* at = static_cast<const float*>(host);
  std::vector<float> result(at, at + tensor.elements());
  engine.ops().release_host(host);
  return result;
}

/// Largest difference over the largest wanted magnitude of the tensor.
inline double relative_error(const float* got, const std::vector<float>& wanted) {
  double difference = 0, largest = 1e-30;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference = std::max(difference, std::abs(double(got[i]) - double(wanted[i])));
    largest = std::max(largest, std::abs(double(wanted[i])));
  }
  return difference / largest;
}

}  // namespace golden
