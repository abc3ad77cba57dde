// SPDX-License-Identifier: MIT
// targets.h: the smallest good inputs. A model of one layer, two heads, width 4, in every form that
// the converters read: Megatron of one rank, core's names, torch_dist with stacked layers, ZeRO
// stages 3 and 1 of two ranks, DeepSpeed's and GPT-NeoX's layer files, a Hugging Face folder.
#include <array>
#include <bit>

#include "tests/convert/foreign_bytes.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

using foreign::call;
using foreign::dict;
using foreign::global;
using foreign::list;
using foreign::number;
using foreign::text;
using foreign::tuple;

constexpr uint64_t kWidth = 4, kRows = 8, kPositions = 4;

struct Parameter {
  std::string name;  // core's names, after "decoder." or complete
  std::vector<uint64_t> shape;

  uint64_t elements() const {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    return count;
  }
};

const std::vector<Parameter> kLayer = {{"input_layernorm.weight", {kWidth}},
                                       {"input_layernorm.bias", {kWidth}},
                                       {"self_attention.linear_qkv.weight", {3 * kWidth, kWidth}},
                                       {"self_attention.linear_qkv.bias", {3 * kWidth}},
                                       {"self_attention.linear_proj.weight", {kWidth, kWidth}},
                                       {"self_attention.linear_proj.bias", {kWidth}},
                                       {"pre_mlp_layernorm.weight", {kWidth}},
                                       {"pre_mlp_layernorm.bias", {kWidth}},
                                       {"mlp.linear_fc1.weight", {8, kWidth}},
                                       {"mlp.linear_fc1.bias", {8}},
                                       {"mlp.linear_fc2.weight", {kWidth, 8}},
                                       {"mlp.linear_fc2.bias", {kWidth}}};
const std::vector<Parameter> kRest = {
    {"embedding.word_embeddings.weight", {kRows, kWidth}},
    {"embedding.position_embeddings.weight", {kPositions, kWidth}},
    {"decoder.final_layernorm.weight", {kWidth}},
    {"decoder.final_layernorm.bias", {kWidth}}};

std::vector<Parameter> whole_model() {
  std::vector<Parameter> all = kRest;
  for (const Parameter& one : kLayer) all.push_back({"decoder.layers.0." + one.name, one.shape});
  return all;
}

std::string floats(uint64_t count) {
  std::string out;
  for (uint64_t i = 0; i < count; ++i)
    out += foreign::little(std::bit_cast<uint32_t>(0.25F * static_cast<float>(i % 7)), 4);
  return out;
}

/// The same numbers in bf16.
std::string upper_halves(const std::string& floats) {
  std::string out;
  for (size_t i = 0; i < floats.size(); i += 4) out += floats.substr(i + 2, 2);
  return out;
}

std::string sizes(const std::vector<uint64_t>& shape) {
  std::string items;
  for (const uint64_t n : shape) items += number(n);
  return tuple(items);
}

std::string object(const std::string& state) {
  return call(global("argparse", "Namespace"), "") + state + "b";
}

std::string arguments() {
  std::string pairs;
  for (const auto& [name, value] :
       {std::pair("num_layers", 1), std::pair("hidden_size", 4), std::pair("ffn_hidden_size", 8),
        std::pair("num_attention_heads", 2), std::pair("kv_channels", 2),
        std::pair("max_position_embeddings", 4), std::pair("tensor_model_parallel_size", 1)})
    pairs += text(name) + number(static_cast<uint64_t>(value));
  return object(dict(pairs));
}

