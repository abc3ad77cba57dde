// Times: interpolation.
//
// SPDX-License-Identifier: MIT
#include "trainer/planning/times.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "trainer/planning/clock.h"

namespace trainer {
namespace {

using ops::Transfer;

// The share of the peak that a product of m by n elements, each the sum of k terms, is expected to
// reach, before the table is used: tiles of 128 by 256 in waves over the multiprocessors, sums
// split where tiles are too few, and a start for each tile. Source of the form: NVIDIA, "Matrix
// Multiplication Background User's Guide" (tile and wave quantisation).
double modelled_share(double m, double n, double k, double multiprocessors) {
  if (multiprocessors == 0) return 1;
  const double tiles = std::ceil(m / 128) * std::ceil(n / 256);
  const double used = m * n / (tiles * 128 * 256);
  const double waves = tiles / multiprocessors;
  double filled = waves / std::ceil(waves);
  if (waves >= 1) {
    filled = std::max(filled, 0.85);  // libraries choose other tiles if these do not fit.
  } else {
    const double splits = std::clamp(std::floor(1 / waves), 1.0, std::max(1.0, k / 1024));
    filled = std::min(1.0, waves * splits * (splits > 1 ? 0.9 : 1));
  }
  return std::max(used * filled, 1e-4) * k / (k + 128);
}

struct Sizes {
  double m, n, k;
};
Sizes sizes_of(ProductKind kind, int64_t rows, int64_t outputs, int64_t inputs) {
  const double r = static_cast<double>(rows), o = static_cast<double>(outputs),
               i = static_cast<double>(inputs);
  if (of_weight(kind)) return {o, i, r};
  if (kind == ProductKind::input || kind == ProductKind::input_slope) return {r, i, o};
  return {r, o, i};
}

// Mean of values, weighted by squared distances.
class Nearness {
 public:
  void add(double distance, double value) {
    const double weight = 1 / (distance * distance + 1e-9);
    sum_ += weight * value;
    weights_ += weight;
  }
  bool empty() const noexcept { return weights_ == 0; }
  double mean() const noexcept { return sum_ / weights_; }

