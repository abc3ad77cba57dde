// SPDX-License-Identifier: MIT
// The canonical form between readers and writers: a model's sizes, and its whole tensors under
// Megatron-core's names, with separate q, k and v in head order, separate gate and up, matrices as
// (out, in), and the vocabulary without padding. Readers: megatron_source.h, trainer_source.h,
// hf_folder.h; writers: hf_folder.h, megatron_target.h. With it n formats need only n mappings. May
// include trainer/spec/spec.h for the sizes.
// Shapes: N query heads, G key/value groups, D head size, H hidden.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convert/tensor_source.h"
#include "trainer/spec/spec.h"

namespace convert {

/// What a source says about the model's tokenizer; empty where it says nothing.
struct TokenizerHints {
  std::string type;        ///< Megatron's --tokenizer-type: "GPT2BPETokenizer"
  std::string vocab_file;  ///< paths as in the source; they may belong to another machine
  std::string merge_file;
  std::string name_or_path;
  int64_t end_of_document = -1;  ///< the token that ended its training documents; -1: not known
  std::string hash = {};         ///< identity of the tokenizer of its training; empty: not known
};

/// A model to be converted. Copies share the files behind the tensors.
struct CanonicalModel {
  trainer::ModelSpec spec;  ///< padded_vocab_size = rows of the embedding here
  std::string dtype;        ///< dtype of most weights: F32, F16 or BF16
  std::map<std::string, TensorSource> tensors;
  TokenizerHints tokenizer;
  int64_t iteration = 0;
  std::vector<std::string> notes;  ///< messages for the user, one sentence each
  std::string training_note = {};  ///< one more, for who converts it to train on; may be empty

  /// The tensor called `name`. Errors: indexed::FormatError when there is none.
  const TensorSource& at(const std::string& name) const;
};

/// The dtype that most of its numbers have.
std::string dtype_of_most(const CanonicalModel& model);

/// A tensor that a model of these sizes has.
struct CanonicalEntry {
  std::string name;
  std::vector<int64_t> shape;
};

/// Keeps the first `vocab_size` rows of the embedding and of an untied head.
/// Errors: indexed::FormatError when they have fewer.
void trim_vocabulary(CanonicalModel& model, int64_t vocab_size);

/// The rows that both have in a checkpoint for further training. Rows of padding take part in the
/// softmax, so they are kept as they were trained: with `unit` 0 just those that there are; else as
/// many as pad the vocabulary to a multiple of `unit`. Rows that are lacking repeat the last one,
/// as in Megatron's own converters. spec.vocab_size does not change. Returns the unit of the new
/// size.
int64_t pad_vocabulary(CanonicalModel& model, int64_t unit);

/// Every tensor of a model, in the order of forward.
std::vector<CanonicalEntry> canonical_entries(const trainer::ModelSpec& spec);

/// Checks that the sizes are from 0 to 2^30, so that their products fit. Errors:
/// indexed::FormatError naming the one that is not.
void check_numbers(const trainer::ModelSpec& spec);

/// Checks the tensors against the sizes: each exists with its shape, and there are no others.
/// Errors: indexed::FormatError naming the first wrong one.
void check_complete(const CanonicalModel& model);

/// "decoder.layers.3." + `suffix`.
std::string layer_name(int64_t layer, std::string_view suffix);

/// The order of rows of a fused qkv weight or bias, for checkpoint_version 0, 1, and 2 and later.
/// stacked: all q, all k, all v. split_last: (N, D, 3). grouped: (G, N/G + 2, D), which without
/// grouped-query attention is (N, 3, D). GPT-NeoX's two, of grouped heads alone: all q, all k, all
/// v; and (N, D + 2 D G/N), where each query head is followed by its N'th of k's rows and of v's.
enum class QkvOrder : uint8_t { stacked, split_last, grouped, neox_stacked, neox_by_head };

/// The heads of a fused tensor, which may be a tensor-parallel rank's share.
struct QkvShape {
  int64_t heads = 0;
  int64_t groups = 0;
  int64_t head_size = 0;
  int64_t rows() const noexcept { return (heads + 2 * groups) * head_size; }
};

/// q, k and v of a fused tensor, in head order.
/// Errors: indexed::FormatError when its rows are not shape.rows(), or the order cannot represent
/// grouped heads.
std::vector<TensorSource> split_qkv(const TensorSource& fused, const QkvShape& shape,
                                    QkvOrder order);

/// The reverse, into the order of version 2 and later.
TensorSource join_qkv(const TensorSource& q, const TensorSource& k, const TensorSource& v,
                      const QkvShape& shape);

}  // namespace convert
