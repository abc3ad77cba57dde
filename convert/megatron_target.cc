// SPDX-License-Identifier: MIT
// megatron_target.h: arguments and nested names. Every argument that transformers' converter or
// Megatron's own check of a checkpoint reads is written, with the value that the model really has.
#include "convert/megatron_target.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "convert/megatron_names.h"
#include "convert/target_root.h"
#include "convert/torch_writer.h"
#include "libindexed/format.h"
#include "libindexed/output_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;
namespace fs = std::filesystem;

class Arguments {
 public:
  Arguments(PickleBuilder& out, bool ordered) : out_(out) {
    ordered ? out_.begin_attributes() : out_.begin_namespace();
  }
  void add(std::string_view name, int64_t value) { out_.text(name).integer(value); }
  void add(std::string_view name, float value) { out_.text(name).real(std::stod(shown(value))); }
  void on(std::string_view name, bool value) { out_.text(name).boolean(value); }
  void add(std::string_view name, const std::string& value) {
    value.empty() ? out_.text(name).none() : out_.text(name).text(value);
  }
  void none(std::string_view name) { out_.text(name).none(); }
  void pair(std::string_view name, int64_t a, int64_t b) { out_.text(name).pair(a, b); }
  void end() { out_.end_object(); }

 private:
  static std::string shown(float value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }
  PickleBuilder& out_;
};

// A field that is an argument of its own, by its type.
struct FieldArgument {
  Arguments& args;
  const ModelSpec& spec;
  const trainer::ModelField& field;

  void operator()(bool ModelSpec::*member) const {
    args.on(field.argument, spec.*member != field.inverted);
  }
  void operator()(int64_t ModelSpec::*member) const { args.add(field.argument, spec.*member); }
  void operator()(float ModelSpec::*member) const {
    const float value = spec.*member;  // Megatron's are whole numbers where these can be.
    const bool whole = field.name == "rotary_base" && value == std::floor(value);
    whole ? args.add(field.argument, static_cast<int64_t>(value)) : args.add(field.argument, value);
  }
  template <class Other>
  void operator()(Other ModelSpec::*) const {
    args.add(field.argument, trainer::field_text(field, spec, true));
  }
};

void add_model(Arguments& args, const ModelSpec& spec) {
  ModelSpec said = spec;
  said.qkv_bias = spec.has_qkv_bias();
  const bool scaled = spec.rotary_interpolation != 1;
  for (const trainer::ModelField& field : trainer::model_fields()) {
    if (field.known != trainer::ModelField::Known::megatron || field.argument.empty() ||
        field.name == "vocab_size")
      continue;
    if (field.name == "rotary_interpolation" && !scaled)
      args.none(field.argument);
    else
      std::visit(FieldArgument{args, said, field}, field.member);
  }
  args.on("group_query_attention", spec.num_query_groups != spec.num_attention_heads);
  args.add("seq_length", spec.max_position_embeddings);
  const bool rotary = spec.position == trainer::Position::rotary;
  args.on("add_position_embedding", !rotary);
  args.on("use_rotary_position_embeddings", rotary);
  args.on("rotary_interleaved", false);
  args.add("padded_vocab_size", spec.padded_vocab_size);
  args.add("orig_vocab_size", spec.vocab_size);
  args.on("add_bias_linear", spec.linear_bias);
  args.on("swiglu", spec.gated());
  args.on("squared_relu", false);
  args.on("bias_gelu_fusion", spec.activation == ops::Activation::gelu_tanh);
  args.on("openai_gelu", false);
  args.on("onnx_safe", false);
  args.add("layernorm_epsilon", spec.norm_epsilon);
  if (spec.sliding_window > 0)
    args.pair("window_size", spec.sliding_window - 1, 0);
  else
    args.none("window_size");
  for (const char* name :
       {"apply_layernorm_1p", "apply_query_key_layer_scaling",
        "apply_residual_connection_post_layernorm", "sequence_parallel", "bert_binary_head"})
    args.on(name, false);
}

