// Topology: arithmetic of ranks.
// Source of the order: megatron/core/parallel_state.py, initialize_model_parallel.
// Not here: anything that communicates.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/topology.h"

#include <algorithm>
#include <numeric>

namespace trainer {
namespace {

/// The ranks that differ from `t` only in one coordinate.
std::vector<int> group(Topology t, int Topology::*coordinate, int size) {
  std::vector<int> ranks;
  for (t.*coordinate = 0; t.*coordinate < size; ++(t.*coordinate)) ranks.push_back(t.rank());
  return ranks;
}

}  // namespace

std::vector<int> Topology::tensor_group() const {
  return group(*this, &Topology::tensor_rank, tensor_size);
}
std::vector<int> Topology::data_group() const {
  return group(*this, &Topology::data_rank, data_size);
}
std::vector<int> Topology::pipeline_group() const {
  return group(*this, &Topology::pipeline_rank, pipeline_size);
}

Topology make_topology(int rank, int world_size, int tensor_size, int pipeline_size) {
  const std::string what = "topology: rank " + std::to_string(rank) + " of " +
                           std::to_string(world_size) + ", tensor " + std::to_string(tensor_size) +
                           ", pipeline " + std::to_string(pipeline_size);
  if (tensor_size < 1 || pipeline_size < 1 || world_size < 1 ||
      world_size % (tensor_size * pipeline_size) != 0)
    throw ShapeError(what + ": tensor * pipeline must divide the world size");
  if (rank < 0 || rank >= world_size) throw ShapeError(what + ": rank out of range");
  Topology t{.tensor_size = tensor_size,
             .data_size = world_size / (tensor_size * pipeline_size),
             .pipeline_size = pipeline_size};
  t.tensor_rank = rank % tensor_size;
  t.data_rank = rank / tensor_size % t.data_size;
  t.pipeline_rank = rank / tensor_size / t.data_size;
  return t;
}

Place place_on(const Topology& t, const ModelSpec& spec, const std::vector<int64_t>& layers,
               int chunk) {
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (layers.empty() || layers.size() % static_cast<size_t>(t.pipeline_size) != 0 ||
      chunk >= static_cast<int>(layers.size()) / t.pipeline_size || sum != spec.num_layers)
    throw ShapeError("topology: " + std::to_string(layers.size()) + " stages of " +
                     std::to_string(sum) + " layers: " + std::to_string(t.pipeline_size) + " of " +
                     std::to_string(spec.num_layers) + " expected");
  const auto here = layers.begin() + chunk * t.pipeline_size + t.pipeline_rank;
  return {.first_layer = std::accumulate(layers.begin(), here, int64_t{0}),
          .num_layers = *here,
          .has_embedding = here == layers.begin(),
          .has_head = here + 1 == layers.end(),
          .tensor_rank = t.tensor_rank,
          .tensor_size = t.tensor_size};
}

std::vector<Place> places_on(const Topology& t, const ModelSpec& spec,
                             const std::vector<int64_t>& layers) {
  std::vector<Place> places;
  for (int chunk = 0; chunk < static_cast<int>(layers.size()) / t.pipeline_size; ++chunk)
    places.push_back(place_on(t, spec, layers, chunk));
  return places;
}

std::vector<int64_t> balanced_layers(const ModelSpec& spec, int stages, int64_t seq_length) {
  if (stages < 1 || spec.num_layers < stages)
    throw ShapeError("topology: " + std::to_string(spec.num_layers) + " layers for " +
                     std::to_string(stages) + " stages: at least one each");
  ModelSpec part = spec;
  part.num_layers = 0;
  const double head = flops_per_sample(part, seq_length);
  part.num_layers = 1;
  const double layer = flops_per_sample(part, seq_length) - head;
  if (stages == 1) return {spec.num_layers};
  int64_t best = 0;
  double least = 0;
  const int64_t others = stages - 1;
  for (int64_t last = 1; last <= spec.num_layers - others; ++last) {
    const int64_t most = (spec.num_layers - last + others - 1) / others;
    const double slowest =
        std::max(static_cast<double>(most) * layer, static_cast<double>(last) * layer + head);
    if (best == 0 || slowest <= least) best = last, least = slowest;
  }
  std::vector<int64_t> layers = even_layers(spec.num_layers - best, stages - 1);
  std::reverse(layers.begin(), layers.end());
  layers.push_back(best);
  return layers;
}

std::vector<int64_t> even_layers(int64_t num_layers, int stages) {
  std::vector<int64_t> layers(static_cast<size_t>(stages), num_layers / stages);
  for (int64_t i = 0; i < num_layers % stages; ++i) ++layers[static_cast<size_t>(i)];
  return layers;
}

}  // namespace trainer