/// A torch.save file under construction: each tensor has a storage of its own.
class Saved {
 public:
  std::string tensor(const std::vector<uint64_t>& shape, bool half = false) {
    uint64_t elements = 1;
    std::vector<uint64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = elements;
      elements *= shape[i];
    }
    const std::string key = std::to_string(storages_.size());
    storages_.emplace_back(key, half ? upper_halves(floats(elements)) : floats(elements));
    const std::string kind = half ? "BFloat16Storage" : "FloatStorage";
    const std::string storage = tuple(text("storage") + global("torch", kind) + text(key) +
                                      text("cpu") + number(elements)) +
                                "Q";
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                storage + number(0) + sizes(shape) + sizes(strides) + "\x89" +
                    call(global("collections", "OrderedDict"), ""));
  }
  /// In bf16.
  std::string half(const std::vector<uint64_t>& shape) { return tensor(shape, true); }
  std::string file(const std::string& root) const {
    return foreign::torch_file(foreign::pickle(root), storages_);
  }

 private:
  std::vector<std::pair<std::string, std::string>> storages_;
};

Files megatron() {
  Saved saved;
  std::string pairs;
  for (const Parameter& one : whole_model()) pairs += text(one.name) + saved.tensor(one.shape);
  const std::string root =
      dict(text("args") + arguments() + text("checkpoint_version") + number(3) + text("iteration") +
           number(7) + text("model") + dict(pairs));
  return {{"latest_checkpointed_iteration.txt", "7\n"},
          {"iter_0000007/mp_rank_00/model_optim_rng.pt", saved.file(root)}};
}

Files layer_files() {
  const auto file = [](const std::vector<Parameter>& parameters, const std::string& cut) {
    Saved saved;
    std::string pairs;
    for (const Parameter& one : parameters)
      pairs += text(one.name.substr(cut.size())) + saved.tensor(one.shape);
    return saved.file(dict(pairs));
  };
  std::vector<Parameter> layer = kLayer;
  for (Parameter& one : layer) {
    for (const auto& [core, old] :
         {std::pair("self_attention.linear_qkv", "attention.query_key_value"),
          std::pair("self_attention.linear_proj", "attention.dense"),
          std::pair("pre_mlp_layernorm", "post_attention_layernorm"),
          std::pair("mlp.linear_fc1", "mlp.dense_h_to_4h"),
          std::pair("mlp.linear_fc2", "mlp.dense_4h_to_h")})
      if (one.name.starts_with(core)) one.name.replace(0, std::string(core).size(), old);
  }
  const std::string states =
      Saved().file(dict(text("args") + arguments() + text("iteration") + number(7)));
  return {
      {"latest", "global_step7"},
      {"global_step7/layer_01-model_00-model_states.pt", file({kRest[0], kRest[1]}, "embedding.")},
      {"global_step7/layer_03-model_00-model_states.pt", file(layer, "")},
      {"global_step7/layer_05-model_00-model_states.pt",
       file({kRest[2], kRest[3]}, "decoder.final_layernorm.")},
      {"global_step7/mp_rank_00_model_states.pt", states}};
}

/// Parts of GPT-NeoX's model by the numbers of their modules, under its names. With a gate the two
/// heads share keys and values.
std::vector<std::pair<int, std::vector<Parameter>>> neox_modules(bool gated) {
  std::vector<Parameter> layer = kLayer;
  if (gated) {
    std::erase_if(layer, [](const Parameter& one) { return one.name.starts_with("mlp."); });
    for (Parameter& one : layer)
      if (one.name.starts_with("self_attention.linear_qkv")) one.shape[0] = 2 * kWidth;
    layer.insert(layer.end(), {{"mlp.w1.weight", {8, kWidth}},
                               {"mlp.w2.weight", {kWidth, 8}},
                               {"mlp.w3.weight", {8, kWidth}}});
  }
  for (Parameter& one : layer) {
    for (const auto& [core, own] :
         {std::pair("self_attention.linear_qkv", "attention.query_key_value"),
          std::pair("self_attention.linear_proj", "attention.dense"),
          std::pair("pre_mlp_layernorm", "post_attention_layernorm"),
          std::pair("mlp.linear_fc1", "mlp.dense_h_to_4h"),
          std::pair("mlp.linear_fc2", "mlp.dense_4h_to_h")})
      if (one.name.starts_with(core)) one.name.replace(0, std::string(core).size(), own);
  }
  return {{0, {{"word_embeddings.weight", {kRows, kWidth}}}},
          {2, layer},
          {4, {{"norm.weight", {kWidth}}, {"norm.bias", {kWidth}}}},
          {5, {{"final_linear.weight", {kRows, kWidth}}}}};
}