 private:
  double sum_ = 0, weights_ = 0;
};

double apart(double a, double b) {
  const double octaves = std::log2(a / b);
  return octaves * octaves;
}

double modelled(const Card& card, ProductKind kind, int64_t rows, int64_t outputs, int64_t inputs) {
  const Sizes s = sizes_of(kind, rows, outputs, inputs);
  return (in_fp8(kind) ? 2 : 1) * card.peak_tflops *
         modelled_share(s.m, s.n, s.k, static_cast<double>(card.multiprocessors));
}

// FP8 products reach this fraction of the share of the peak that 16-bit products reach; their peak
// is twice as high: bench/fp8.md. For cards whose FP8 was not measured.
constexpr double kFp8Held = 0.85;
// And with scales of rows and of blocks this fraction of what one scale reaches: bench/planning.md.
constexpr double kRowsHeld = 0.96, kBlocksHeld = 0.78;

// Ratio of measured to modelled rate near a shape; if the kind was not measured, that of the plain
// one.
double product_ratio(const Card& card, ProductKind kind, int64_t rows, int64_t outputs,
                     int64_t inputs) {
  Nearness near;
  for (const ProductRate& p : card.products) {
    if (p.kind != kind) continue;
    near.add(apart(static_cast<double>(p.rows), static_cast<double>(rows)) +
                 apart(static_cast<double>(p.outputs), static_cast<double>(outputs)) +
                 apart(static_cast<double>(p.inputs), static_cast<double>(inputs)),
             p.tflops / modelled(card, kind, p.rows, p.outputs, p.inputs));
  }
  if (!near.empty()) return near.mean();
  if (kind == ProductKind::forward_activation)
    return product_ratio(card, ProductKind::forward, rows, outputs, inputs);
  if (kind == ProductKind::input_slope)
    return product_ratio(card, ProductKind::input, rows, outputs, inputs);
  if (kind == ProductKind::fp8 || kind == ProductKind::fp8_weight) {
    const ProductKind plain = of_weight(kind) ? ProductKind::weight : ProductKind::forward;
    return kFp8Held * product_ratio(card, plain, rows, outputs, inputs);
  }
  if (in_fp8(kind)) {
    const ProductKind one_scale = of_weight(kind) ? ProductKind::fp8_weight : ProductKind::fp8;
    const bool blocks = kind == ProductKind::fp8_blocks || kind == ProductKind::fp8_blocks_weight;
    return (blocks ? kBlocksHeld : kRowsHeld) *
           product_ratio(card, one_scale, rows, outputs, inputs);
  }
  return 1;
}

// Piecewise linear over the logarithm of the size; constant beyond the ends.
class Curve {
 public:
  void add(double size, double rate) { points_.emplace_back(std::log2(size), rate); }
  bool empty() const noexcept { return points_.empty(); }
  double at(double size) {
    std::sort(points_.begin(), points_.end());
    const double x = std::log2(std::max(size, 1e-9));
    if (x <= points_.front().first) return points_.front().second;
    for (size_t i = 1; i < points_.size(); ++i) {
      const auto& [x1, y1] = points_[i];
      const auto& [x0, y0] = points_[i - 1];
      if (x <= x1) return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
    }
    return points_.back().second;
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

constexpr double kMib = 1 << 20;

// Passes that are no operation of their own: for those without a row; the sums of a gradient's rows
// that LinearBackwardWeight makes.
constexpr char kAny[] = "any", kBiasGradient[] = "bias_gradient";
// QuantizeInBlocks with scales of rows: its columns need a pass of their own.
constexpr char kQuantizeInRows[] = "quantize_in_rows";

template <class... Parts>
std::string key_of(const char* what, Parts... parts) {
  std::string key = what;
  ((key += ' ', key += std::to_string(parts)), ...);
  return key;
}

}  // namespace

double CardTimes::product(ProductKind kind, int64_t rows, int64_t outputs, int64_t inputs) {
  const auto [at, is_new] = known_.try_emplace(key_of(name_of(kind), rows, outputs, inputs));
  if (is_new) {
    const double rate = modelled(card_, kind, rows, outputs, inputs) *
                        product_ratio(card_, kind, rows, outputs, inputs) * 1e12;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) *
                         static_cast<double>(inputs);
    // No product is faster than reading its operands: bytes of activations, and of weights or
    // gradients.
    const double bytes =
        (in_fp8(kind) ? 1.0 : 2.0) * static_cast<double>(rows) *
            static_cast<double>(outputs + inputs) +
        (of_weight(kind) ? 8.0 : 2.0) * static_cast<double>(outputs) * static_cast<double>(inputs);
    at->second =
        std::max({flops / rate, bytes / (card_.memory_tb_per_s * 1e12), card_.launch_us * 1e-6});
  }
  return at->second;
}

double CardTimes::attention(bool backward, int64_t head_size, int64_t length, int64_t heads,
                            double flops) {
  const auto [at, is_new] = known_.try_emplace(
      key_of(backward ? "attention_b" : "attention_f", head_size, length, heads));
  if (is_new) {
    Nearness near;
    for (const AttentionRate& a : card_.attention)
      near.add(4 * apart(static_cast<double>(a.head_size), static_cast<double>(head_size)) +
                   apart(static_cast<double>(a.length), static_cast<double>(length)) +
                   0.1 * apart(static_cast<double>(a.heads), static_cast<double>(heads)),
               backward ? a.backward_tflops : a.forward_tflops);
    at->second = near.empty() ? 0.4 * card_.peak_tflops : near.mean();
    // Work smaller than a wave: a block of 128 queries of one head for each multiprocessor.
    const double blocks = static_cast<double>(heads) * std::ceil(static_cast<double>(length) / 128);
    if (card_.multiprocessors > 0)
      at->second *= std::min(1.0, blocks / static_cast<double>(card_.multiprocessors));
  }
  return std::max(flops / (at->second * 1e12), card_.launch_us * 1e-6);
}

double CardTimes::pass(const char* operation, double bytes) {
  if (bytes <= 0) return card_.launch_us * 1e-6;
  const auto [at, is_new] = known_.try_emplace(key_of(operation, static_cast<int64_t>(bytes)));
  if (is_new) {
    Curve own, any;
    for (const PassRate& p : card_.passes) {
      if (p.operation == operation) own.add(p.mib, p.tb_per_s);
      if (p.operation == kAny) any.add(p.mib, p.tb_per_s);
    }
    const double rate = !own.empty()   ? own.at(bytes / kMib)
                        : !any.empty() ? any.at(bytes / kMib)
                                       : 0.85 * card_.memory_tb_per_s;
    at->second = card_.launch_us * 1e-6 + bytes / (rate * 1e12);
  }
  return at->second;
}

namespace {

/// Whether an operation is timed by the bytes that it moves.
template <class Args>
constexpr bool kIsPass =
    !std::is_same_v<Args, ops::LinearForward> && !std::is_same_v<Args, ops::LinearBackwardInput> &&
    !std::is_same_v<Args, ops::LinearBackwardWeight> && !std::is_same_v<Args, ops::Fp8Product> &&
    !std::is_same_v<Args, ops::AttentionForward> && !std::is_same_v<Args, ops::AttentionBackward>;

template <class... Args>
std::vector<std::string> passes_among(const std::variant<const Args*...>*) {
  std::vector<std::string> names = {kAny, kBiasGradient, kQuantizeInRows};
  const auto add = [&](bool is_pass, const char* name) {
    if (is_pass) names.emplace_back(name);
  };
  (add(kIsPass<Args>, Args::kName), ...);
  return names;
}

/// time() by the type of the operation.
struct TimeOf {
  CardTimes& times;
  const Card& card;
  bool host_state;

