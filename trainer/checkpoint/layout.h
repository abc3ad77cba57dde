// What a checkpoint says about itself: meta.json as structs, and the arithmetic of pieces, by which
// shards of one layout are cut into those of another. No file is opened here (that is checkpoint.h)
// and no model is known. Shapes and offsets are elements of whole tensors, row-major, of one or two
// dimensions.
// Source: docs/format/checkpoint.5.md.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

/// A part of a whole tensor: the box of `shape` at `offsets`, and of the box's elements in
/// row-major order those from `first` on, `count` of them. A tensor-parallel shard is a box; a
/// shard of the optimizer's flat memory is a range.
struct Piece {
  std::vector<int64_t> offsets;
  std::vector<int64_t> shape;
  int64_t first = 0;
  int64_t count = 0;

  /// All of a tensor, or all of a box.
  static Piece whole(std::vector<int64_t> shape);
  static Piece box(std::vector<int64_t> offsets, std::vector<int64_t> shape);

  bool operator==(const Piece&) const = default;
};

/// Calls copy(to, from, n) for every run of elements that both pieces hold: element `to` of
/// `wanted` and its n - 1 followers are element `from` of `held` and its followers. Returns the
/// elements covered.
/// Errors: indexed::FormatError for more than two dimensions.
int64_t for_each_common_run(const Piece& wanted, const Piece& held,
                            const std::function<void(int64_t to, int64_t from, int64_t n)>& copy);

/// Bytes over which one checksum of a shard runs.
inline constexpr int64_t kChecksumBlock_bytes = 16 << 20;

/// One stored piece: tensor `key` of file `file`.
struct ShardRecord {
  std::string file;
  std::string key;
  Piece piece;
  std::vector<uint32_t> crc32c;  ///< of each block of kChecksumBlock_bytes.
};

/// One tensor. `group` is "model" (in the dtype of training), "main" (fp32, where that is another),
/// or the name of an optimizer's state ("exp_avg"); `name` is the parameter's, the same in all
/// groups. Group "fp8" has the model's scales instead, "scale" and "history".
struct TensorRecord {
  std::string group;
  std::string name;
  std::string dtype;  ///< safetensors' spelling: F32, BF16, F16.
  std::vector<int64_t> shape;
  std::vector<ShardRecord> shards;
};

/// Where the run stands, besides the tensors.
struct RunState {
  int64_t iteration = 0;
  int64_t consumed_train_samples = 0;
  int64_t consumed_valid_samples = 0;
  int64_t scheduled_samples = 0;    ///< of steps that were applied: where the schedule stands.
  int64_t evaluated_iteration = 0;  ///< of the last evaluation that was finished.
  int64_t seed = 0;                 ///< with the iteration the whole state of dropout's generator.
  // Loss scaler and optimizer.
  double loss_scale = 1;
  int64_t growth_tracker = 0;
  int64_t hysteresis_tracker = 0;
  int64_t adam_steps = 0;
  int64_t skipped_steps = 0;
  // The logging interval that is under way.
  double interval_loss_sum = 0;
  int64_t interval_steps = 0, interval_applied = 0, interval_skipped = 0, interval_nan = 0;

  bool operator==(const RunState&) const = default;
};

/// meta.json.
struct CheckpointMeta {
  static constexpr int64_t kFormat = 1;
  std::string writer;  ///< "gristmill 0.1.0".
  RunState state;
  bool has_optimizer = true;
  bool has_generator = true;
  /// The flags in force, by name, as --config would read them.
  std::map<std::string, std::vector<std::string>> config;
  /// The model's numbers, by ModelSpec's names; texts and numbers as text.
  std::map<std::string, std::string> model;
  /// The schedule's numbers (--override-opt_param-scheduler decides who wins), as text.
  std::map<std::string, std::string> schedule;
  /// Bytes of each file of the folder, meta.json excepted.
  std::map<std::string, int64_t> files;
  std::vector<TensorRecord> tensors;

  /// The record of a tensor, or nullptr.
  const TensorRecord* find(std::string_view group, std::string_view name) const noexcept;
};

/// meta.json's text. It opens with a checksum over itself.
std::string format_meta(const CheckpointMeta& meta);

/// The other way. Errors: indexed::FormatError "path: what: why" for text that is cut, damaged, or
/// of another format.
CheckpointMeta parse_meta(std::string_view text, const std::string& path);

}  // namespace trainer