constexpr const char* kNeoxConfig =
    "{\"num-layers\": 1, \"hidden-size\": 4, \"num-attention-heads\": 2, \"seq-length\": 4,\n"
    "\"max-position-embeddings\": 4, \"pos-emb\": \"rotary\", \"rotary-pct\": 1.0,\n"
    "\"no-weight-tying\": true, \"gpt-j-residual\": True, \"model-parallel-size\": 1}\n";

constexpr const char* kGatedConfig =
    "{\"gpt-j-residual\": false, \"num_kv_heads\": 1, \"mlp_type\": \"llama\",\n"
    "\"activation\": \"silu\", \"intermediate_size\": 8}\n";

Files neox(bool pipeline, bool gated) {
  std::string config = kNeoxConfig;
  const std::string parallel = ", \"gpt-j-residual\": True";
  if (gated) config.erase(config.find(parallel), parallel.size());
  Files files = {{"latest", "global_step7"}, {"global_step7/configs/model.yml", config}};
  if (gated) files.emplace_back("global_step7/configs/gated.yml", kGatedConfig);
  Saved all;
  std::string modules;
  for (const auto& [number, parameters] : neox_modules(gated)) {
    Saved one;
    std::string pairs;
    for (const Parameter& parameter : parameters) {
      pairs += text(parameter.name) + one.tensor(parameter.shape);
      modules += text("sequential." + std::to_string(number) + "." + parameter.name) +
                 all.tensor(parameter.shape);
    }
    if (pipeline) {
      files.emplace_back(
          "global_step7/layer_0" + std::to_string(number) + "-model_00-model_states.pt",
          one.file(dict(pairs)));
    }
  }
  const std::string rest =
      text("args") + dict(text("num_layers") + number(1)) + text("iteration") + number(7);
  files.emplace_back(
      "global_step7/mp_rank_00_model_states.pt",
      pipeline ? Saved().file(dict(rest)) : all.file(dict(rest + text("module") + dict(modules))));
  return files;
}

Files torch_dist() {
  std::string tensors, places, bytes;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    Saved saved;
    const std::string chunk = saved.file(saved.tensor(shape));
    const std::string zeros = sizes(std::vector<uint64_t>(shape.size()));
    const std::string box = object(dict(text("offsets") + zeros + text("sizes") + sizes(shape)));
    tensors +=
        text(name) + object(dict(text("properties") + object(tuple(global("torch", "float32"))) +
                                 text("size") + sizes(shape) + text("chunks") + list(box)));
    places += object(dict(text("fqn") + text(name) + text("offset") + zeros)) +
              object(dict(text("relative_path") + text("__0_0.distcp") + text("offset") +
                          number(bytes.size()) + text("length") + number(chunk.size())));
    bytes += chunk;
  };
  for (const Parameter& one : kRest) add(one.name, one.shape);
  for (const Parameter& one : kLayer) {
    std::vector<uint64_t> stacked = {1};
    stacked.insert(stacked.end(), one.shape.begin(), one.shape.end());
    add("decoder.layers." + one.name, stacked);
  }
  const std::string metadata = object(
      dict(text("state_dict_metadata") + dict(tensors) + text("storage_data") + dict(places)));
  const std::string common = dict(text("args") + arguments() + text("iteration") + number(7));
  return {{".metadata", foreign::pickle(metadata)},
          {"metadata.json", R"({"sharded_backend": "torch_dist"})"},
          {"common.pt", Saved().file(common)},
          {"__0_0.distcp", bytes}};
}

