// A model for generation: its sizes, its tokenizer's files, and how its weights are loaded into a
// Decoder, from a checkpoint of the trainer or from a Hugging Face folder.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/tokenizer/open_tokenizer.h"
#include "trainer/generation/decoder.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

/// An opened model.
struct DecoderModel {
  ModelSpec spec;
  std::string dtype = "fp32";  ///< The weights' dtype: fp32, bf16, fp16.
  tokenizer::Flags tokenizer;  ///< The files that the model names; empty if it names none.
  std::string tokenizer_hash;  ///< Identity of the tokenizer of its training; empty: not known.
  std::string tokenizer_type;  ///< --tokenizer-type of its training.
  /// Ids that end a text: those at which transformers' generate stops, by the model's own files.
  /// Nothing if they name none: then it is the tokenizer's end of a document.
  std::optional<std::vector<int64_t>> ends;
  std::string tokenizer_note;  ///< For the user, where these files are used; may be empty.
  std::vector<std::string> notes;
  /// For the constructor of a decoder that computes in fp32 on a CPU: where it stores a parameter.
  /// That is in the mapped file, if the numbers there already have the model's form (then this
  /// object must outlive the decoder), otherwise in the decoder's own memory. bf16 matrices stay
  /// bf16. No score of up to three tokens depends on the choice, and with AMX the last bits of more
  /// do (ops/cpu/amx_gemm.h).
  std::function<WeightPlace(const LocalParam&)> place;
  /// Fills a Decoder's parameters and verifies all checksums that exist. Errors:
  /// indexed::FormatError naming file, tensor and reason.
  std::function<void(Decoder&, ops::Ops&)> load;
};

/// Opens `path`: the checkpoint of `step`, or the current one; a Hugging Face folder (with
/// config.json) only where there is no checkpoint and no step is given.
/// Errors: std::system_error; indexed::FormatError; cli::UsageError if there is no model.
DecoderModel open_decoder_model(const std::string& path, std::optional<int64_t> step);

}  // namespace trainer
