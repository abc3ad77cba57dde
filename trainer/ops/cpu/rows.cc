// Row loops.
// The exponential: range reduction by ln 2 in two parts and a polynomial of degree 6 (coefficients
// of Cephes' expf, Moshier 1989).
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/rows.h"

#include <bit>
#include <cmath>

namespace ops::cpu {
namespace {

constexpr int kLanes = 16;

[[gnu::always_inline]] inline float exponential(float x) noexcept {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.3f ? 88.3f : x;
  const float shifted = x * 1.44269504088896341f + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * r * r + r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - 0x4B400000u + 127u) << 23;
  return y * std::bit_cast<float>(exponent);
}

/// 1 / d for d in 2^-100 .. 2^120, within 2 ulp: Newton's steps from a guess by the exponent's
/// bits. A vector division takes several times as long. NaN gives NaN.
[[gnu::always_inline]] inline float reciprocal(float d) noexcept {
  float r = std::bit_cast<float>(0x7EF311C7u - std::bit_cast<uint32_t>(d));  // within 12%
  r += r * (1.0f - d * r);
  r += r * (1.0f - d * r);
  return r + r * (1.0f - d * r);
}

[[gnu::always_inline]] inline float logistic(float x) noexcept {
  return reciprocal(1.0f + exponential(x < -80.0f ? 80.0f : -x));
}

/// 0.5 (1 + tanh(u)) = logistic(2u), with u the argument of GELU's tanh form.
[[gnu::always_inline]] inline float gelu_gate(float x) noexcept {
  constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308f;
  return logistic(kTwoSqrtTwoOverPi * (x + 0.044715f * x * x * x));
}

template <class T>
[[gnu::always_inline]] inline double add_up(const T (&lanes)[kLanes]) noexcept {
  double sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

}  // namespace

ROW_CLONES float row_max(const float* x, int64_t n) noexcept {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = x[lane < n ? lane : 0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  float top = lanes[0];
  for (const float lane : lanes) top = lane > top ? lane : top;
  return top;
}

ROW_CLONES double row_exp_sum(float* y, const float* x, int64_t n, float shift) noexcept {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float e = exponential(x[i + lane] - shift);
      y[i + lane] = e;
      lanes[lane] += e;
    }
  }
  double sum = add_up(lanes);
  for (; i < n; ++i) sum += y[i] = exponential(x[i] - shift);
  return sum;
}

ROW_CLONES double row_sum_of_exp(const float* x, int64_t n, float shift) noexcept {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += exponential(x[i + lane] - shift);
  double sum = add_up(lanes);
  for (; i < n; ++i) sum += exponential(x[i] - shift);
  return sum;
}

ROW_CLONES void row_scale(float* x, int64_t n, float factor) noexcept {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

ROW_CLONES void row_gelu_tanh(float* y, const float* x, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * gelu_gate(x[i]);
}

ROW_CLONES void row_gelu_tanh_backward(float* d, const float* x, int64_t n) noexcept {
  constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308f;
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i], s = gelu_gate(v);
    d[i] *= s + v * s * (1.0f - s) * kTwoSqrtTwoOverPi * (1.0f + 3.0f * 0.044715f * v * v);
  }
}

ROW_CLONES void row_swiglu(float* y, const float* gate, const float* up, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * logistic(gate[i]) * up[i];
}

ROW_CLONES double row_sum(const float* x, int64_t n) noexcept {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  double sum = add_up(lanes);
  for (; i < n; ++i) sum += x[i];
  return sum;
}

ROW_CLONES double row_sum_of_squares(const float* x, int64_t n, double center) noexcept {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double d = x[i + lane] - center;
      lanes[lane] += d * d;
    }
  }
  double sum = add_up(lanes);
  for (; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum;
}

