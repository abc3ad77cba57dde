// See pai_tokenizer.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/config/pai_tokenizer.h"

#include <algorithm>
#include <iterator>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/config/train_config.h"

namespace trainer {
namespace {

constexpr PaiTokenizer counted(std::string_view name, PaiCount count = PaiCount::base) {
  return {.name = name, .count = count, .extra = true};
}
constexpr PaiTokenizer fixed(std::string_view name, int64_t rows) {
  return {.name = name, .count = PaiCount::fixed, .rows = rows};
}
constexpr PaiTokenizer padded(std::string_view name, PaiCount count) {
  return {.name = name, .count = count, .padded = true};
}

constexpr PaiTokenizer kPai[] = {
    counted("Qwen2Tokenizer"),
    counted("Qwen3Tokenizer"),
    counted("Qwen2VLTokenizer"),
    counted("QwenTokenizer"),
    counted("QwenVLTokenizer"),
    counted("LLama3Tokenizer"),
    counted("LLama2Tokenizer"),
    counted("LLamaTokenizer"),
    counted("MixtralTokenizer"),
    counted("MistralTokenizer"),
    counted("BaichuanTokenizer"),
    counted("FalconTokenizer"),
    counted("OPTTokenizer"),
    counted("YiTokenizer"),
    counted("DeepSeekV2Tokenizer", PaiCount::whole_less),
    fixed("BloomTokenizerFromHF", 250880),
    fixed("ChatGLMTokenizerFromHF", 130528),
    fixed("GLM10BZHTokenizerFromHF", 50048),
    fixed("IcetkGLM130BTokenizer", 150528),
    fixed("StarcoderTokenizerFromHF", 49152),
    fixed("VicunaTokenizerFromHF", 32000),
    fixed("BloomTokenizerFromCustom", 134298),
    padded("JiebaBPETokenizer", PaiCount::base),
    padded("GPT2BPETokenizer", PaiCount::whole),  // Megatron's own.
};
// BloomTokenizerFromCustom, where --load has "mg" in its name.
constexpr PaiTokenizer kConvertedBloom = padded("BloomTokenizerFromCustom", PaiCount::base);

}  // namespace

int64_t PaiTokenizer::tokens(int64_t base, int64_t all) const noexcept {
  switch (count) {
    case PaiCount::base:
      return base;
    case PaiCount::whole:
      return all;
    case PaiCount::whole_less:
      return all - 2;
    case PaiCount::fixed:
      break;
  }
  return rows;
}

const PaiTokenizer* find_pai_tokenizer(const TrainConfig& config) {
  const std::string& type = config.patch_tokenizer_type;
  if (type.empty()) return nullptr;
  if (type == kConvertedBloom.name && config.load.find("mg") != std::string::npos)
    return &kConvertedBloom;
  const PaiTokenizer* found = std::ranges::find(kPai, type, &PaiTokenizer::name);
  if (found != std::end(kPai)) return found;
  std::string known;
  for (const PaiTokenizer& one : kPai) known += cli::concat(known.empty() ? "" : ", ", one.name);
  throw cli::UsageError(cli::concat("--patch-tokenizer-type ", type, ": expected one of ", known));
}

}  // namespace trainer
