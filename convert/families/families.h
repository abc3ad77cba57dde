// SPDX-License-Identifier: MIT
// The list of families (each in a file here, or several in one), and what they share. A new family
// is a line in all_families(), its rows, and its description in trainer/spec/families.cc.
#pragma once

#include <span>
#include <string>

#include "convert/families/family.h"

namespace convert {

extern const Family kGpt2;
extern const Family kOpt;
extern const Family kGptNeox;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;

/// Every family.
std::span<const Family* const> all_families() noexcept;

/// A float as the shortest decimal that reads back the same: 1e-05, not 9.999999747378752e-06.
double shortest(float value);

/// transformers' name of an activation; "silu" for swiglu's gate.
std::string_view activation_name(ops::Activation activation);

/// The reverse. Errors: indexed::FormatError for one that the trainer does not have.
ops::Activation activation_from_name(const std::string& name);

/// Whether both names stand for one formula; false for names of none.
bool same_activation(const std::string& a, const std::string& b) noexcept;

/// Rotary positions of a config: rope_theta, rope_scaling, or transformers 5's rope_parameters.
/// gpt_neox has a row of its own for the base, and then rope_theta does not count.
/// Errors: indexed::FormatError for a rope_type other than default, linear and llama3.
void read_rope(const Family& family, const nlohmann::json& config, trainer::ModelSpec& spec);
/// "rope_scaling" of a model that has one; null else.
nlohmann::ordered_json rope_scaling(const trainer::ModelSpec& spec);

}  // namespace convert
