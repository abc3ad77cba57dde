// The families of models that Hugging Face transformers has and that are known here: what every
// model of a family is, and in which fields its models differ. A model belongs to a family by its
// `family` field, or to the first that can hold it. Not here: names of tensors and keys of
// config.json (convert/families). May include: spec/model_fields.h.
// Sources: Radford et al. 2019 (GPT-2), Zhang et al. 2022 (OPT), Black et al. 2022 (GPT-NeoX-20B),
// Touvron et al. 2023 (LLaMA), Jiang et al. 2023 (Mistral), Qwen Team 2024 and 2025 (Qwen2, Qwen3).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/spec/model_fields.h"

namespace trainer {

/// A family. Sizes, dropout, initial spread and tied embeddings are every model's own; of the
/// fields that decide how it computes, `free` names those in which models of the family differ.
struct ModelFamily {
  std::string_view name;  ///< model_type of transformers.
  ModelSpec defaults;
  std::vector<std::string_view> free;
};
/// All of them, in the order in which find_family_of() tries them.
std::span<const ModelFamily> model_families();

/// The fields that keep a model from being of a family, in the order of the table; none: it can be.
std::vector<const ModelField*> misfits(const ModelSpec& spec, const ModelFamily& family);

/// spec.family where that can hold the model, else the first that can; null when none can.
const ModelFamily* find_family_of(const ModelSpec& spec);

/// Why `family` cannot hold the model: "norm is layernorm, expected rmsnorm; ..."; empty: it can.
std::string why_not(const ModelSpec& spec, const ModelFamily& family);

/// What would make a model that no family holds one of the nearest: "with --normalization RMSNorm
/// and without --qk-layernorm it would be llama".
std::string nearest_family(const ModelSpec& spec);

}  // namespace trainer
