// --deepspeed_config: transfers the values of its JSON to the flags of the same meaning. A key that
// has no effect here is named, one that cannot be honoured is refused, so that no line of the file
// is silently ignored. A key counts here where it counts in Megatron-DeepSpeed's pretrain_gpt.py.
// That script passes its own optimizer and scheduler to deepspeed.initialize, so the file's
// sections for those two change nothing, there or here. Before release 0.15 DeepSpeed followed the
// file's scheduler all the same; the name says so where there is one.
// Source: DeepSpeed's configuration page (key names and defaults); its runtime/engine.py,
// _configure_optimizer and _configure_lr_scheduler; Megatron-DeepSpeed's megatron/training.py.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/json_once.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using nlohmann::json;

// Keys that change nothing here, in sections with other keys that count. Keys in neither list would
// change training unless they are false, and are refused.
const std::set<std::string_view> kIdleOfFp16 = {"auto_cast", "enabled"};
const std::set<std::string_view> kIdleOfBf16 = {"check_grad_overflow", "enabled",
                                                "immediate_grad_update"};
const std::set<std::string_view> kIdleOfZero = {"allgather_bucket_size",
                                                "allgather_partitions",
                                                "allgather_sequential",
                                                "compute_grad_norm",
                                                "contiguous_gradients",
                                                "cpu_offload_use_pin_memory",
                                                "elastic_checkpoint",
                                                "enable_sanity_checks",
                                                "gather_16bit_weights_on_model_save",
                                                "ignore_missing_optim_state",
                                                "ignore_unused_parameters",
                                                "leaf_module",
                                                "legacy_stage1",
                                                "load_from_fp32_weights",
                                                "log_trace_cache_warnings",
                                                "max_live_parameters",
                                                "max_reuse_distance",
                                                "memory_efficient_linear",
                                                "mics_hierarchical_params_gather",
                                                "mics_shard_size",
                                                "model_persistence_threshold",
                                                "module_granularity_threshold",
                                                "override_module_apply",
                                                "param_persistence_threshold",
                                                "parameter_alignment",
                                                "pipeline_loading_checkpoint",
                                                "prefetch_bucket_size",
                                                "reduce_bucket_size",
                                                "reduce_scatter",
                                                "round_robin_gradients",
                                                "save_muon_momentum_buffer_in_memory",
                                                "sub_group_size",
                                                "use_all_reduce_for_fetch_params",
                                                "use_multi_rank_bucket_allreduce",
                                                "zero_hpz_partition_size"};
const std::set<std::string_view> kIdleOfOffload = {
    "buffer_count", "buffer_size",  "cpuadam_cores_perc", "fast_init",     "max_in_cpu",
    "nvme_path",    "pin_memory",   "pipeline",           "pipeline_read", "pipeline_write",
    "ratio",        "super_offload"};

// The library's message without its number.
std::string reason(const json::exception& error) {
  const std::string text = error.what();
  const size_t number = text.find("] ");
  return number == std::string::npos ? text : text.substr(number + 2);
}

// "auto" and null mean a key's default.
bool said(const json& value) { return !value.is_null() && value != "auto"; }

bool is_on(const json& section, const char* key) {
  return section.contains(key) && said(section.at(key)) && section.at(key).get<bool>();
}

// The device of offload_optimizer or offload_param: cpu, nvme or none.
std::string device_of(const json& section, const char* key) {
  if (!section.contains(key) || !said(section.at(key))) return "none";
  const json& device = section.at(key).value("device", json("none"));
  return said(device) ? device.get<std::string>() : "none";
}

// Reads one file.
class DeepspeedReader {
 public:
  DeepspeedReader(TrainConfig& config, Given& given, const std::string& path)
      : config_(config), given_(given), path_(path), rows_(cli::bind_rows(flag_table(), config)) {}

  std::vector<std::string> idle;  // keys without effect here.

  void read(const json& root) {
    if (!root.is_object()) throw UsageError(path_ + ": expected a JSON object");
    for (const auto& [key, value] : root.items()) {
      try {
        if (!read_section(key, value)) read_key(key, value);
      } catch (const json::exception& error) {
        throw UsageError(concat(path_, ": ", key, ": ", reason(error)));
      }
    }
    accumulation(root);
  }

 private:
  // Whether `key` is a section whose keys count.
  bool read_section(const std::string& key, const json& value) {
    const std::map<std::string_view, std::function<void()>> sections = {
        {"fp16", [&] { precision(key, value, "fp16"); }},
        {"bf16", [&] { precision(key, value, "bf16"); }},
        {"bfloat16", [&] { precision(key, value, "bf16"); }},
        {"zero_optimization", [&] { zero(value); }},
        // pretrain_gpt.py passes its own optimizer and scheduler: see the top.
        {"optimizer", [&] { idle.push_back(key); }},
        {"scheduler", [&] { idle.push_back(key + scheduler_note(value)); }},
        {"data_types", [&] { data_types(value); }}};
    const auto section = sections.find(key);
    if (section == sections.end()) return false;
    if (!value.is_object())
      throw UsageError(concat(path_, ": ", key, " ", value.dump(), ": expected an object"));
    section->second();
    return true;
  }

