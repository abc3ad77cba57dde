// Topology: a rank's place among tensor, data and pipeline parallel groups. Pure arithmetic.
// Not here: communicators (comm/), who owns them (session/job.h). May include: spec/params.h.
// Order of ranks is Megatron's default "tp-cp-ep-dp-pp" without context and expert parallelism:
// tensor ranks are neighbours, then data, then pipeline. Names that end in _size are sizes of
// groups.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "trainer/spec/params.h"

namespace trainer {

/// rank = tensor_rank + tensor_size * (data_rank + data_size * pipeline_rank).
struct Topology {
  int tensor_size = 1, data_size = 1, pipeline_size = 1;
  int tensor_rank = 0, data_rank = 0, pipeline_rank = 0;

  int world_size() const noexcept { return tensor_size * data_size * pipeline_size; }
  int rank() const noexcept {
    return tensor_rank + tensor_size * (data_rank + data_size * pipeline_rank);
  }
  bool first_stage() const noexcept { return pipeline_rank == 0; }
  bool last_stage() const noexcept { return pipeline_rank + 1 == pipeline_size; }

  /// World ranks of this rank's groups, in group order.
  std::vector<int> tensor_group() const;
  std::vector<int> data_group() const;
  std::vector<int> pipeline_group() const;
};

/// The place of `rank` of `world_size`; the data-parallel size follows from the others.
/// Errors: ShapeError when tensor_size * pipeline_size does not divide world_size, or rank is out
/// of range.
Topology make_topology(int rank, int world_size, int tensor_size, int pipeline_size);

/// The layers in chunk `chunk` of this rank. `layers_per_stage` has one number for each stage, or,
/// with several chunks per rank, one for chunk 0 of each stage, then for chunk 1 of each, and so
/// on; their sum is num_layers. Errors: ShapeError when the numbers do not add up.
Place place_on(const Topology& topology, const ModelSpec& spec,
               const std::vector<int64_t>& layers_per_stage, int chunk = 0);
/// The chunks of this rank, in order.
std::vector<Place> places_on(const Topology& topology, const ModelSpec& spec,
                             const std::vector<int64_t>& layers_per_stage);

/// num_layers divided evenly; the first stages have one more if there is a remainder.
std::vector<int64_t> even_layers(int64_t num_layers, int stages);

/// num_layers divided so that the slowest stage is as fast as possible when the last one also
/// computes the output layer, in flops of sequences of seq_length; at least one layer each. Among
/// equals the one whose first stages, which hold most micro-batches, have the fewest layers.
std::vector<int64_t> balanced_layers(const ModelSpec& spec, int stages, int64_t seq_length);

}  // namespace trainer
