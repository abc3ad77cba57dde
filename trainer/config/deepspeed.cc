// --deepspeed_config: what its JSON says, carried over to the flags of the same meaning. A key this
// trainer has no use for is named, one it cannot honour is refused, so that no line of the file is
// passed over in silence. Source: DeepSpeed's configuration page (key names and defaults).
// SPDX-License-Identifier: MIT
#include <cmath>

#include <nlohmann/json.hpp>

#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using nlohmann::json;

// One reading of one file.
class DeepspeedReader {
 public:
  DeepspeedReader(TrainConfig& config, Given& given, const std::string& path)
      : config_(config), given_(given), path_(path), rows_(cli::bind_rows(flag_table(), config)) {}

  std::vector<std::string> idle;  // keys without use here.

  void read(const json& root) {
    if (!root.is_object()) throw UsageError(path_ + ": expected a JSON object");
    for (const auto& [key, value] : root.items()) read_key(key, value);
    accumulation(root);
  }

 private:
  void read_key(const std::string& key, const json& value) {
    if (key == "train_batch_size")
      set(key, "global-batch-size", value);
    else if (key == "train_micro_batch_size_per_gpu")
      set(key, "micro-batch-size", value);
    else if (key == "gradient_clipping")
      set(key, "clip-grad", value);
    else if (key == "fp16")
      precision(key, value, "fp16");
    else if (key == "bf16" || key == "bfloat16")
      precision(key, value, "bf16");
    else if (key == "communication_data_type")
      communication(key, value);
    else if (key == "zero_optimization")
      zero(value);
    else if (key == "optimizer")
      optimizer(value);
    else if (key == "scheduler")
      scheduler(value);
    else if (changes_training(key) && enabled_somewhere(value))
      throw UsageError(concat(path_, ": ", key, " is enabled: every step here trains the whole ",
                              "model on whole samples, in one precision"));
    else if (key != "gradient_accumulation_steps")
      idle.push_back(key);
  }

  // Sections that make another training of it, once they are enabled.
  static bool changes_training(std::string_view key) {
    return key == "curriculum_learning" || key == "data_efficiency" || key == "amp" ||
           key == "progressive_layer_drop" || key == "compression_training" ||
           key == "quantize_training";
  }

  static bool enabled_somewhere(const json& value) {
    if (!value.is_object()) return false;
    for (const auto& [name, inner] : value.items())
      if ((name == "enabled" && inner == true) || enabled_somewhere(inner)) return true;
    return false;
  }

  // Sets `flag` from `value` unless the command line did; both must then agree. "auto" says
  // nothing.
  void set(const std::string& key, std::string_view flag, const json& value) {
    if (value.is_string() && value == "auto") return;
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

  void precision(const std::string& key, const json& value, std::string_view flag) {
    if (!value.value("enabled", false)) {
      if (given_.contains(flag))
        throw UsageError(concat(path_, ": ", key, " is not enabled, but --", flag, " is given"));
      return;
    }
    set(key, flag, true);
    if (flag != "fp16") return;
    // DeepSpeed scales by its own file alone: with 0 the scale moves, whatever --loss-scale says,
    // and it starts at 2^16 unless the file names another power.
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
    const std::pair<const char*, const char*> names[] = {{"loss_scale_window", "loss-scale-window"},
                                                         {"hysteresis", "hysteresis"},
                                                         {"min_loss_scale", "min-loss-scale"}};
    for (const auto& [name, row] : names) {
      if (value.contains(name)) set(concat("fp16.", name), row, value.at(name));
    }
  }

  void communication(const std::string& key, const json& value) {
    if (value == "bf16" || value == "bfp16" || value == "bfloat16")
      set(key, "grad-reduce-in-bf16", true);
    else if (value == "fp32" || value == "float32")
      set(key, "accumulate-allreduce-grads-in-fp32", true);
    else
      throw UsageError(
          concat(path_, ": ", key, " ", value.dump(), ": permitted are fp32 and bf16"));
  }

  void zero(const json& value) {
    if (value.contains("stage")) set("zero_optimization.stage", "zero-stage", value.at("stage"));
    if (value.contains("offload_optimizer") &&
        value.at("offload_optimizer").value("device", "none") != "none") {
      if (value.at("offload_optimizer").value("device", "none") != "cpu") {
        throw UsageError(concat(
            path_, ": zero_optimization.offload_optimizer.device: permitted is cpu or none"));
      }
      set("zero_optimization.offload_optimizer", "cpu-offload", true);
    }
    if (value.value("overlap_comm", false))
      set("zero_optimization.overlap_comm", "overlap-grad-reduce", true);
    if (value.contains("offload_param") &&
        value.at("offload_param").value("device", "none") != "none") {
      throw UsageError(
          concat(path_, ": zero_optimization.offload_param.device: permitted is none"));
    }
  }

  void optimizer(const json& value) {
    const std::string type = value.value("type", "AdamW");
    if (type != "Adam" && type != "AdamW") {
      throw UsageError(concat(path_, ": optimizer.type ", type, ": permitted are Adam and AdamW"));
    }
    const json parameters = value.value("params", json::object());
    const std::pair<const char*, const char*> names[] = {
        {"lr", "lr"}, {"eps", "adam-eps"}, {"weight_decay", "weight-decay"}};
    for (const auto& [name, row] : names) {
      if (parameters.contains(name))
        set(concat("optimizer.params.", name), row, parameters.at(name));
    }
    if (parameters.contains("betas") && parameters.at("betas").is_array() &&
        parameters.at("betas").size() == 2) {
      set("optimizer.params.betas", "adam-beta1", parameters.at("betas")[0]);
      set("optimizer.params.betas", "adam-beta2", parameters.at("betas")[1]);
    }
  }

  void scheduler(const json& value) {
    const std::string type = value.value("type", "");
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR") {
      throw UsageError(concat(path_, ": scheduler.type ", type,
                              ": permitted are WarmupLR, WarmupDecayLR and WarmupCosineLR"));
    }
    const json parameters = value.value("params", json::object());
    if (parameters.contains("warmup_type") && parameters.at("warmup_type") != "linear") {
      throw UsageError(concat(path_, ": scheduler.params.warmup_type: permitted is linear"));
    }
    set("scheduler.type", "lr-decay-style",
        type == "WarmupLR"        ? "constant"
        : type == "WarmupDecayLR" ? "linear"
                                  : "cosine");
    const std::pair<const char*, const char*> names[] = {{"warmup_min_lr", "lr-warmup-init"},
                                                         {"warmup_max_lr", "lr"},
                                                         {"warmup_num_steps", "lr-warmup-iters"},
                                                         {"total_num_steps", "lr-decay-iters"}};
    for (const auto& [name, row] : names) {
      if (parameters.contains(name))
        set(concat("scheduler.params.", name), row, parameters.at(name));
    }
  }

  // train_batch_size = micro-batch x gradient_accumulation_steps x data-parallel size, which only
  // derive_and_check() knows.
  void accumulation(const json& root) {
    if (!root.contains("gradient_accumulation_steps")) return;
    const json& value = root.at("gradient_accumulation_steps");
    if (!value.is_number_integer()) return;
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
    reader.read(json::parse(json_text));
  } catch (const json::exception& error) {
    throw UsageError(concat(path, ": ", error.what()));
  }
  return std::move(reader.idle);
}

}  // namespace trainer
