// SPDX-License-Identifier: MIT
// family.h: uses a family's rows in both directions; the list of families.
#include "convert/families/family.h"

#include <algorithm>
#include <array>

#include "convert/families/families.h"
#include "libindexed/format.h"
#include "trainer/spec/families.h"

namespace convert {
namespace {

using indexed::FormatError;

constexpr std::string_view kOutputLayer = "output_layer.weight";

std::string numbered(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  if (at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

std::string canonical_name(const NameRow& row, std::string_view name,
                           const trainer::ModelSpec& spec, int64_t layer) {
  if (layer < 0) return std::string(name);
  if (row.next && layer + 1 == spec.num_layers)
    return "decoder.final_layernorm" + std::string(name.substr(name.rfind('.')));
  return layer_name(row.next ? layer + 1 : layer, name);
}

// A row's canonical names of one layer; -1: of the whole model.
std::vector<std::string> canonical_names(const NameRow& row, const trainer::ModelSpec& spec,
                                         int64_t layer) {
  std::vector<std::string> names;
  for (std::string_view name : row.canonical)
    names.push_back(canonical_name(row, name, spec, layer));
  return names;
}

// Whether the model has the row's tensor; `tensors` has a key for each that it has.
template <class Tensors>
bool has_row(const NameRow& row, const trainer::ModelSpec& spec, int64_t layer,
             const Tensors& tensors) {
  using When = NameRow::When;
  if (row.when != When::always && (row.when == When::post_norm) != spec.post_norm) return false;
  return !row.optional || tensors.contains(canonical_name(row, row.canonical[0], spec, layer));
}

QkvShape qkv_shape(const trainer::ModelSpec& spec) {
  return {spec.num_attention_heads, spec.num_query_groups, spec.kv_channels};
}

// The model's tensor, or zeros for a bias that only the target has.
TensorSource part_of(const CanonicalModel& model, const std::string& name) {
  const auto found = model.tensors.find(name);
  if (found != model.tensors.end()) return found->second;
  if (!name.ends_with(".bias")) return model.at(name);
  const TensorSource& weight = model.at(name.substr(0, name.size() - 4) + "weight");
  return zeros(weight.dtype, {weight.rows()});
}

TensorSource export_row(const NameRow& row, const CanonicalModel& model, int64_t layer) {
  std::vector<TensorSource> parts;
  for (const std::string& name : canonical_names(row, model.spec, layer))
    parts.push_back(part_of(model, name));
  TensorSource source = row.fuse == Fuse::grouped
                            ? join_qkv(parts[0], parts[1], parts[2], qkv_shape(model.spec))
                            : join_rows(parts);
  return row.transposed ? transpose(source) : source;
}

using Shapes = std::map<std::string, std::vector<int64_t>>;

void import_row(const NameRow& row, TensorSource source, const trainer::ModelSpec& spec,
                const Shapes& shapes, int64_t layer, std::map<std::string, TensorSource>& out) {
  if (row.transposed) source = transpose(source);
  const std::vector<std::string> names = canonical_names(row, spec, layer);
  if (row.fuse == Fuse::grouped) {
    const std::vector<TensorSource> parts = split_qkv(source, qkv_shape(spec), QkvOrder::grouped);
    for (size_t i = 0; i < names.size(); ++i) out[names[i]] = parts[i];
    return;
  }
  if (row.fuse == Fuse::none) {
    out[names.at(0)] = source;
    return;
  }
  int64_t first = 0;
  for (const std::string& name : names) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end()) throw FormatError(source.place + ": this model has no " + name);
    out[name] = slice_rows(source, first, shape->second.at(0));
    first += shape->second.at(0);
  }
  if (first != source.rows())
    throw FormatError(source.place + ": " + std::to_string(source.rows()) + " rows, expected " +
                      std::to_string(first));
}

// A folder's tensors by the family's full names, without buffers.
std::map<std::string, TensorSource> full_names(const Family& family,
                                               const std::map<std::string, TensorSource>& tensors) {
  std::map<std::string, TensorSource> result;
  for (const auto& [name, source] : tensors) {
    const std::string_view text = name;
    if (std::any_of(family.ignored.begin(), family.ignored.end(),
                    [&](std::string_view end) { return text.ends_with(end); }))
      continue;
    result[name] = source;
  }
  return result;
}

}  // namespace

std::span<const Family* const> all_families() noexcept {
  static constexpr std::array<const Family*, 7> kAll = {&kGpt2,    &kOpt,   &kGptNeox, &kLlama,
                                                        &kMistral, &kQwen2, &kQwen3};
  return kAll;
}

const Family* find_family(std::string_view name) noexcept {
  for (const Family* family : all_families())
    if (family->name == name) return family;
  return nullptr;
}

std::string refusal(const Family& family, const trainer::ModelSpec& spec) {
  for (const trainer::ModelFamily& known : trainer::model_families())
    if (known.name == family.name) return trainer::why_not(spec, known);
  return "the family is not known";
}

const Family& choose_family(const trainer::ModelSpec& spec) {
  if (const trainer::ModelFamily* family = trainer::find_family_of(spec))
    return *find_family(family->name);
  std::string reasons;
  for (const trainer::ModelFamily& family : trainer::model_families())
    reasons += (reasons.empty() ? "" : "; ") + std::string(family.name) + ": " +
               trainer::why_not(spec, family);
  throw FormatError("no family of Hugging Face models holds this one: " + reasons);
}

std::vector<std::pair<std::string, TensorSource>> export_tensors(const Family& family,
                                                                 const CanonicalModel& model) {
  std::vector<std::pair<std::string, TensorSource>> out;
  std::vector<NameRow> last;
  for (const NameRow& row : family.rows) {
    const std::string_view first = row.canonical[0];
    if (first == kOutputLayer && model.spec.tied_embeddings) continue;
    if (!has_row(row, model.spec, -1, model.tensors)) continue;
    if (!first.starts_with("embedding.")) {
      last.push_back(row);
    } else {
      out.emplace_back(row.hf, export_row(row, model, -1));
    }
  }
  for (int64_t layer = 0; layer < model.spec.num_layers; ++layer)
    for (const NameRow& row : family.layer_rows)
      if (has_row(row, model.spec, layer, model.tensors))
        out.emplace_back(numbered(row.hf, layer), export_row(row, model, layer));
  for (const NameRow& row : last) out.emplace_back(row.hf, export_row(row, model, -1));
  return out;
}

std::map<std::string, TensorSource> import_tensors(
    const Family& family, const trainer::ModelSpec& spec,
    const std::map<std::string, TensorSource>& tensors) {
  check_numbers(spec);
  if (spec.num_layers > static_cast<int64_t>(tensors.size()))
    throw FormatError(std::to_string(spec.num_layers) + " layers, but " +
                      std::to_string(tensors.size()) + " tensors");
  Shapes shapes;
  for (const CanonicalEntry& entry : canonical_entries(spec)) shapes[entry.name] = entry.shape;
  std::map<std::string, TensorSource> left = full_names(family, tensors), out;
  const auto take = [&](const std::string& hf) {
    auto found = left.find(hf);
    for (std::string_view base : family.bases) {
      if (found != left.end()) break;
      found = left.find(hf.starts_with(base) ? hf.substr(base.size()) : std::string(base) + hf);
    }
    if (found == left.end()) throw FormatError("the folder has no tensor " + hf);
    TensorSource source = found->second;
    left.erase(found);
    return source;
  };
  for (const NameRow& row : family.rows) {
    const bool head = row.canonical[0] == kOutputLayer;
    if (head && spec.tied_embeddings) {
      left.erase(std::string(row.hf));  // the same numbers as the embedding
      continue;
    }
    if (!has_row(row, spec, -1, shapes)) continue;
    import_row(row, take(std::string(row.hf)), spec, shapes, -1, out);
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    for (const NameRow& row : family.layer_rows)
      if (has_row(row, spec, layer, shapes))
        import_row(row, take(numbered(row.hf, layer)), spec, shapes, layer, out);
  if (!left.empty())
    throw FormatError(left.begin()->second.place + ": " + left.begin()->first +
                      " is no tensor of a " + std::string(family.name) + " model");
  return out;
}

}  // namespace convert
