// The supported families of Hugging Face models: what all models of a family have in common, and in
// which fields they differ. A model belongs to the family in its `family` field, or to the first
// that can represent it. Not here: names of tensors and keys of config.json (convert/families). May
// include: spec/model_fields.h. Sources: Radford et al. 2019 (GPT-2), Zhang et al. 2022 (OPT),
// Black et al. 2022 (GPT-NeoX-20B), Touvron et al. 2023 (LLaMA), Jiang et al. 2023 (Mistral), Qwen
// Team 2024 and 2025 (Qwen2, Qwen3).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/spec/model_fields.h"

namespace trainer {

/// A family. Sizes, dropout, initial standard deviation and tied embeddings differ between models
/// of every family; of the fields that change how a model computes, `free` names those in which
/// models of this family differ.
struct ModelFamily {
  std::string_view name;  ///< model_type of transformers.
  ModelSpec defaults;
  std::vector<std::string_view> free;
};
/// All of them, in the order in which find_family_of() tries them.
std::span<const ModelFamily> model_families();

/// The fields that prevent a model from belonging to a family, in the order of the table; none: it
/// can.
std::vector<const ModelField*> misfits(const ModelSpec& spec, const ModelFamily& family);

/// spec.family if that can represent the model, else the first that can; null if none can.
const ModelFamily* find_family_of(const ModelSpec& spec);

/// Why `family` cannot represent the model: "norm is layernorm, expected rmsnorm; ..."; empty: it
/// can.
std::string why_not(const ModelSpec& spec, const ModelFamily& family);

/// How a model that no family can represent would belong to the nearest one: "with --normalization
/// RMSNorm and without --qk-layernorm it would be llama".
std::string nearest_family(const ModelSpec& spec);

}  // namespace trainer
