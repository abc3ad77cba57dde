// Muon: updates one matrix after another.
//
// SPDX-License-Identifier: MIT
#include "trainer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace trainer {
namespace {

using Triple = std::array<float, 3>;

constexpr size_t kMomentum = 2;  ///< Index in optimizer_states(OptimizerKind::muon).

constexpr Triple kSimple[] = {{3.4445f, -4.7750f, 2.0315f}};
constexpr Triple kQuintic[] = {{4.0848f, -6.8946f, 2.9270f},
                               {3.9505f, -6.3029f, 2.6377f},
                               {3.7418f, -5.5913f, 2.3037f},
                               {2.8769f, -3.1427f, 1.2046f},
                               {2.8366f, -3.0525f, 1.2012f}};
constexpr Triple kPolarExpress[] = {{8.2051f, -22.9019f, 16.4607f}, {4.0664f, -2.8612f, 0.5184f},
                                    {3.9096f, -2.8234f, 0.5250f},   {3.2856f, -2.4153f, 0.4853f},
                                    {2.2779f, -1.6198f, 0.3985f},   {1.8726f, -1.2307f, 0.3585f},
                                    {1.8564f, -1.2132f, 0.3568f},   {1.8750f, -1.2500f, 0.3750f}};
constexpr Triple kCans[] = {{8.4703f, -25.1081f, 18.6293f},
                            {4.1828f, -3.1087f, 0.5806f},
                            {3.9619f, -2.9541f, 0.5630f},
                            {3.2866f, -2.4647f, 0.5074f},
                            {2.2737f, -1.6447f, 0.4162f}};
constexpr Triple kAol[] = {{4.0098f, -7.0585f, 2.4635f},
                           {3.4585f, -5.5479f, 2.5959f},
                           {2.7573f, -3.2939f, 1.4254f},
                           {2.7215f, -3.0494f, 1.3169f}};

std::span<const Triple> list_of(MuonCoefficients kind) noexcept {
  switch (kind) {
    case MuonCoefficients::simple:
      return kSimple;
    case MuonCoefficients::quintic:
      return kQuintic;
    case MuonCoefficients::polar_express:
      return kPolarExpress;
    case MuonCoefficients::cans:
      return kCans;
    case MuonCoefficients::aol:
      return kAol;
  }
  return {};
}

/// Updates one matrix: a parameter, or rows of it.
class Orthogonaliser {
 public:
  Orthogonaliser(const Update& u, const Slot& slot)
      : u_(u),
        options_(u.options.muon),
        split_(slot.param.spec.split),
        across_(u.tensor.size() > 1 && split_ >= 0 &&
                options_.tensor_mode != MuonTensorMode::blockwise),
        duplicated_(across_ && options_.tensor_mode == MuonTensorMode::duplicated),
        // A gathered tensor has the ranks' parts one after another in its first dimension.
        transposed_(duplicated_ && split_ == 1) {}

  /// One step of the rows `part` of a parameter. momentum, main: (R, I); also grad and model, if
  /// not empty.
  struct Matrices {
    Tensor momentum, grad, main, model;
    bool decays = true;
  };
  void step(const Matrices& m, const ops::RowPart& part) {
    const ops::PoolTensor direction = orthogonalised(m, part);
    const int64_t own = direction->shape[0] / (duplicated_ ? u_.tensor.size() : 1);
    int64_t size[] = {part.rows_of(m.main.shape[0]), m.main.shape[1]};
    if (across_) size[split_] *= u_.tensor.size();
    u_.ops.run(ops::MuonUpdate{
        .model = m.model,
        .main = m.main,
        .direction = duplicated_ ? direction->slice(u_.tensor.rank() * own, own) : direction.get(),
        .state = u_.state,
        .part = part,
        .transposed = transposed_,
        .decays = m.decays,
        .scale = muon_scale(options_, size[0], size[1])});
  }

 private:
  void sum_over_tensor_ranks(const Tensor& tensor) {
    if (!across_ || duplicated_) return;
    await_collectives(u_.ops, u_.tensor, [&] { u_.tensor.all_reduce(tensor, comm::Reduce::sum); });
  }

  /// The matrix, fp32; gathered from all tensor-parallel ranks if each rank orthogonalises the
  /// whole.
  ops::PoolTensor gathered(const Matrices& m, const ops::RowPart& part) {
    const int64_t rows = part.rows_of(m.main.shape[0]), columns = m.main.shape[1];
    const int64_t first = transposed_ ? columns : rows, second = transposed_ ? rows : columns;
    ops::PoolTensor own = u_.pool.take("matrix to orthogonalise", DType::f32, {first, second});
    u_.ops.run(ops::MuonMatrix{.out = own,
                               .momentum = m.momentum,
                               .grad = options_.nesterov ? m.grad : Tensor(),
                               .state = u_.state,
                               .part = part,
                               .transposed = transposed_,
                               .beta = options_.momentum});
    if (!duplicated_) return own;
    ops::PoolTensor all =
        u_.pool.take("matrix to orthogonalise", DType::f32, {first * u_.tensor.size(), second});
    await_collectives(u_.ops, u_.tensor, [&] { u_.tensor.all_gather(all, own); });
    return all;
  }

