// See decoder_weights.h. Hugging Face folders are read by convert/, whose canonical form has
// separate query, key and value and an unpadded vocabulary; here they are joined as the model needs
// them.
//
// SPDX-License-Identifier: MIT
#include "trainer/generation/decoder_weights.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "convert/canonical.h"
#include "convert/hf_folder.h"
#include "convert/tensor_blocks.h"
#include "convert/tokenizer_files.h"
#include "convert/trainer_source.h"
#include "libindexed/workers.h"
#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/killed_conversion.h"
#include "trainer/checkpoint/named_tokenizer.h"
#include "trainer/session/foreign.h"
#include "trainer/session/snapshot.h"
#include "trainer/spec/model_fields.h"

namespace trainer {
namespace {

std::string flag_value(const CheckpointMeta& meta, const char* flag) {
  const auto found = meta.config.find(flag);
  return found == meta.config.end() || found->second.empty() ? "" : found->second[0];
}

bool is_aligned(const std::byte* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

// bf16 matrices are widened when they are multiplied; everything else that is not fp32 is
// converted.
DType held_dtype(const std::string& stored, size_t dimensions) {
  return stored == "BF16" && dimensions == 2 ? DType::bf16 : DType::f32;
}

// A parameter of a checkpoint. Main parameters are preferred if there are any, because they are
// more precise.
WeightPlace stored_place(Checkpoint& checkpoint, const LocalParam& param) {
  const TensorRecord* record = checkpoint.meta().find("model", param.spec.name);
  if (record == nullptr || checkpoint.meta().find("main", param.spec.name) != nullptr) return {};
  WeightPlace place{held_dtype(record->dtype, param.shape.size())};
  const bool as_held = place.dtype == DType::bf16 || record->dtype == "F32";
  if (!as_held || record->shape != param.spec.shape || record->shards.size() != 1 ||
      record->shards[0].piece != Piece::whole(record->shape))
    return place;
  const std::byte* data = checkpoint.view(*record, record->shards[0], 0, 0).data();
  if (is_aligned(data, place.dtype == DType::bf16 ? 2 : 4)) place.in_place = data;
  return place;
}

DecoderModel open_checkpoint_model(const std::string& path) {
  const std::shared_ptr<Checkpoint> checkpoint =
      std::make_shared<Checkpoint>(Checkpoint::open(path));
  const CheckpointMeta& meta = checkpoint->meta();
  DecoderModel model;
  model.spec = model_from_record(meta.model);
  model.spec.hidden_dropout = model.spec.attention_dropout = 0;  // only for training
  complete(model.spec);
  const std::string stored = meta.tensors.empty() ? "" : meta.tensors.front().dtype;
  model.dtype = stored == "BF16" ? "bf16" : stored == "F16" ? "fp16" : "fp32";
  model.tokenizer_hash = meta.tokenizer_hash;
  model.tokenizer_type = flag_value(meta, "tokenizer-type");
  tokenizer::Flags& files = model.tokenizer;
  const bool null = model.tokenizer_type == "NullTokenizer";  // its files were not opened.
  files = tokenizer::counting({.type = null ? std::string() : model.tokenizer_type,
                               .model = flag_value(meta, "tokenizer-model"),
                               .vocab_file = flag_value(meta, "vocab-file"),
                               .merge_file = flag_value(meta, "merge-file"),
                               .tiktoken_pattern = flag_value(meta, "tiktoken-pattern")});
  files.type.clear();  // A prompt is encoded as transformers does, whatever the type.
  const std::string beside = tokenizer_folder(path);
  model.tokenizer_note =
      take_own_tokenizer(beside, {&files.vocab_file, &files.merge_file, &files.model});
  if (!std::filesystem::exists(files.model) &&
      std::filesystem::exists(beside + "/tokenizer_config.json")) {
    files = {.model = beside};  // training copied it there
  }
  // A conversion puts the model's configurations beside the tokenizer.
  for (const std::string& folder : {files.model, beside})
    if (!model.ends && std::filesystem::is_directory(folder))
      model.ends = convert::ends_of_text(folder);
  model.place = [checkpoint](const LocalParam& param) { return stored_place(*checkpoint, param); };
  model.load = [checkpoint](Decoder& decoder, ops::Ops& ops) {
    const std::vector<Decoder::Parameter>& all = decoder.parameters();
    // What can be used in the mapped file stays there; all processors verify its checksums.
    indexed::share_work(
        static_cast<int64_t>(all.size()), indexed::copying_threads(), [&](int64_t i) {
          const Decoder::Parameter& p = all[static_cast<size_t>(i)];
          if (!p.in_place) return;
          const TensorRecord& record = *checkpoint->meta().find("model", p.param->spec.name);
          checkpoint->view(record, record.shards[0], 0, p.tensor.bytes());
        });
    for (const Decoder::Parameter& p : all)
      if (!p.in_place) load_weight(ops, *checkpoint, *p.param, p.tensor);
  };
  return model;
}

// One parameter in the model's form, made from canonical tensors.
convert::TensorSource canonical_source(const convert::CanonicalModel& model,
                                       const ParamSpec& param) {
  const std::string& name = param.name;
  const size_t qkv = name.find("linear_qkv");
  if (qkv != std::string::npos) {
    const auto part = [&](const char* which) {
      std::string out = name;
      return model.at(out.replace(qkv, 10, which));
    };
    const ModelSpec& s = model.spec;
    return convert::join_qkv(part("linear_q"), part("linear_k"), part("linear_v"),
                             {s.num_attention_heads, s.num_query_groups, s.kv_channels});
  }
  const size_t fc1 = name.find("linear_fc1");
  if (fc1 != std::string::npos && model.spec.gated()) {
    std::string gate = name, up = name;
    return convert::join_rows({model.at(gate.replace(fc1, 10, "linear_gate")),
                               model.at(up.replace(fc1, 10, "linear_up"))});
  }
  return model.at(name);
}

// Linears, whose weights the decoder multiplies in any order and in pieces.
bool is_linear(const LocalParam& param) {
  const Role role = param.spec.role;
  return role == Role::qkv_weight || role == Role::proj_weight || role == Role::fc1_weight ||
         role == Role::fc2_weight;
}

// A linear's weight as it lies in the file: a transpose, as GPT-2's Conv1D has it, or pieces, as q,
// k and v or a gate. Neighbours in memory are neighbours in the list.
void place_pieces(WeightPlace& place, const convert::TensorSource& source) {
  std::vector<convert::MappedPiece> mapped = source.mapped_pieces();
  const int64_t element = source.element_bytes();
  for (const convert::MappedPiece& piece : mapped)
    if (!is_aligned(piece.data, element) || piece.transposed != mapped[0].transposed) return;
  if (mapped.empty()) return;
  std::ranges::sort(mapped, std::less<>(), &convert::MappedPiece::data);
  place.in_place = mapped[0].data;
  place.transposed = mapped[0].transposed;
  const int64_t row = source.shape[place.transposed ? 0 : 1] * element;
  if (mapped.size() == 1 && mapped[0].row_bytes == row) return;
  for (const convert::MappedPiece& piece : mapped)
    place.pieces.push_back({piece.data, piece.first, piece.count, piece.row_bytes / element});
}

// A parameter of a folder.
WeightPlace folder_place(const convert::CanonicalModel& model, const LocalParam& param) {
  const convert::TensorSource source = canonical_source(model, param.spec);
  WeightPlace place{held_dtype(source.dtype, param.shape.size())};
  const bool as_held = place.dtype == DType::bf16 || source.dtype == "F32";
  if (!as_held || source.shape != param.shape) return place;
  if (is_linear(param)) {
    place_pieces(place, source);
    return place;
  }
  const std::byte* data = source.in_place(0, source.rows());
  if (data != nullptr && is_aligned(data, source.element_bytes())) place.in_place = data;
  return place;
}

convert::TensorSource folder_source(const convert::CanonicalModel& model,
                                    const Decoder::Parameter& p) {
  const char* dtype = p.tensor.dtype == DType::bf16  ? "BF16"
                      : p.tensor.dtype == DType::f16 ? "F16"
                                                     : "F32";
  convert::TensorSource source =
      convert::convert_dtype(canonical_source(model, p.param->spec), dtype);
  if (source.bytes() != p.tensor.bytes()) {
    throw ShapeError(p.param->spec.name +
                     ": the folder's tensor has another size than the model's");
  }
  return source;
}

DecoderModel open_hf_model(const std::string& path) {
  const std::shared_ptr<convert::CanonicalModel> source =
      std::make_shared<convert::CanonicalModel>(convert::read_hf_folder(path));
  DecoderModel model;
  model.spec = source->spec;
  model.dtype = source->dtype == "BF16" ? "bf16" : source->dtype == "F16" ? "fp16" : "fp32";
  model.tokenizer.model = path;
  model.ends = convert::ends_of_text(path);
  model.notes = source->notes;
  model.place = [source](const LocalParam& param) { return folder_place(*source, param); };
  model.load = [source](Decoder& decoder, ops::Ops& ops) {
    std::vector<convert::TensorSource> tensors;
    std::vector<std::byte*> memories;
    for (const Decoder::Parameter& p : decoder.parameters()) {
      if (p.in_place) continue;
      const convert::TensorSource stored = folder_source(*source, p);
      if (p.tensor.device == Device::cpu) {
        tensors.push_back(stored);
        memories.push_back(static_cast<std::byte*>(p.tensor.data));
        continue;
      }
      const std::vector<std::byte> bytes = stored.load();
      ops.upload(p.tensor, bytes.data());
      ops.wait(ops.mark());
    }
    convert::load_all(tensors, memories);
  };
  return model;
}

}  // namespace

DecoderModel open_decoder_model(const std::string& path, std::optional<int64_t> step) {
  // As megatron-to-hf reads a folder: its checkpoint, not an export that was once made of it.
  const bool exported = std::filesystem::exists(path + "/config.json");
  const bool trained = convert::is_trainer_checkpoint(path, std::nullopt);
  if (exported && !trained && !step) return open_hf_model(path);
  const std::string kind = exported || trained ? "" : foreign_checkpoint(path);
  if (!kind.empty())
    throw cli::UsageError(cli::concat(
        path, ": ", kind, ": convert it with megatron-to-hf --input ", cli::shell_word(path),
        step ? cli::concat(" --iteration ", *step) : "", " --output FOLDER, and give FOLDER"));
  const std::optional<std::string> folder = find_checkpoint(path, step);
  if (!folder)
    throw cli::UsageError(
        cli::concat(path, ": no checkpoint there, and no config.json", killed_conversion(path)));
  DecoderModel model = open_checkpoint_model(*folder);
  if (exported)
    model.notes.push_back(cli::concat(path, ": has a checkpoint and an export: ", *folder,
                                      " is taken, config.json is not read"));
  return model;
}

}  // namespace trainer