void add_run(Arguments& args, const CanonicalModel& model, const std::string& dtype,
             const std::string& tokenizer, int64_t divisible_by) {
  args.add("make_vocab_size_divisible_by", divisible_by);
  args.add("tokenizer_type",
           std::string(tokenizer.empty() ? "GPT2BPETokenizer" : "PretrainedFromHF"));
  args.add("tokenizer_name_or_path", tokenizer);
  args.none("tokenizer_model");
  args.add("vocab_file", model.tokenizer.vocab_file);
  args.add("merge_file", model.tokenizer.merge_file);
  args.on("fp16", dtype == "F16");
  args.on("bf16", dtype == "BF16");
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                           "expert_model_parallel_size", "data_parallel_size", "world_size"})
    args.add(name, int64_t{1});
  args.none("virtual_pipeline_model_parallel_size");
  args.none("num_experts");
  args.add("iteration", model.iteration);
  args.add("consumed_train_samples", int64_t{0});
  args.add("consumed_valid_samples", int64_t{0});
  args.on("no_save_optim", true);
  args.on("no_save_rng", true);
  args.add("ckpt_format", std::string("torch"));
}

using Named = std::vector<std::pair<std::string, TensorSource>>;

// model = {language_model: {embedding: {word_embeddings: {weight}, ...}, encoder: {...}}}
void add_legacy(PickleBuilder& out, const Named& tensors) {
  out.begin_dict().text("language_model").begin_dict().text("embedding").begin_dict();
  const TensorSource* output = nullptr;
  bool in_encoder = false;
  for (const auto& [name, source] : tensors) {
    if (name == "output_layer.weight") {
      output = &source;
      continue;
    }
    const LegacyName legacy = legacy_name(name);
    if (legacy.folder == "language_model.encoder") {
      if (!in_encoder) out.end_dict().text("encoder").begin_ordered_dict();
      in_encoder = true;
      out.text(legacy.key).tensor(source);
    } else {
      out.text(legacy.folder.substr(legacy.folder.rfind('.') + 1)).begin_ordered_dict();
      out.text(legacy.key).tensor(source).end_dict();
    }
  }
  out.end_dict();
  if (output != nullptr)
    out.text("output_layer").begin_ordered_dict().text("weight").tensor(*output).end_dict();
  out.end_dict().end_dict();
}

void refuse_unspeakable(const ModelSpec& spec) {
  if (spec.activation == ops::Activation::relu)
    throw FormatError("Megatron-LM has no argument for a ReLU MLP");
  if (spec.parallel_residual)
    throw FormatError("Megatron-LM has no layer with attention and MLP in parallel");
  if (spec.post_norm || spec.projects_embeddings())
    throw FormatError(
        "Megatron-LM has no norms behind the branches alone, and no projected embeddings");
  if (spec.position_offset != 0)
    throw FormatError("Megatron-LM has no positions that start behind an offset");
  if (spec.attention_bias || spec.mlp_bias)
    throw FormatError(
        "Megatron-LM has biases in all linears, in none, or in those of q, k and v alone");
  const ModelSpec known;
  if (spec.rotary_scaling && (spec.rotary_low_freq_factor != known.rotary_low_freq_factor ||
                              spec.rotary_high_freq_factor != known.rotary_high_freq_factor ||
                              spec.rotary_original_positions != known.rotary_original_positions))
    throw FormatError("Megatron-LM scales rotary frequencies of " +
                      std::to_string(known.rotary_original_positions) +
                      " original positions with factors 1 and 4 alone");
}

// All of the file; `tokenizer` is the folder of its tokenizer, or empty.
PickleBuilder contents(const CanonicalModel& model, const MegatronTarget& target,
                       const std::string& tokenizer) {
  CanonicalModel padded = model;
  const int64_t unit = pad_vocabulary(padded, target.divisible_by);
  const std::string dtype = target.dtype.empty() ? model.dtype : target.dtype;
  Named tensors = core_tensors(padded);
  if (!target.dtype.empty())
    for (auto& [name, source] : tensors) source = convert_dtype(source, target.dtype);
  PickleBuilder out;
  out.begin_dict().text("args");
  Arguments args(out, target.ordered_args);
  add_model(args, padded.spec);
  add_run(args, model, dtype, tokenizer, unit);
  out.text("params_dtype")
      .global("torch", dtype == "BF16"  ? "bfloat16"
                       : dtype == "F16" ? "float16"
                                        : "float32");
  args.end();
  out.text("checkpoint_version").real(3.0).text("iteration").integer(model.iteration);
  out.text("model");
  if (target.core_names) {
    out.begin_ordered_dict();
    for (const auto& [name, source] : tensors) out.text(name).tensor(source);
    out.end_dict();
  } else {
    add_legacy(out, tensors);
  }
  out.end_dict();
  return out;
}