  static std::string scheduler_note(const json& value) {
    if (value.value("type", json()).is_null()) return "";
    return " (DeepSpeed before 0.15 follows it instead of --lr-decay-style and --lr-warmup-iters)";
  }

  void read_key(const std::string& key, const json& value) {
    if (key == "train_batch_size")
      set(key, "global-batch-size", value);
    else if (key == "train_micro_batch_size_per_gpu")
      set(key, "micro-batch-size", value);
    else if (key == "gradient_clipping")
      set(key, "clip-grad", value);
    else if (key == "communication_data_type")
      communication(key, value);
    else if (key == "sparse_attention")
      throw UsageError(concat(path_, ": sparse_attention: attention is dense here"));
    else if (key == "gradient_allreduce_op" && said(value) && value != "mean")
      throw UsageError(concat(path_, ": ", key, " ", value.dump(), ": permitted is \"mean\""));
    else if (key == "tensor_parallel" && value.value("autotp_size", 0) > 1)
      throw UsageError(concat(path_, ": tensor_parallel.autotp_size ",
                              value.at("autotp_size").dump(),
                              ": --tensor-model-parallel-size divides the model here"));
    else if (changes_training(key) && enabled_somewhere(value))
      throw UsageError(concat(path_, ": ", key, " is enabled: every step here trains the whole ",
                              "model on whole samples, in one precision"));
    else if (key != "gradient_accumulation_steps")
      idle.push_back(key);
  }

  // Sections that would change training if they are enabled.
  static bool changes_training(std::string_view key) {
    return key == "curriculum_learning" || key == "data_efficiency" || key == "amp" ||
           key == "progressive_layer_drop" || key == "compression_training" ||
           key == "quantize_training" || key == "elasticity" || key == "torch_autocast" ||
           key == "hybrid_engine" || key == "expert_parallel";
  }

  // A section with enabled false is off, whatever it contains.
  static bool enabled_somewhere(const json& value) {
    if (!value.is_object() || value.value("enabled", json()) == false) return false;
    for (const auto& [name, inner] : value.items())
      if ((name == "enabled" && inner == true) || enabled_somewhere(inner)) return true;
    return false;
  }

  // Sets `flag` from `value` unless the command line did; then both must agree. "auto" is ignored.
  void set(const std::string& key, std::string_view flag, const json& value) {
    if (!said(value)) return;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const cli::Row* row = cli::find_row(rows_, flag);
    const cli::Values before = row->show();
    try {
      row->set({text});
    } catch (const UsageError& error) {
      throw UsageError(concat(path_, ": ", key, " ", text, ": ", error.what()));
    }
    if (given_.contains(flag) && row->show() != before) {
      throw UsageError(
          concat(path_, ": ", key, " is ", text, ", but --", flag, " is ", cli::join(before, " ")));
    }
    given_.insert(std::string(flag));
  }

  // The keys of a section that are not read: they are named, or refused if they are not false.
  void rest(const std::string& section, const json& value, std::set<std::string_view> read,
            const std::set<std::string_view>& idle_keys) {
    for (const auto& [key, inner] : value.items()) {
      if (read.contains(key)) continue;
      const std::string name = concat(section, ".", key);
      const bool off = inner.is_null() || inner == false || inner == 0;
      if (!off && said(inner) && !idle_keys.contains(key) && !key.starts_with("stage3_"))
        throw UsageError(concat(path_, ": ", name, " ", inner.dump(),
                                ": not known to this trainer: permitted is false"));
      if (key != "enabled") idle.push_back(name);
    }
  }

