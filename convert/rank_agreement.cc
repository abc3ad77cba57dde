// SPDX-License-Identifier: MIT
// rank_agreement.h: two files' numbers, and bytes of copies, compared.
#include "convert/rank_agreement.h"

#include "convert/megatron_names.h"
#include "convert/megatron_source.h"
#include "convert/tensor_blocks.h"
#include "libindexed/format.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;

// Arguments that shape the model or its files, but are no fields of it.
constexpr const char* kArguments[] = {"apply_layernorm_1p", "layernorm_zero_centered_gamma",
                                      "tensor_model_parallel_size", "pipeline_model_parallel_size",
                                      "virtual_pipeline_model_parallel_size"};

// Only training depends on them.
bool is_for_training(std::string_view field) {
  return field == "hidden_dropout" || field == "attention_dropout" || field == "init_method_std";
}

std::string shown(std::optional<double> number) {
  if (!number) return "none";
  std::string text = std::to_string(*number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

[[noreturn]] void fail(const TorchFile& first, const TorchFile& other, const std::string& what,
                       const std::string& here, const std::string& there) {
  throw FormatError(other.path() + ": its " + what + " is " + here + ", but " + there + " in " +
                    first.path() + ": files of two checkpoints");
}

ModelSpec spec_of(const TorchFile& file, Value args, bool core_layout) {
  try {
    return spec_from_arguments(args, core_layout);
  } catch (const FormatError& error) {
    throw FormatError(file.path() + ": " + error.what());
  }
}

}  // namespace

void refuse_other_run(const TorchFile& first, const TorchFile& other, bool core_layout) {
  for (const char* key : {"iteration", "checkpoint_version"}) {
    const std::optional<double> here = other.root().find(key).real();
    const std::optional<double> there = first.root().find(key).real();
    if (here != there) fail(first, other, key, shown(here), shown(there));
  }
  const Value here = other.root().find("args"), there = first.root().find("args");
  const ModelSpec own = spec_of(other, here, core_layout);
  const ModelSpec model = spec_of(first, there, core_layout);
  for (const trainer::ModelField& field : trainer::model_fields())
    if (!is_for_training(field.name) && !trainer::same_field(field, own, model))
      fail(first, other, "model's " + std::string(field.name), trainer::field_text(field, own),
           trainer::field_text(field, model));
  for (const char* name : kArguments)
    if (here.attribute(name).integer() != there.attribute(name).integer())
      fail(first, other, std::string("argument ") + name, shown(here.attribute(name).real()),
           shown(there.attribute(name).real()));
}

std::string differing_copy(const RankShares& shares, const std::vector<Twins>& twins) {
  const auto said = [](const TensorSource& copy, const TensorSource& first) {
    return copy.place + ": is not the same as " + first.place;
  };
  for (const auto& [name, all] : shares) {
    if (share_of(name) != Share::same) continue;
    for (size_t rank = 1; rank < all.size(); ++rank)
      if (!same_bytes(all[0], all[rank])) return said(all[rank], all[0]);
  }
  for (const auto& [first, copy] : twins)
    if (!same_bytes(first, copy)) return said(copy, first);
  return {};
}

void refuse_other_head(const RankShares& shares, const ModelSpec& spec, const std::string& why) {
  const auto head = shares.find("output_layer.weight"),
             words = shares.find("embedding.word_embeddings.weight");
  if (!spec.tied_embeddings || head == shares.end()) return;
  for (size_t rank = 0; rank < head->second.size(); ++rank)
    if (words == shares.end() || rank >= words->second.size() ||
        !same_bytes(words->second[rank], head->second[rank]))
      throw FormatError(head->second[rank].place + ": is not the embedding, but " + why);
}

}  // namespace convert
