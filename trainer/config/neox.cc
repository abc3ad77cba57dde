// --config FILE.yml...: transfers GPT-NeoX's configurations to the flags of the same meaning.
// Several files are read as one, as in GPT-NeoX: no key may occur twice, `-` and `_` are the same
// in a key. A key without effect here is named, one that cannot be honoured is refused, so that no
// line is silently ignored. The keys that GPT-NeoX passes to DeepSpeed are read as by
// --deepspeed_config. The command line overrides all of them.
// Source: GPT-NeoX, megatron/neox_arguments (names, defaults, from_ymls) and
// megatron/model/init_functions.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"
#include "trainer/config/neox_keys.h"
#include "trainer/config/neox_mlp.h"
#include "trainer/config/yaml_members.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using nlohmann::json;
using namespace neox;

std::string normal(std::string key) {
  std::ranges::replace(key, '-', '_');
  return key;
}

// What a flag takes: numbers as they print, lists as several values.
cli::Values values_of(const json& value) {
  const auto text = [](const json& one) {
    return one.is_string()         ? one.get<std::string>()
           : one.is_number_float() ? cli::show_real(one.get<double>())
                                   : one.dump();
  };
  if (!value.is_array()) return {text(value)};
  cli::Values out;
  for (const json& item : value) out.push_back(text(item));
  return out;
}

// Whether the value requests nothing.
bool is_off(const json& value) {
  // DeepSpeed's sections, and those made like them.
  if (value.is_object() && value.value("enabled", json()) == false) return true;
  return value.is_null() || value == false || value == 0 || value == "" || value == "None" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Whether the key counts only beside use_mup, which is refused. Learned positions are multiplied by
// mup_rp_embedding_mult without it too.
bool is_of_mup(std::string_view key, const json& value) {
  if (key == "mup_rp_embedding_mult") return value == 1;
  return key.starts_with("mup_") || key.starts_with("coord_check");
}

// Whether the value is GPT-NeoX's default, which asks for nothing.
bool is_default(std::string_view key, const json& value) {
  const auto found = kDefaults.find(key);
  return found != kDefaults.end() && value == std::string(found->second);
}

// GPT-NeoX compares the names of tokenizers without case.
json known_case(const json& type) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  for (const std::string_view known : kTokenizers)
    if (type.is_string() && lower(type) == lower(std::string(known))) return std::string(known);
  return type;
}

class NeoxReader {
 public:
  NeoxReader(TrainConfig& config, Given& given)
      : config_(config), given_(given), rows_(cli::bind_rows(flag_table(), config)) {}

  std::vector<std::string> idle, remarks;

  void load(const std::string& path, const std::string& text) {
    for (auto& [name, value] : yaml_members(path, text)) {
      const std::string key = normal(name);
      if (const auto found = places_.find(key); found != places_.end())
        throw UsageError(
            concat(path, ": ", key, " stands in ", found->second, " already: one must go"));
      places_[key] = path;
      keys_[key] = std::move(value);
    }
    names_ += concat(names_.empty() ? "" : ", ", path);
  }

  void apply() {
    rename("gas", "gradient_accumulation_steps");
    rename("clip_grad", "gradient_clipping");
    const bool own_bias = given_.contains("mlp-bias");
    model();
    if (config_.mlp_bias && !own_bias && config_.activation == "swiglu" &&
        !places_.contains("use_bias_in_mlp"))
      remarks.push_back(concat(names_,
                               ": without use_bias_in_mlp the MLP has biases, as in GPT-NeoX since "
                               "September 2024; Llama's has none: use_bias_in_mlp: false"));
    initial_values();
    optimizer();
    left_out();
    data();
    checkpointing();
    precision();
    deepspeed();
    const bool own_style = given_.contains("lr-decay-style");
    for (const auto& [key, value] : keys_) rest(key, value);
    if (!own_style) cosine();
    set("sample_order", "sample-order", "gpt-neox");
    // GPT-NeoX's linear falls to 0, with min_lr as a floor.
    if (!own_style && config_.lr_decay_style == "linear" && config_.min_lr > 0) {
      config_.lr_decay_style = "linear-to-zero";
      given_.insert("lr-decay-style");
    }
    if (!config_.lr_warmup_fraction && !given_.contains("lr-warmup-iters") &&
        !given_.contains("lr-warmup-samples"))
      set("warmup", "lr-warmup-fraction", 0.01);  // GPT-NeoX's default
    dropout();
  }