RowMoments row_moments(const float* x, int64_t n, bool centered, float eps) noexcept {
  const double count = static_cast<double>(n);
  const double mean = centered ? row_sum(x, n) / count : 0;
  const double variance = row_sum_of_squares(x, n, mean) / count;
  return {static_cast<float>(mean), static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

ROW_CLONES void row_add(double* sums, const float* x, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

ROW_CLONES void row_norm(float* y, const float* x, const float* weight, const float* bias,
                         int64_t n, RowMoments m) noexcept {
  if (bias == nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m.mean) * m.rstd * weight[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m.mean) * m.rstd * weight[i] + bias[i];
}

ROW_CLONES void row_norm_weights(double* dweight, double* dbias, const float* dy, const float* x,
                                 int64_t n, RowMoments m) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    dweight[i] += dy[i] * ((x[i] - m.mean) * m.rstd);
    dbias[i] += dy[i];
  }
}

ROW_CLONES void row_norm_backward(float* dx, const float* before, const float* dy, const float* x,
                                  const float* weight, int64_t n, RowMoments m,
                                  bool centered) noexcept {
  double sums[kLanes] = {}, dots[kLanes] = {};  // of g = dy * weight, and of g * normed x
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float g = dy[i + lane] * weight[i + lane];
      sums[lane] += g;
      dots[lane] += g * ((x[i + lane] - m.mean) * m.rstd);
    }
  }
  double sum = add_up(sums), dot = add_up(dots);
  for (; i < n; ++i) {
    const float g = dy[i] * weight[i];
    sum += g;
    dot += g * ((x[i] - m.mean) * m.rstd);
  }
  const float g_mean = centered ? static_cast<float>(sum / static_cast<double>(n)) : 0.0f;
  const float dot_mean = static_cast<float>(dot / static_cast<double>(n));
  for (int64_t c = 0; c < n; ++c) {
    const float normed = (x[c] - m.mean) * m.rstd;
    const float d = m.rstd * (dy[c] * weight[c] - g_mean - normed * dot_mean);
    dx[c] = before != nullptr ? before[c] + d : d;
  }
}

ROW_CLONES void row_dropout(float* x, int64_t first, int64_t n, const RowDropout& d) noexcept {
  // Up to 64 Philox counters side by side, 8 elements each; the rounds are those of ops/philox.h.
  constexpr int kCounters = 64;
  for (int64_t begin = 0; begin < n; begin += 8 * kCounters) {
    const int64_t width = n - begin < 8 * kCounters ? n - begin : 8 * kCounters;
    const int counters = static_cast<int>((width + 7) / 8);
    uint32_t a[kCounters], b[kCounters], c[kCounters], e[kCounters];
    for (int j = 0; j < counters; ++j) {
      a[j] = static_cast<uint32_t>((first + begin) / 8 + j);
      b[j] = d.position;
      c[j] = d.sample;
      e[j] = d.iteration;
    }
    uint32_t key0 = d.seed, key1 = d.site;
    for (int round = 0; round < 10; ++round) {
      for (int j = 0; j < counters; ++j) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * a[j];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[j];
        a[j] = static_cast<uint32_t>(p1 >> 32) ^ b[j] ^ key0;
        c[j] = static_cast<uint32_t>(p0 >> 32) ^ e[j] ^ key1;
        b[j] = static_cast<uint32_t>(p1);
        e[j] = static_cast<uint32_t>(p0);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    float factors[8 * kCounters];
    const uint32_t* words[4] = {a, b, c, e};
    for (int lane = 0; lane < 8; ++lane) {
      const uint32_t* word = words[lane / 2];
      const int shift = lane % 2 * 16;
      for (int j = 0; j < counters; ++j)
        factors[8 * j + lane] = ((word[j] >> shift) & 0xFFFFu) < d.threshold ? 0.0f : d.scale;
    }
    // A dropped Inf or NaN is dropped too.
    for (int64_t i = 0; i < width; ++i)
      x[begin + i] = factors[i] == 0.0f ? 0.0f : x[begin + i] * factors[i];
  }
}

}  // namespace ops::cpu