Files zero() {
  std::string shapes;
  uint64_t slice = 0;
  for (const Parameter& one : whole_model()) {
    shapes += text(one.name) + sizes(one.shape);
    slice += (one.elements() + 1) / 2;
  }
  const std::string states =
      dict(text("args") + arguments() + text("iteration") + number(7) + text("dp_world_size") +
           number(2) + text("param_shapes") + list(dict(shapes)));
  const auto optimizer = [&] {
    Saved saved;
    const std::string groups = list(saved.tensor({slice}));
    return saved.file(dict(text("optimizer_state_dict") + dict(text("fp32_flat_groups") + groups)));
  };
  return {{"zero_pp_rank_0_mp_rank_00_model_states.pt", Saved().file(states)},
          {"zero_pp_rank_0_mp_rank_00_optim_states.pt", optimizer()},
          {"zero_pp_rank_1_mp_rank_00_optim_states.pt", optimizer()}};
}

// Stage 1: a model of 16 bits, whose fp32 weights are in two halves of one flat tensor.
Files zero_halves() {
  Saved model;
  std::string shapes, pairs, flat;
  for (const Parameter& one : whole_model()) {
    shapes += text(one.name) + sizes(one.shape);
    pairs += text(one.name) + model.half(one.shape);
    flat += floats(one.elements());
  }
  const std::string states =
      dict(text("args") + arguments() + text("iteration") + number(7) + text("module") +
           dict(pairs) + text("param_shapes") + list(dict(shapes)));
  const auto optimizer = [&](const std::string& bytes) {
    const std::string groups = list(foreign::tensor("0", bytes.size() / 4));
    return foreign::torch_file(
        foreign::pickle(dict(text("optimizer_state_dict") +
                             dict(text("single_partition_of_fp32_groups") + groups +
                                  text("partition_count") + list(number(2))))),
        {{"0", bytes}});
  };
  const size_t middle = flat.size() / 8 * 4;
  return {{"mp_rank_00_model_states.pt", model.file(states)},
          {"zero_pp_rank_0_mp_rank_00_optim_states.pt", optimizer(flat.substr(0, middle))},
          {"zero_pp_rank_1_mp_rank_00_optim_states.pt", optimizer(flat.substr(middle))}};
}

Files hugging_face() {
  std::string header, data;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<uint64_t>>>{
           {"wte.weight", {kRows, kWidth}},
           {"wpe.weight", {kPositions, kWidth}},
           {"ln_f.weight", {kWidth}},
           {"ln_f.bias", {kWidth}},
           {"h.0.ln_1.weight", {kWidth}},
           {"h.0.ln_1.bias", {kWidth}},
           {"h.0.ln_2.weight", {kWidth}},
           {"h.0.ln_2.bias", {kWidth}},
           {"h.0.attn.c_attn.weight", {kWidth, 3 * kWidth}},
           {"h.0.attn.c_attn.bias", {3 * kWidth}},
           {"h.0.attn.c_proj.weight", {kWidth, kWidth}},
           {"h.0.attn.c_proj.bias", {kWidth}},
           {"h.0.mlp.c_fc.weight", {kWidth, 8}},
           {"h.0.mlp.c_fc.bias", {8}},
           {"h.0.mlp.c_proj.weight", {8, kWidth}},
           {"h.0.mlp.c_proj.bias", {kWidth}}}) {
    const uint64_t elements = Parameter{name, shape}.elements();
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" +
              std::to_string(shape[0]) + (shape.size() > 1 ? "," + std::to_string(shape[1]) : "") +
              R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + 4 * elements) + "]}";
    data += floats(elements);
  }
  header += "}";
  return {{"config.json", R"({"model_type":"gpt2","n_layer":1,"n_embd":4,"n_head":2,)"
                          R"("n_positions":4,"vocab_size":8,"n_inner":8})"},
          {"model.safetensors", foreign::little(header.size(), 8) + header + data}};
}

std::string npy() {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + foreign::little(118, 2) + header + "\n" +
         std::string(24, '\1');
}