indexed::Existing existing(const MegatronTarget& target) {
  return target.replace ? indexed::Existing::replace : indexed::Existing::refuse;
}

// Where the weights wait for their name, and do not stay.
class Unnamed {
 public:
  explicit Unnamed(const fs::path& root) : path_(root / ".model_optim_rng.pt.tmp") {
    fs::remove(path_);  // of a killed conversion
  }
  ~Unnamed() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

// The outermost link on the way to ROOT/release/mp_rank_00/model_optim_rng.pt, or that file.
fs::path outermost_link(const fs::path& file) {
  const fs::path rank = file.parent_path(), folder = rank.parent_path();
  for (const fs::path& path : {folder, rank})
    if (fs::is_symlink(path)) return path;
  return file;
}

// The root folder of a checkpoint. Between the old weights and the new tracker there is none, so
// that nothing of the two models is read together.
void write_root(const CanonicalModel& model, const TokenizerFiles& tokenizer,
                const MegatronTarget& target) {
  const fs::path root(target.path), tracker_path = root / "latest_checkpointed_iteration.txt";
  const fs::path file = root / "release" / "mp_rank_00" / "model_optim_rng.pt";
  const std::string folder = trainer::plain_path(target.path) / "tokenizer";
  PickleBuilder out = contents(model, target, tokenizer.files.empty() ? "" : folder);
  const std::unique_ptr<FolderLock> lock =
      open_root({target.path, "release", target.replace}, tokenizer);
  // Ends last: a signal that waits for it finds what has no name removed.
  std::optional<indexed::NamingSection> naming;
  const Unnamed weights(root);
  TokenizerBeside beside(tokenizer, (root / "tokenizer").string(), target.replace);
  SetAside old(target.path, kTracker);
  write_torch_file(weights.path().string(), std::move(out), indexed::Existing::replace,
                   target.progress, [&] { naming.emplace(); });
  if (target.replace)
    for (const fs::path& path : {tracker_path, outermost_link(file)}) old.take(path);
  refuse_existing(file.string(), false);
  beside.take_names(old);
  old.make_folders(file.parent_path());
  old.name(weights.path(), file);
  indexed::OutputFile tracker(tracker_path.string(), existing(target));
  tracker.write("release");
  tracker.sync();
  old.expect_last(tracker);
  old.end_names();
  tracker.commit();
  old.keep();
}

}  // namespace

Named core_tensors(const CanonicalModel& model) {
  const ModelSpec& spec = model.spec;
  const QkvShape shape{spec.num_attention_heads, spec.num_query_groups, spec.kv_channels};
  Named out;
  for (const CanonicalEntry& entry : canonical_entries(spec)) {
    const std::string& name = entry.name;
    const auto part = [&](std::string_view from, const char* to) {
      return std::string(name).replace(name.find(from), from.size(), to);
    };
    if (name.find("linear_q.") != std::string::npos) {
      out.emplace_back(part("linear_q.", "linear_qkv."),
                       join_qkv(model.at(name), model.at(part("linear_q.", "linear_k.")),
                                model.at(part("linear_q.", "linear_v.")), shape));
    } else if (name.find("linear_gate.") != std::string::npos) {
      out.emplace_back(part("linear_gate.", "linear_fc1."),
                       join_rows({model.at(name), model.at(part("linear_gate.", "linear_up."))}));
    } else if (name.find("linear_k.") == std::string::npos &&
               name.find("linear_v.") == std::string::npos &&
               name.find("linear_up.") == std::string::npos) {
      out.emplace_back(name, model.at(name));
    }
  }
  return out;
}

void write_megatron(const CanonicalModel& model, const TokenizerFiles& tokenizer,
                    const MegatronTarget& target) {
  refuse_unspeakable(model.spec);
  if (!target.path.ends_with(".pt")) return write_root(model, tokenizer, target);
  if (!target.replace && fs::exists(target.path))  // before any work
    throw std::system_error(EEXIST, std::generic_category(),
                            target.path + ": not replaced without --force");
  write_torch_file(target.path, contents(model, target, ""), existing(target), target.progress);
}

}  // namespace convert
