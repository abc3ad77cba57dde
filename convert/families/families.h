// SPDX-License-Identifier: MIT
// The list of families, and what their config.json files share. A new family is a file here and a
// line in all_families().
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "convert/families/family.h"

namespace convert {

extern const Family kGpt2;
extern const Family kOpt;
extern const Family kGptNeox;
extern const Family kLlama;

/// Every family, in the order in which choose_family() tries them.
std::span<const Family* const> all_families() noexcept;

/// A float as the shortest decimal that reads back as it: 1e-05, not 9.999999747378752e-06.
double shortest(float value);

/// transformers' name of an activation that is applied as it is; empty for swiglu.
std::string_view activation_name(ops::Activation activation);

/// The other way. Errors: indexed::FormatError for one that the trainer has not.
ops::Activation activation_from_name(const std::string& name);

/// Why a family whose heads have keys of their own and fill the hidden size cannot hold such a
/// model; empty when it can.
std::string refusal_of_plain_heads(const trainer::ModelSpec& spec);

/// Integer `key` of a config. Errors: indexed::FormatError when it is missing or not a positive
/// whole number.
int64_t config_integer(const nlohmann::json& config, const char* key);

/// Integer `key`, or `otherwise` when it is missing or null.
int64_t config_integer(const nlohmann::json& config, const char* key, int64_t otherwise);

/// Number `key`, or `otherwise`.
float config_real(const nlohmann::json& config, const char* key, float otherwise);

/// Boolean `key`, or `otherwise`.
bool config_bool(const nlohmann::json& config, const char* key, bool otherwise);

/// "rope_parameters" of a config of transformers 5, or an empty object.
/// Errors: indexed::FormatError for positions that are scaled, which is not supported.
nlohmann::json rope_parameters(const nlohmann::json& config);

}  // namespace convert