std::string index() {
  return foreign::little(0x0402, 2) + std::string("MMIDIDX\0\0", 9) + foreign::little(1, 8) +
         foreign::little(4, 1) + foreign::little(2, 8) + foreign::little(3, 8) +
         foreign::little(5, 4) + foreign::little(4, 4) + foreign::little(0, 8) +
         foreign::little(20, 8) + foreign::little(0, 8) + foreign::little(1, 8) +
         foreign::little(2, 8);
}

std::string old_index() {
  std::string numbers;
  for (const uint64_t n : {1, 4, 4, 2, 2, 3, 0, 1, 2, 0, 5, 9, 5, 4, 0, 1, 2})
    numbers += foreign::little(n, 8);
  return foreign::little(0x0402, 2) + std::string("TNTIDX\0\0", 8) + numbers;
}

/// A gated MLP in the form since September 2024; its biases in a file of their own.
Files neox_gated_files() {
  return {{"model.yml", R"({"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "num_kv_heads": 2, "seq_length": 16, "max_position_embeddings": 16, "pos_emb": "rotary",
    "norm": "rmsnorm", "intermediate_size": 100, "mlp_multiple_of": 4, "activation": "swiglu",
    "attention_config": [[["flash"], 2]], "sliding_window_width": 8, "hidden_dropout": 0.1})"},
          {"biases.yml", "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"}};
}

/// A model and its training as one file of JSON and one of YAML's blocks.
Files neox_files() {
  const char* model = R"({"num-layers": 2, "hidden_size": 32, "num-attention-heads": 4,
    "seq-length": 16, "max-position-embeddings": 16, "pos-emb": "rotary", "rotary-pct": 0.25,
    "no-weight-tying": true, "gpt-j-residual": true, "attention-config": [[["flash"], 2]],
    "init_method": "small_init", "output_layer_init_method": "wang_init",
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.95], "eps": 1.0e-8}},
    "zero_optimization": {"stage": 1, "reduce_scatter": true}, "precision": "bfloat16",
    "checkpoint-activations": true, "extra-save-iters": [1, 2, 4]})";
  const char* run = R"(# where it runs
train_micro_batch_size_per_gpu: 2   # samples
gas: 1
train-iters: 8
lr-decay-style: cosine
warmup: 0.25
train_data_paths: ["a", b]
train_data_weights:
  - 1.
  - 2
tokenizer-type: &type "HFTokenizer"
hostfile: ~
checkpoint-factor: 4
comment: *type
)";
  return {{"model.yml", model}, {"run.yml", run}};
}

}  // namespace

std::vector<Seed> seeds() {
  Saved one;
  const std::string tensors =
      one.file(dict(text("a") + one.tensor({3, 2}) + text("n") + number(1)));
  return {
      {"pickle", "args", foreign::pickle(dict(text("args") + arguments()))},
      {"torch_file", "two", tensors},
      {"neox_yaml", "two", pack(neox_files())},
      {"neox_yaml", "gated", pack(neox_gated_files())},
      {"checkpoint", "megatron", pack(megatron())},
      {"checkpoint", "layers", pack(layer_files())},
      {"checkpoint", "torch_dist", pack(torch_dist())},
      {"checkpoint", "zero", pack(zero())},
      {"checkpoint", "zero_halves", pack(zero_halves())},
      {"neox_checkpoint", "pipeline", pack(neox(true, false))},
      {"neox_checkpoint", "sequential", pack(neox(false, false))},
      {"neox_checkpoint", "gated", pack(neox(true, true))},
      {"hf_folder", "gpt2", pack(hugging_face())},
      {"safetensors", "gpt2", hugging_face()[1].second},
      {"npy", "table", npy()},
      {"idx", "two", index()},
      {"idx", "old", old_index()},
      {"wiki_dump", "page",
       "<mediawiki><siteinfo><base>http://x/wiki/A</base><namespaces><namespace key=\"10\">"
       "Template</namespace></namespaces></siteinfo><page><title>A</title><ns>0</ns><id>1</id>"
       "<revision><id>2</id><text>'''A''' [[b|c]] &amp; {{d}}</text></revision></page>"
       "</mediawiki>\n"},
  };
}

}  // namespace fuzz
