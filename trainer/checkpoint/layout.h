// A checkpoint's description: meta.json as structs, and the arithmetic of pieces, which converts
// shards of one layout to those of another. Opens no file (checkpoint.h does) and knows no model.
// Shapes and offsets are elements of whole tensors, row-major, of one or two dimensions.
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

/// A part of a whole tensor: of the box of `shape` at `offsets`, the `count` elements from `first`
/// on, in row-major order. A tensor-parallel shard is a box; a shard of the optimizer's flat memory
/// is a range.
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

/// Calls copy(to, from, n) for every run of elements that both pieces have: the n elements from
/// `to` of `wanted` are those from `from` of `held`. Returns the elements covered.
/// Errors: indexed::FormatError for more than two dimensions.
int64_t for_each_common_run(const Piece& wanted, const Piece& held,
                            const std::function<void(int64_t to, int64_t from, int64_t n)>& copy);

/// Bytes of a shard in one checksum.
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

/// The run's progress, besides the tensors.
struct RunState {
  int64_t iteration = 0;
  int64_t consumed_train_samples = 0;
  int64_t consumed_valid_samples = 0;
  int64_t scheduled_samples = 0;    ///< of steps that were applied: the schedule's position.
  int64_t evaluated_iteration = 0;  ///< of the last evaluation that was finished.
  int64_t seed = 0;                 ///< with the iteration, the whole state of dropout's generator.
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
  std::string writer;          ///< "gristmill 0.1.0".
  std::string run;             ///< rendezvous::Launch::run of the run that wrote it; may be empty.
  std::string last_samples;    ///< BatchLoader::digest() at its step; empty: not recorded.
  std::string next_samples;    ///< BatchLoader::places() at its step; empty: not recorded.
  std::string tokenizer_hash;  ///< tok::Tokenizer::identity() of the run's; empty: not known.
  RunState state;
  bool has_optimizer = true;
  bool has_generator = true;
  /// The flags in force, by name, as --config reads them.
  std::map<std::string, std::vector<std::string>> config;
  /// The model's fields, by ModelSpec's names, as text.
  std::map<std::string, std::string> model;
  /// The schedule's numbers (--override-opt_param-scheduler decides which ones apply), as text.
  std::map<std::string, std::string> schedule;
  /// Bytes of each file of the folder, except meta.json.
  std::map<std::string, int64_t> files;
  std::vector<TensorRecord> tensors;

  /// The record of a tensor, or nullptr.
  const TensorRecord* find(std::string_view group, std::string_view name) const noexcept;
};

/// meta.json's text. It begins with a checksum of itself.
std::string format_meta(const CheckpointMeta& meta);

/// Whether a text begins as format_meta's does; another program's meta.json does not.
bool begins_as_meta(std::string_view text) noexcept;

/// Whether a text is another program's meta.json: JSON that has none of a checkpoint's members. One
/// that is damaged, and may have been format_meta's, is not.
bool is_foreign_meta(std::string_view text) noexcept;

/// Parses it. Errors: indexed::FormatError "path: what: why" for text that is cut, damaged, or of
/// another format.
CheckpointMeta parse_meta(std::string_view text, const std::string& path);

}  // namespace trainer