  ops::PoolTensor orthogonalised(const Matrices& m, const ops::RowPart& part) {
    ops::PoolTensor x;
    {
      const ops::PoolTensor matrix = gathered(m, part);
      const ops::PoolTensor sum = u_.pool.take("matrix to orthogonalise", DType::f32, {1});
      u_.ops.run(ops::SumSquares{.out = sum, .x = matrix, .accumulate = false});
      sum_over_tensor_ranks(sum);
      x = take(matrix->shape[0], matrix->shape[1]);
      u_.ops.run(ops::MuonNormalize{.out = x, .x = matrix, .sum_squares = sum});
    }
    // The Gram matrix of the smaller dimension or, with sums over ranks, of the undivided one.
    const bool wide = across_ && !duplicated_ ? split_ == 1 : x->shape[0] <= x->shape[1];
    const int64_t size = x->shape[wide ? 0 : 1];
    const ops::PoolTensor gram = take(size, size), polynomial = take(size, size);
    ops::PoolTensor next = take(x->shape[0], x->shape[1]);
    for (int i = 0; i < options_.steps; ++i) {
      const auto [a, b, c] = coefficients(options_.coefficients, i);
      u_.ops.run(
          ops::MatrixProduct{.d = gram, .a = x, .b = x, .transpose_a = !wide, .transpose_b = wide});
      sum_over_tensor_ranks(gram);
      u_.ops.run(ops::MatrixProduct{
          .d = polynomial, .a = gram, .b = gram, .c = gram, .alpha = c, .beta = b});
      u_.ops.run(ops::MatrixProduct{.d = next,
                                    .a = wide ? polynomial.get() : x.get(),
                                    .b = wide ? x.get() : polynomial.get(),
                                    .c = x,
                                    .beta = a});
      std::swap(x, next);
    }
    return x;
  }

  ops::PoolTensor take(int64_t rows, int64_t columns) {
    return u_.pool.take("orthogonalisation", options_.product_dtype, {rows, columns});
  }

  const Update& u_;
  const MuonOptions& options_;
  const int split_;
  const bool across_, duplicated_, transposed_;
};

/// This rank's parameter as a matrix; empty if another rank updates it.
Tensor matrix_of(const Update& u, const FlatMemory& flat, const Slot& slot) {
  if (!u.options.in_shares) return flat.whole(slot);
  const Tensor range = flat.range(slot);
  return range ? range.view({slot.param.shape[0], slot.param.shape[1]}) : Tensor();
}

}  // namespace

std::array<float, 3> coefficients(MuonCoefficients kind, int step) noexcept {
  const std::span<const Triple> list = list_of(kind);
  const size_t at = static_cast<size_t>(step);
  const bool stays = kind == MuonCoefficients::polar_express || kind == MuonCoefficients::cans;
  return list[stays ? std::min(at, list.size() - 1) : at % list.size()];
}

float muon_scale(const MuonOptions& options, int64_t out, int64_t in) noexcept {
  const double o = static_cast<double>(out), i = static_cast<double>(in);
  double square = std::max(o, i);
  if (options.scale == MuonScale::unit_rms_norm) square = o / i;
  if (options.scale == MuonScale::shape_scaling) square = std::max(1.0, o / i);
  return static_cast<float>(std::sqrt(square) * static_cast<double>(options.extra_scale));
}

std::vector<ops::RowPart> muon_parts(const MuonOptions& options, const ParamSpec& spec,
                                     int64_t rows) {
  if (spec.role != Role::qkv_weight || !options.split_qkv)
    return {{.first = 0, .count = rows, .period = rows}};
  const int64_t q = options.query_rows, k = options.key_rows, group = q + 2 * k;
  return {{.first = 0, .count = q, .period = group},
          {.first = q, .count = k, .period = group},
          {.first = q + k, .count = k, .period = group}};
}

void update_matrices(const Update& u, int bucket) {
  const Flats& flats = u.flats;
  u.ops.run(ops::MuonMomentum{.momentum = u.part(flats.states[kMomentum], bucket),
                              .grad = u.part(flats.grad, bucket),
                              .state = u.state,
                              .beta = u.options.muon.momentum});
  for (const int i : u.layout.bucket(bucket).slots) {
    const Slot& slot = u.layout.slot(i);
    const Tensor main = matrix_of(u, flats.main, slot);
    if (!main) continue;
    Orthogonaliser matrix(u, slot);
    for (const ops::RowPart& part : muon_parts(u.options.muon, slot.param.spec, main.shape[0]))
      matrix.step({.momentum = matrix_of(u, flats.states[kMomentum], slot),
                   .grad = matrix_of(u, flats.grad, slot),
                   .main = main,
                   .model = u.model_apart() ? matrix_of(u, flats.model, slot) : Tensor(),
                   .decays = slot.param.spec.decay},
                  part);
  }
}

}  // namespace trainer
