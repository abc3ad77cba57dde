// See decoder_weights.h. Hugging Face folders are read by convert/, whose canonical form has query,
// key and value apart and the vocabulary unpadded; they are joined here as the model holds them.
//
// SPDX-License-Identifier: MIT
#include "trainer/generation/decoder_weights.h"

#include <filesystem>
#include <memory>

#include "convert/canonical.h"
#include "convert/hf_folder.h"
#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/session/snapshot.h"
#include "trainer/spec/model_fields.h"

namespace trainer {
namespace {

std::string flag_value(const CheckpointMeta& meta, const char* flag) {
  const auto found = meta.config.find(flag);
  return found == meta.config.end() || found->second.empty() ? "" : found->second[0];
}

DecoderModel open_checkpoint_model(const std::string& path) {
  const std::shared_ptr<Checkpoint> checkpoint =
      std::make_shared<Checkpoint>(Checkpoint::open(path));
  const CheckpointMeta& meta = checkpoint->meta();
  DecoderModel model;
  model.spec = model_from_record(meta.model);
  model.spec.hidden_dropout = model.spec.attention_dropout = 0;  // of training alone
  complete(model.spec);
  const std::string stored = meta.tensors.empty() ? "" : meta.tensors.front().dtype;
  model.dtype = stored == "BF16" ? "bf16" : stored == "F16" ? "fp16" : "fp32";
  model.tokenizer = {flag_value(meta, "vocab-file"), flag_value(meta, "merge-file"),
                     flag_value(meta, "tokenizer-model")};
  const std::filesystem::path beside = std::filesystem::path(path).parent_path() / "tokenizer";
  if (!std::filesystem::exists(model.tokenizer.tokenizer_model) &&
      std::filesystem::exists(beside / "tokenizer_config.json")) {
    model.tokenizer = {.tokenizer_model = beside.string()};  // what training carried along
  }
  model.load = [checkpoint](Decoder& decoder, ops::Ops& ops) {
    for (const Decoder::Parameter& p : decoder.parameters())
      load_weight(ops, *checkpoint, *p.param, p.tensor);
  };
  return model;
}

// One parameter as the model holds it, out of canonical tensors.
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

DecoderModel open_hf_model(const std::string& path) {
  const std::shared_ptr<convert::CanonicalModel> source =
      std::make_shared<convert::CanonicalModel>(convert::read_hf_folder(path));
  DecoderModel model;
  model.spec = source->spec;
  model.dtype = source->dtype == "BF16" ? "bf16" : source->dtype == "F16" ? "fp16" : "fp32";
  model.tokenizer.tokenizer_model = path;
  model.notes = source->notes;
  model.load = [source](Decoder& decoder, ops::Ops& ops) {
    for (const Decoder::Parameter& p : decoder.parameters()) {
      const char* dtype = p.tensor.dtype == DType::bf16  ? "BF16"
                          : p.tensor.dtype == DType::f16 ? "F16"
                                                         : "F32";
      const convert::TensorSource stored =
          convert::convert_dtype(canonical_source(*source, p.param->spec), dtype);
      if (stored.bytes() != p.tensor.bytes()) {
        throw ShapeError(p.param->spec.name +
                         ": the folder's tensor has another size than the model's");
      }
      if (p.tensor.device == Device::cpu) {
        stored.read_rows(0, stored.rows(), static_cast<std::byte*>(p.tensor.data));
        continue;
      }
      const std::vector<std::byte> bytes = stored.load();
      ops.upload(p.tensor, bytes.data());
      ops.wait(ops.mark());
    }
  };
  return model;
}

}  // namespace

DecoderModel open_decoder_model(const std::string& path, std::optional<int64_t> step) {
  if (std::filesystem::exists(path + "/config.json")) return open_hf_model(path);
  const std::optional<std::string> folder = find_checkpoint(path, step);
  if (!folder)
    throw cli::UsageError(cli::concat(path, ": no checkpoint there, and no config.json"));
  return open_checkpoint_model(*folder);
}

}  // namespace trainer
