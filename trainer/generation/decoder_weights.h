// A model that can generate: its numbers, its tokenizer's files, and how its weights get into a
// Decoder, whether it is a checkpoint of the trainer or a Hugging Face folder.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/generation/decoder.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

/// An opened model.
struct DecoderModel {
  ModelSpec spec;
  std::string dtype = "fp32";  ///< of its weights: fp32, bf16, fp16.
  TokenizerFiles tokenizer;    ///< as it names them; empty where it names none.
  std::vector<std::string> notes;
  /// Where a decoder that computes in fp32 on a CPU has a parameter, for its constructor: where the
  /// file is mapped, if its numbers lie there as the model holds them (then this object outlives
  /// the decoder), else in memory of its own. Matrices of bf16 stay bf16. No score depends on it.
  std::function<WeightPlace(const LocalParam&)> place;
  /// Fills a Decoder's parameters; every byte's checksum is seen where there is one.
  /// Errors: indexed::FormatError naming file, tensor and why.
  std::function<void(Decoder&, ops::Ops&)> load;
};

/// Opens `path`: a Hugging Face folder has a config.json; anything else is the trainer's.
/// Errors: std::system_error; indexed::FormatError; cli::UsageError where there is no model.
DecoderModel open_decoder_model(const std::string& path, std::optional<int64_t> step);

}  // namespace trainer
