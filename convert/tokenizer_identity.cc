// See tokenizer_identity.h.
//
// SPDX-License-Identifier: MIT
#include "convert/tokenizer_identity.h"

#include <exception>
#include <optional>
#include <string_view>

#include "libtok/tokenizer.h"

namespace convert {

std::vector<std::string> identities_of(const TokenizerFiles& tokenizer) {
  const auto text = [&](std::string_view name) -> std::optional<std::string> {
    for (const TokenizerFile& file : tokenizer.files)
      if (file.name == name) return file.text;
    return std::nullopt;
  };
  std::vector<std::string> identities;
  const auto add = [&](const auto& load) {
    try {
      identities.push_back(load().identity());
    } catch (const std::exception&) {  // what cannot be read this way was not read so in training.
    }
  };
  const std::optional<std::string> vocab = text("vocab.json"), merges = text("merges.txt"),
                                   json = text("tokenizer.json"), model = text("tokenizer.model");
  add([&] { return tok::Tokenizer::from_folder(text); });
  if (vocab && merges) add([&] { return tok::Tokenizer::from_gpt2(*vocab, *merges); });
  if (json) add([&] { return tok::Tokenizer::from_tokenizer_json(*json); });
  for (const bool megatron : {false, true})
    if (model)
      add([&] {
        return tok::Tokenizer::from_sentencepiece(*model, {.megatron_tokens = megatron});
      });
  return identities;
}

}  // namespace convert