  /// All of it slows down with the clock.
  ops::CallTime clocked(double seconds, double power, ops::DType dtype) const {
    if (dtype == ops::DType::f32) seconds /= card.fp32_share;
    return {.seconds = seconds, .clocked = seconds, .energy = power * seconds};
  }
  ops::CallTime product(ProductKind kind, int64_t rows, const ops::Tensor& weight,
                        ops::DType dtype) const {
    return clocked(times.product(kind, rows, weight.shape[0], weight.shape[1]), power::kProduct,
                   dtype);
  }
  static ops::CallTime pass(double seconds) {
    return {.seconds = seconds, .clocked = 0, .energy = power::kPass * seconds};
  }
  ops::CallTime operator()(const ops::LinearForward* a) const {
    const bool plain = a->activation == ops::Activation::none;
    return product(plain ? ProductKind::forward : ProductKind::forward_activation, a->x.rows(),
                   a->weight, a->x.dtype);
  }
  ops::CallTime operator()(const ops::LinearBackwardInput* a) const {
    const bool plain = a->activation == ops::Activation::none;
    return product(plain ? ProductKind::input : ProductKind::input_slope, a->dy.rows(), a->weight,
                   a->dy.dtype);
  }
  ops::CallTime operator()(const ops::LinearBackwardWeight* a) const {
    ops::CallTime sum;
    if (a->dbias) sum = pass(times.pass(kBiasGradient, static_cast<double>(a->dy.bytes())));
    if (!a->dweight) return sum;
    return sum + clocked(times.product(ProductKind::weight, a->dy.rows(), a->dy.columns(),
                                       a->x.columns()),
                         power::kProduct, a->dy.dtype);
  }
  ops::CallTime operator()(const ops::Fp8Product* a) const {
    const bool of_weight = a->y.dtype == ops::DType::f32;
    ProductKind kind = of_weight ? ProductKind::fp8_weight : ProductKind::fp8;
    if (a->a_scaling == ops::Scaling::row)
      kind = of_weight ? ProductKind::fp8_rows_weight : ProductKind::fp8_rows;
    if (a->in_blocks()) kind = of_weight ? ProductKind::fp8_blocks_weight : ProductKind::fp8_blocks;
    const double seconds = of_weight
                               ? times.product(kind, a->a.columns(), a->a.rows(), a->b.rows())
                               : times.product(kind, a->a.rows(), a->b.rows(), a->a.columns());
    return clocked(seconds, a->in_blocks() ? power::kFp8BlockProduct : power::kFp8Product,
                   ops::DType::e4m3);
  }
  template <class Attention>
  ops::CallTime attention(const Attention* a, bool backward) const {
    return clocked(times.attention(backward, a->shape.kv_channels, a->qkv.shape[0],
                                   a->qkv.shape[1] * a->shape.num_attention_heads, a->cost().flops),
                   backward ? power::kAttentionBackward : power::kAttentionForward, a->qkv.dtype);
  }
  ops::CallTime operator()(const ops::AttentionForward* a) const { return attention(a, false); }
  ops::CallTime operator()(const ops::AttentionBackward* a) const { return attention(a, true); }
  ops::CallTime operator()(const ops::AdamW* a) const {
    if (!host_state) return pass(times.pass(a->kName, a->cost().bytes));
    const double host = 2 * ops::bytes_of({&a->main, &a->m, &a->v});
    return pass(host / (card.host_gb_per_s * 1e9) + times.pass(a->kName, a->cost().bytes - host));
  }
  ops::CallTime operator()(const ops::QuantizeInBlocks* a) const {
    return pass(times.pass(pass_name_of(a->scaling), a->cost().bytes));
  }
  template <class Other>
  ops::CallTime operator()(const Other* a) const {
    static_assert(kIsPass<Other>);
    return pass(times.pass(a->kName, a->cost().bytes));
  }
};

}  // namespace

const char* pass_name_of(ops::Scaling scaling) noexcept {
  return scaling == ops::Scaling::row ? kQuantizeInRows : ops::QuantizeInBlocks::kName;
}

std::vector<std::string> pass_operations() {
  return passes_among(static_cast<const ops::AnyCall*>(nullptr));
}

ops::CallTime CardTimes::time(const ops::AnyCall& call) {
  return std::visit(TimeOf{*this, card_, host_state_}, call);
}

namespace {

/// By the measured group with the nearest size, of which a transfer as small was measured; 0: none.
double rate_of(const std::vector<TransferRate>& rates, Transfer kind, double ranks, double mib) {
  struct Group {
    Curve curve;
    double least_mib = INFINITY;
  };
  std::map<double, Group> groups;  // by the distance of their sizes.
  for (const TransferRate& t : rates) {
    if (t.kind != kind) continue;
    Group& group = groups[apart(static_cast<double>(t.ranks), ranks)];
    group.curve.add(t.mib, t.gb_per_s);
    group.least_mib = std::min(group.least_mib, t.mib);
  }
  if (groups.empty()) return 0;
  const auto found =
      std::ranges::find_if(groups, [&](const auto& g) { return g.second.least_mib <= mib; });
  return (found == groups.end() ? groups.begin() : found)->second.curve.at(mib);
}

}  // namespace

bool can_copy(const Card& card, const GroupPlaceOnHosts& place) noexcept {
  return card.peer_gib > 0 && place.ranks > 1 && place.ranks <= kMostCopying &&
         place.per_host == place.ranks;
}

double transfer_seconds(const Card& card, Transfer kind, double bytes,
                        const GroupPlaceOnHosts& place) {
  if (place.ranks < 2) return 0;
  const double n = static_cast<double>(place.ranks);
  double traffic = bytes;
  if (kind == Transfer::all_reduce) traffic = 2 * bytes * (n - 1) / n;
  if (kind == Transfer::reduce_scatter || kind == Transfer::all_gather)
    traffic = bytes * (n - 1) / n;
  double bus = card.link_gb_per_s, start = card.link_us;
  if (place.per_host > 1) {
    const auto of_kind = [&](const TransferRate& t) { return t.kind == kind; };
    const bool copied = place.copied && std::ranges::any_of(card.copies, of_kind);
    const double rate = rate_of(copied ? card.copies : card.transfers, kind,
                                static_cast<double>(place.per_host), bytes / kMib);
    if (rate > 0) bus = rate;
  }
  if (place.per_host < place.ranks) {
    const double share = card.network_gb_per_s / static_cast<double>(place.sharing);
    bus = place.per_host > 1 ? std::min(bus, share) : share;
    start += card.network_us;
  }
  return start * 1e-6 + traffic / (bus * 1e9);
}

}  // namespace trainer