  void precision(const std::string& key, const json& value, std::string_view flag) {
    if (value.contains("enabled") && !said(value.at("enabled"))) return;
    if (!value.value("enabled", false)) {
      if (given_.contains(flag))
        throw UsageError(concat(path_, ": ", key, " is not enabled, but --", flag, " is given"));
      return;
    }
    set(key, flag, true);
    if (flag != "fp16") return rest(key, value, {}, kIdleOfBf16);
    rest(key, value,
         {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"},
         kIdleOfFp16);
    // DeepSpeed uses only its own file for scaling: with 0 the scale is dynamic, whatever
    // --loss-scale says, and starts at 2^16 unless the file gives another power.
    const double scale = value.value("loss_scale", 0.0);
    if (scale != 0) {
      set("fp16.loss_scale", "loss-scale", scale);
    } else if (config_.loss_scale) {
      idle.push_back(concat("--loss-scale ", *config_.loss_scale, " (fp16.loss_scale is 0)"));
      config_.loss_scale.reset();
      given_.erase("loss-scale");
    }
    if (value.contains("initial_scale_power") || !given_.contains("initial-loss-scale")) {
      set("fp16.initial_scale_power", "initial-loss-scale",
          std::exp2(value.value("initial_scale_power", 16.0)));
    }
    scaler(value, "loss_scale_window", "loss-scale-window", 1000);
    scaler(value, "hysteresis", "hysteresis", 2);
    scaler(value, "min_loss_scale", "min-loss-scale", 1);
  }

  // A number of the loss scaler: the file's, or DeepSpeed's default if the file has none. A flag
  // does not replace what the file leaves out; DeepSpeed ignores it too.
  void scaler(const json& fp16, const char* key, std::string_view flag, int64_t by_default) {
    const std::string name = concat("fp16.", key);
    if (fp16.contains(key)) return set(name, flag, fp16.at(key));
    const cli::Row* row = cli::find_row(rows_, flag);
    const cli::Values before = row->show();
    row->set({std::to_string(by_default)});
    if (given_.contains(flag) && row->show() != before)
      idle.push_back(concat("--", flag, " ", cli::join(before, " "), " (", name, " is ", by_default,
                            " by default)"));
  }

  void communication(const std::string& key, const json& value) {
    if (!said(value)) return;
    if (value == "bf16" || value == "bfp16" || value == "bfloat16")
      set(key, "grad-reduce-in-bf16", true);
    else if (value == "fp32" || value == "float32")
      set(key, "accumulate-allreduce-grads-in-fp32", true);
    else
      throw UsageError(
          concat(path_, ": ", key, " ", value.dump(), ": permitted are fp32 and bf16"));
  }

  void data_types(const json& value) {
    const json grads = value.value("grad_accum_dtype", json("auto"));
    if (grads == "fp32")
      set("data_types.grad_accum_dtype", "accumulate-allreduce-grads-in-fp32", true);
    else if (said(grads) && !grads.is_null())
      throw UsageError(concat(path_, ": data_types.grad_accum_dtype ", grads.dump(),
                              ": permitted is fp32; without it gradients of one micro-batch have "
                              "the model's precision"));
    rest("data_types", value, {"grad_accum_dtype"}, {});
  }

  void zero(const json& value) {
    rest("zero_optimization", value,
         {"stage", "offload_optimizer", "offload_param", "overlap_comm", "cpu_offload"},
         kIdleOfZero);
    if (is_on(value, "cpu_offload")) set("zero_optimization.cpu_offload", "cpu-offload", true);
    if (value.contains("stage")) set("zero_optimization.stage", "zero-stage", value.at("stage"));
    if (is_on(value, "overlap_comm"))
      set("zero_optimization.overlap_comm", "overlap-grad-reduce", true);
    offload_optimizer(value);
    if (device_of(value, "offload_param") == "none") return;
    // Parameters are divided, and so can be offloaded, only in stage 3.
    if (config_.zero_stage != 3) return idle.push_back("zero_optimization.offload_param");
    throw UsageError(concat(path_, ": zero_optimization.offload_param.device: permitted is none"));
  }

  void offload_optimizer(const json& value) {
    const std::string device = device_of(value, "offload_optimizer");
    if (device == "none") return;
    if (device != "cpu") {
      throw UsageError(
          concat(path_, ": zero_optimization.offload_optimizer.device: permitted is cpu or none"));
    }
    rest("zero_optimization.offload_optimizer", value.at("offload_optimizer"), {"device"},
         kIdleOfOffload);
    set("zero_optimization.offload_optimizer", "cpu-offload", true);
  }

  // train_batch_size = micro-batch x gradient_accumulation_steps x data-parallel size, which only
  // derive_and_check() knows.
  void accumulation(const json& root) {
    if (!root.contains("gradient_accumulation_steps")) return;
    const json& value = root.at("gradient_accumulation_steps");
    if (!said(value)) return;
    if (!value.is_number_integer()) {
      throw UsageError(concat(path_, ": gradient_accumulation_steps ", value.dump(),
                              ": expected a whole number"));
    }
    if (config_.micro_batch_size == 0) {
      throw UsageError(path_ + ": gradient_accumulation_steps needs a micro-batch size");
    }
    if (value.get<int64_t>() < 1)
      throw UsageError(
          concat(path_, ": gradient_accumulation_steps ", value.get<int64_t>(), ": at least 1"));
    config_.gradient_accumulation_steps = value.get<int64_t>();
  }

  TrainConfig& config_;
  Given& given_;
  const std::string& path_;
  std::vector<cli::Row> rows_;
};

}  // namespace

std::vector<std::string> apply_deepspeed(TrainConfig& config, Given& given,
                                         std::string_view json_text, const std::string& path) {
  DeepspeedReader reader(config, given, path);
  try {
    reader.read(cli::parse_once<json>(json_text));  // DeepSpeed refuses a key that stands twice.
  } catch (const cli::TwiceError& error) {
    throw UsageError(concat(path, ": ", error.what(), " stands there twice"));
  } catch (const json::exception& error) {
    throw UsageError(concat(path, ": ", reason(error)));
  }
  return std::move(reader.idle);
}

}  // namespace trainer