  void apply_model() {
    set("hidden_dropout", "hidden-dropout", take("hidden_dropout", 0));
    set("attention_dropout", "attention-dropout", take("attention_dropout", 0));
    model();
    for (const std::string_view key : kModel)
      if (const auto found = keys_.find(std::string(key)); found != keys_.end())
        rest(found->first, found->second);
    for (const std::string_view key : kOtherModels)
      if (const auto found = keys_.find(std::string(key));
          found != keys_.end() && !is_off(found->second) && !is_default(key, found->second))
        refuse(found->first, found->second, "not known to this trainer");
    if (const json experts = take("moe_num_experts", 1); experts != 1)
      refuse("moe_num_experts", experts, "a mixture of experts is not known to this trainer");
  }

 private:
  [[noreturn]] void fail(const std::string& key, std::string_view why) const {
    const auto place = places_.find(key);
    throw UsageError(concat(place == places_.end() ? names_ : place->second, ": ", key, why));
  }
  [[noreturn]] void refuse(const std::string& key, const json& value, std::string_view why) const {
    fail(key, concat(" ", value.dump(), ": ", why));
  }

  // Removes a key and returns its value: keys left at the end are unknown.
  json take(const std::string& key, json otherwise = nullptr) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) return otherwise;
    json value = std::move(found->second);
    keys_.erase(found);
    return value.is_null() ? otherwise : value;
  }

  // Another name of a key; both mean the same.
  void rename(const std::string& other, const std::string& key) {
    const auto found = keys_.find(other);
    if (found == keys_.end()) return;
    if (keys_.contains(key)) fail(other, concat(": ", key, " says it already"));
    places_[key] = places_[other];
    keys_[key] = std::move(found->second);
    keys_.erase(other);
  }

  void set(const std::string& key, std::string_view flag, const json& value) {
    if (given_.contains(flag)) return;
    const cli::Row* row = cli::find_row(rows_, flag);
    const cli::Values values = values_of(value);
    if (row->arity != cli::Arity::many && values.size() != 1) {
      refuse(key, value, "expected one value");
    }
    try {
      row->set(values);
    } catch (const UsageError& error) {
      refuse(key, value, error.what());
    }
    given_.insert(std::string(flag));
  }

  void model() {
    const json norm = take("norm", "layernorm");
    const bool rms = norm == "rmsnorm" || norm == "te_rmsnorm";
    if (!rms && norm != "layernorm" && norm != "te_layernorm")
      refuse("norm", norm, "permitted are layernorm and rmsnorm");
    set("norm", "normalization", rms ? "RMSNorm" : "LayerNorm");
    const json layer_eps = take("layernorm_epsilon", 1e-5),
               rms_eps = take("rms_norm_epsilon", 1e-8);
    set(rms ? "rms_norm_epsilon" : "layernorm_epsilon", "norm-epsilon", rms ? rms_eps : layer_eps);
    const bool fused = on("rmsnorm_fusion");
    // x / (rms + epsilon) before pull request 1345; since then, fused, as Transformer Engine's and
    // here: x / sqrt(rms^2 + epsilon).
    if (norm == "rmsnorm" && !fused && rms_eps.is_number() && rms_eps.get<double>() > 1e-8)
      remarks.push_back(concat(places_.contains("norm") ? places_.at("norm") : names_,
                               ": rms_norm_epsilon ", rms_eps.dump(),
                               " is added to the root of the mean square in GPT-NeoX before May "
                               "2025 without rmsnorm_fusion, here under the root: the outputs "
                               "differ from those"));
    const json positions = take("pos_emb", "learned");
    if (positions != "learned" && positions != "rotary" && positions != "none")
      refuse("pos_emb", positions, "permitted are learned, rotary and none");
    set("pos_emb", "position-embedding-type",
        positions == "learned"  ? json("learned_absolute")
        : positions == "rotary" ? json("rope")
                                : positions);
    if (on("no_weight_tying")) set("no_weight_tying", "untie-embeddings-and-output-weights", true);
    const bool parallel = on("gpt_j_residual");
    if (parallel) set("gpt_j_residual", "parallel-residual", true);
    if (on("gpt_j_tied")) fail("gpt_j_tied", ": attention and MLP have a norm each here");
    const bool mlp_bias = mlp();
    if (parallel && !mlp_bias)
      fail("gpt_j_residual",
           ": where the MLP has no biases GPT-NeoX leaves attention out, or stops");
    biases(mlp_bias);
    if (!on("use_bias_in_norms", true) && !rms)
      fail("use_bias_in_norms", " false: a layernorm has a bias here");
    const json kinds = take("attention_config");
    attention_kinds(kinds);
    sliding_window(kinds);
    if (const json groups = take("num_kv_heads"); !groups.is_null()) {
      set("num_kv_heads", "group-query-attention", true);
      set("num_kv_heads", "num-query-groups", groups);
    }
  }

  // Whether its linears have biases.
  bool mlp() {
    MlpKeys keys;
    if (const json type = take("mlp_type"); !type.is_null()) {
      if (!type.is_string()) refuse("mlp_type", type, "permitted are regular and llama");
      keys.type = type.get<std::string>();
      if (keys.type == "regular") idle.push_back("mlp_type");
    }
    const json name = take("activation", "gelu");
    if (!name.is_string()) refuse("activation", name, "expected a name");
    keys.activation = name.get<std::string>();
    keys.bias_gelu_fusion = on("bias_gelu_fusion");
    rename("feedforward_size", "intermediate_size");
    const json size = take("intermediate_size", 0), unit = take("mlp_multiple_of", 0),
               factor = take("expansion_factor", 0);
    if (!given_.contains("ffn-hidden-size")) {
      keys.hidden_size = hidden_size();
      keys.intermediate_size = whole("intermediate_size", size);
      keys.multiple_of = whole("mlp_multiple_of", unit);
      if (!factor.is_number() || !(factor >= 0 && factor <= kMostSize))
        refuse("expansion_factor", factor, "expected a number up to 2^30");
      keys.expansion_factor = factor.get<double>();
    }
    const Mlp made = mlp_of(keys);
    if (!made.why.empty()) fail(made.key, made.why);
    set("activation", "activation", made.activation);
    if (made.width > 0) set("intermediate_size", "ffn-hidden-size", made.width);
    const bool bias = on("use_bias_in_mlp", true);
    if (keys.type != "llama") return bias;
    if (places_.contains("use_bias_in_mlp")) idle.push_back("use_bias_in_mlp");
    return false;
  }

  int64_t whole(const std::string& key, const json& value) const {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= kMostSize) || number != std::floor(number))
      refuse(key, value, "expected a whole number up to 2^30");
    return static_cast<int64_t>(number);
  }

  // 0 if it is not there, or set() will refuse it.
  int64_t hidden_size() const {
    if (given_.contains("hidden-size")) return *config_.hidden_size;
    const auto found = keys_.find("hidden_size");
    if (found == keys_.end() || found->second.is_null()) return 0;
    if (!found->second.is_array()) return whole("hidden_size", found->second);
    return found->second.size() == 1 ? whole("hidden_size", found->second[0]) : 0;
  }

  void biases(bool mlp) {
    const bool attention = on("use_bias_in_attn_linear", true);
    if (attention && mlp) return;
    set("use_bias_in_mlp", "disable-bias-linear", true);
    if (attention) set("use_bias_in_attn_linear", "attention-bias", true);
    if (mlp) set("use_bias_in_mlp", "mlp-bias", true);
  }

  void attention_kinds(const json& value) {
    if (value.is_string()) {
      if (value != "global" && value != "flash")
        refuse("attention_config", value, "permitted are global and flash");
    }
    if (!value.is_array()) return;
    for (const json& part : value) {
      if (part.is_number()) continue;
      attention_kinds(part);
    }
  }

  static bool all_flash(const json& kinds) {
    if (!kinds.is_array()) return kinds == "flash" || kinds.is_number();
    return std::ranges::all_of(kinds, all_flash);
  }

  // As many keys before the query's own, which flash attention alone heeds there.
  void sliding_window(const json& kinds) {
    const json width = take("sliding_window_width");
    if (width.is_null() || given_.contains("sliding-window")) return;
    if (kinds.empty() || !all_flash(kinds))
      refuse("sliding_window_width", width,
             "GPT-NeoX heeds it in flash attention alone, which attention_config does not give to "
             "all layers");
    set("sliding_window_width", "sliding-window", whole("sliding_window_width", width) + 1);
  }

  bool on(const std::string& key, bool otherwise = false) {
    const json value = take(key, otherwise);
    if (!value.is_boolean()) refuse(key, value, "expected true or false");
    return value.get<bool>();
  }

  // small_init: Nguyen and Salazar 2019; wang_init: 2 / (layers sqrt(hidden size)).
  void initial_values() {
    const double std = take("init_method_std", 0.02).get<double>();
    const json inner = take("init_method", "normal"),
               outer = take("output_layer_init_method", "scaled_normal");
    set("init_method", "init-method-std", deviation("init_method", inner, std));
    if (outer == "scaled_normal" && inner == "normal") return;  // Megatron's own
    set("output_layer_init_method", "output-layer-init-method-std",
        deviation("output_layer_init_method", outer, std));
  }

  double deviation(const std::string& key, const json& method, double std) const {
    const auto size = [&](const char* name) {
      const auto found = keys_.find(name);
      if (found == keys_.end() || !found->second.is_number_integer())
        fail(key, concat(" ", method.dump(), " needs ", name));
      return found->second.get<double>();
    };
    if (method == "normal") return std;
    if (method == "scaled_normal") return std / std::sqrt(2 * size("num_layers"));
    if (method == "small_init") return std::sqrt(2 / (5 * size("hidden_size")));
    if (method == "wang_init") return 2 / (size("num_layers") * std::sqrt(size("hidden_size")));
    refuse(key, method, "permitted are normal, scaled_normal, small_init and wang_init");
  }

  void optimizer() {
    const json section = take("optimizer", json::object());
    for (const auto& [key, value] : section.items()) {
      if (key != "type" && key != "params") fail("optimizer", concat(".", key, ": not known here"));
    }
    const json type = section.value("type", json("Adam"));
    if (type != "Adam" && type != "adam" && type != "AdamW" && type != "cpu_adam")
      refuse("optimizer", type, "permitted is Adam");
    if (type == "cpu_adam") set("optimizer", "cpu-offload", true);
    const json params = section.value("params", json::object());
    for (const auto& [key, value] : params.items()) {
      if (key == "lr") {
        set("optimizer.params.lr", "lr", value);
      } else if (key == "betas" && value.is_array() && value.size() == 2) {
        set("optimizer.params.betas", "adam-beta1", value[0]);
        set("optimizer.params.betas", "adam-beta2", value[1]);
      } else if (key == "eps") {
        set("optimizer.params.eps", "adam-eps", value);
      } else if (key == "weight_decay") {
        set("optimizer.params.weight_decay", "weight-decay", value);
      } else if (key == "max_grad_norm") {
        max_grad_norm(value);
      } else if (!(key == "bias_correction" && value == true) &&
                 !(key == "adam_w_mode" && value == true)) {
        fail("optimizer", concat(".params.", key, " ", value.dump(), ": not known here"));
      }
    }
  }

  // DeepSpeed clips by it where GPT-NeoX's Adam takes it, which that of most releases does not.
  void max_grad_norm(const json& value) {
    if (given_.contains("clip-grad")) return;
    const auto clipping = keys_.find("gradient_clipping");
    if (clipping == keys_.end() || clipping->second != value)
      fail("optimizer",
           concat(".params.max_grad_norm ", value.dump(), ": gradient_clipping must say the same"));
  }

  void left_out() {
    std::vector<std::string> keys, now, before;
    for (const LeftOut& one : kLeftOut) {
      const auto found = keys_.find(std::string(one.key));
      if (given_.contains(one.flag) || (found != keys_.end() && !found->second.is_null())) continue;
      set(std::string(one.key), one.flag, std::string(one.now));
      keys.emplace_back(one.key);
      now.emplace_back(one.now);
      before.emplace_back(one.before);
    }
    if (keys.empty()) return;
    remarks.push_back(concat(names_, ": without ", cli::join(keys, ", "), ": ",
                             cli::join(now, ", "), ", as in GPT-NeoX since December 2023; before, ",
                             cli::join(before, ", ")));
  }

  // Step n has the learning rate of n - 1 steps.
  void cosine() {
    if (config_.lr_decay_style != "cosine" || config_.lr == config_.min_lr) return;
    const int64_t first = config_.lr_decay_iters.value_or(INT64_MAX - 2) + 2,
                  last = config_.train_iters.value_or(0);
    if (first > last) return;
    remarks.push_back(concat(names_, ": cosine: in steps ", first, " to ", last,
                             " the learning rate is min_lr here; GPT-NeoX's rises again after "
                             "lr_decay_iters since August 2023"));
  }

  // There it goes with the addition of a bias.
  void dropout() {
    const bool attention = config_.add_bias_linear || config_.attention_bias,
               mlp = config_.add_bias_linear || config_.mlp_bias;
    if (config_.hidden_dropout == 0 || (mlp && (attention || !config_.parallel_residual))) return;
    remarks.push_back(concat(names_, ": hidden_dropout ", cli::show_real(config_.hidden_dropout),
                             " is of attention and MLP here; GPT-NeoX drops nothing of ",
                             mlp ? "attention" : "an MLP", " without biases"));
  }

  // Paths of one kind replace those of the other, whether from the command line or the same file:
  // --split divides only one dataset.
  void data() {
    const bool own = given_.contains("train-data-path") || given_.contains("valid-data-path") ||
                     given_.contains("test-data-path");
    if (given_.contains("data-path"))
      for (const char* key : {"train_data_paths", "valid_data_paths", "test_data_paths",
                              "train_data_weights", "valid_data_weights", "test_data_weights"})
        keys_.erase(key);
    if (own) keys_.erase("data_path");
    if ((own || keys_.contains("train_data_paths")) && keys_.erase("split") > 0)
      idle.push_back("split");
    for (const char* split : {"train", "valid", "test"}) {
      const std::string paths = concat(split, "_data_paths"),
                        weights = concat(split, "_data_weights");
      const json named = take(paths), shares = take(weights);
      if (named.is_null()) {
        if (!shares.is_null()) fail(weights, concat(": there is no ", paths));
        continue;
      }
      if (!named.is_array() || named.empty()) refuse(paths, named, "expected a list of paths");
      if (!shares.is_null() && (!shares.is_array() || shares.size() != named.size()))
        refuse(weights, shares,
               concat("expected ", cli::counted(static_cast<int64_t>(named.size()), "number"),
                      ", one for each path"));
      json words = json::array();
      for (size_t i = 0; i < named.size(); ++i) {
        if (named.size() > 1) words.push_back(shares.is_null() ? json(1) : shares[i]);
        words.push_back(named[i]);
      }
      set(paths, concat(split, "-data-path"), words);
    }
    if (on("weight_by_num_documents"))
      fail("weight_by_num_documents", ": give train_data_weights and its like instead");
  }

  void checkpointing() {
    if (const json scale = take("checkpoint_scale", "linear"); scale != "linear")
      refuse("checkpoint_scale", scale, "permitted is linear; name steps by extra_save_iters");
    const json layers = take("checkpoint_num_layers", 1);
    if (!on("checkpoint_activations") || given_.contains("recompute-granularity")) return;
    set("checkpoint_activations", "recompute-granularity", "full");
    set("checkpoint_activations", "recompute-method", "uniform");
    set("checkpoint_num_layers", "recompute-num-layers", layers);
  }

  // A section for DeepSpeed has the same meaning; either is enough.
  void precision() {
    if (on("fp32_allreduce")) set("fp32_allreduce", "accumulate-allreduce-grads-in-fp32", true);
    const json stages = take("pipe_parallel_size", 0);
    set("pipe_parallel_size", "pipeline-model-parallel-size", stages == 0 ? json(1) : stages);
    const json name = take("precision");
    if (name.is_null()) return;
    const std::string section = name == "fp16"       ? "fp16"
                                : name == "bfloat16" ? "bf16"
                                : name == "fp32"     ? ""
                                                     : "?";
    if (section == "?") refuse("precision", name, "permitted are fp16, bfloat16 and fp32");
    for (const char* other : {"fp16", "bf16"}) {
      const auto found = keys_.find(other);
      if (other != section && found != keys_.end() && found->second.value("enabled", false))
        refuse("precision", name, concat(other, " is enabled"));
    }
    if (!section.empty()) keys_[section]["enabled"] = true;
  }

  // Early releases train in bf16 with fp16.type bfloat16; later ones read over it.
  void fp16_type(const json& section) const {
    if (!section.is_object()) return;
    const json type = section.value("type", json("fp16"));
    if (type == "fp16") return;
    const auto bf16 = keys_.find("bf16");
    if (type == "bfloat16" && !section.value("enabled", false) && bf16 != keys_.end() &&
        bf16->second.is_object() && bf16->second.value("enabled", false))
      return;
    fail("fp16", concat(".type ", type.dump(),
                        ": releases of GPT-NeoX disagree on it: instead of this section, give "
                        "\"bf16\": {\"enabled\": true}"));
  }

  void deepspeed() {
    const bool chosen = given_.contains("fp16") || given_.contains("bf16");
    if (const auto fp16 = keys_.find("fp16"); fp16 != keys_.end() && !chosen)
      fp16_type(fp16->second);
    json root = json::object();
    for (const auto& [key, flag] : kDeepspeed) {
      const auto found = keys_.find(std::string(key));
      if (found == keys_.end()) continue;
      json value = std::move(found->second);
      keys_.erase(found);
      if (!flag.empty() && given_.contains(flag)) continue;  // the command line overrides
      if (key == "fp16" || key == "bf16") {
        for (const char* own : {"fp16", "bf16", "type"})
          if (value.is_object()) value.erase(own);  // of another kind: apply_deepspeed() says so.
        if (chosen) continue;
      }
      root[std::string(key)] = std::move(value);
    }
    for (const std::string& key : apply_deepspeed(config_, given_, root.dump(), names_))
      idle.push_back(key);
  }

  void rest(const std::string& key, const json& value) {
    const auto flag = kFlags.find(key);
    if (kIdle.contains(key) || is_default(key, value) || is_of_mup(key, value)) {
      idle.push_back(key);
    } else if (flag != kFlags.end() || kSame.contains(key)) {
      if (value.is_null() || (key == "extra_save_iters" && value.empty())) return;
      std::string name(flag != kFlags.end() ? flag->second : key);
      if (flag == kFlags.end()) std::ranges::replace(name, '_', '-');
      if (name == "lr-decay-style" && value == "exponential" && !given_.contains(name))
        refuse(key, value, "permitted are constant, linear and cosine: no style here is like it");
      set(key, name, name == "tokenizer-type" ? known_case(value) : value);
    } else if (is_off(value)) {
      idle.push_back(key);
    } else if (const auto gone = kGone.find(key); gone != kGone.end()) {
      refuse(key, value, concat("GPT-NeoX has this key no more: give ", gone->second));
    } else {
      refuse(key, value, "not known to this trainer");
    }
  }

  TrainConfig& config_;
  Given& given_;
  std::vector<cli::Row> rows_;
  std::map<std::string, json> keys_;
  std::map<std::string, std::string> places_;  // the file of each key
  std::string names_;                          // of all files
};

}  // namespace

namespace {
/// Reads the files, and lets `apply` take what it wants of them.
template <class Apply>
void read_files(NeoxReader& reader, const std::vector<NamedText>& files, const Apply& apply) {
  try {
    for (const NamedText& file : files) reader.load(file.path, file.text);
    apply();
  } catch (const json::exception& error) {
    throw UsageError(concat(files.front().path,
                            ": a key has a value of another kind than it should: ", error.what()));
  }
}

}  // namespace

std::vector<std::string> apply_neox(TrainConfig& config, Given& given,
                                    const std::vector<NamedText>& files,
                                    std::vector<std::string>& remarks) {
  NeoxReader reader(config, given);
  read_files(reader, files, [&] { reader.apply(); });
  remarks = std::move(reader.remarks);
  std::ranges::sort(reader.idle);
  return std::move(reader.idle);
}

std::vector<std::string> apply_neox_model(TrainConfig& config,
                                          const std::vector<NamedText>& files) {
  Given given;
  NeoxReader reader(config, given);
  read_files(reader, files, [&] { reader.apply_model(); });
  return std::move(reader.remarks);
}

}  // namespace trainer
