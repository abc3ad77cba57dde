// Plans and timing; see gemm.h.
// Timing: every heuristic candidate (at most kCandidates) runs a few times on random numbers; the
// fastest few run again, alternating, and the smallest median wins. With hold_seconds those near it
// then run so long that the power limit sets the clock, and the fastest of these wins: it may be
// one that needs less energy. The numbers are random because zeros draw less power and run faster.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "trainer/ops/cuda/launch.h"

#define LT_CHECK(call) ::ops::cuda::check_lt((call), #call, __FILE__, __LINE__)

namespace ops::cuda {
namespace {

constexpr int kCandidates = 32;
constexpr int kFinalists = 4;
constexpr int kFirstRuns = 3;
constexpr int kFinalRuns = 9;
/// Finalists slower than this many times the fastest are not held.
constexpr float kNear = 1.08f;

void check_lt(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw_device_error(call, file, line, cublasLtGetStatusString(status));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatmulMatrixScale_t scale_mode(Scaling scaling) {
  switch (scaling) {
    case Scaling::row:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scaling::row_block:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::square_block:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

/// For the file of choices: the scales of a product's operands that have more than one.
const char* scaling_text(const GemmKey& key) {
  if (key.a_scaling == Scaling::row) return " rows";
  if (key.a_scaling == Scaling::square_block) return " squares*blocks";
  if (key.b_scaling == Scaling::square_block) return " blocks*squares";
  return key.a_scaling == Scaling::row_block ? " blocks" : "";
}

cublasLtEpilogue_t epilogue_of(Epilogue e) {
  switch (e) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu_aux_bias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool has_aux(Epilogue e) { return e == Epilogue::gelu_aux_bias; }
bool has_bias(Epilogue e) { return e != Epilogue::none; }

int alignment_of(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 16;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return static_cast<int>(bits & (~bits + 1));
}

cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                              int64_t stride) {
  cublasLtMatrixLayout_t out = nullptr;
  LT_CHECK(cublasLtMatrixLayoutCreate(&out, data_type(dtype), static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(columns), ld));
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    LT_CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count));
    LT_CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof stride));
  }
  return out;
}

template <typename Value>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const Value& value) {
  LT_CHECK(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value));
}

std::vector<std::string> choice_files(const CudaOptions& options) {
  std::vector<std::string> out;
  if (!options.gemm_choices_path.empty()) out.push_back(options.gemm_choices_path);
  if (!options.cache_folder.empty()) out.push_back(options.cache_folder + "/gemm_choices.txt");
  return out;
}

}  // namespace

std::string GemmKey::text() const {
  std::ostringstream out;
  out << m << ' ' << n << ' ' << k << ' ' << lda << ' ' << ldb << ' ' << ldd << ' ' << batch << ' '
      << stride_a << ' ' << stride_b << ' ' << stride_d << ' ' << transpose_a << transpose_b
      << add_c << ' ' << name(a);
  if (b != a) out << '*' << name(b);
  out << ' ' << name(d) << ' ' << static_cast<int>(epilogue) << ' ' << alignment;
  if (fast_sums) out << " fast";
  out << scaling_text(*this);
  return out.str();
}

/// Descriptors and the algorithm of one key.
struct Gemm::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates;
  cublasLtMatmulAlgo_t algorithm{};
  float microseconds = 0;
  bool tried = false;  ///< Timing was attempted, successfully or not.

  ~Plan() {
    if (d != nullptr) cublasLtMatrixLayoutDestroy(d);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
  }
  cublasStatus_t run(cublasLtHandle_t handle, const GemmKey& key, const GemmCall& call,
                     const cublasLtMatmulAlgo_t& with, char* workspace, cudaStream_t stream) {
    if (has_bias(key.epilogue)) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    if (has_aux(key.epilogue)) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
    if (is_fp8(key.a)) {
      set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.a_scale);
      set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.b_scale);
    }
    const float beta = key.add_c ? call.beta : 0.0f;
    const void* c = key.add_c ? call.c : call.d;
    return cublasLtMatmul(handle, desc, &call.alpha, call.a, a, call.b, b, &beta, c, d, call.d, d,
                          &with, workspace, static_cast<size_t>(kWorkspaceBytes), stream);
  }
};

Gemm::Gemm(const CudaOptions& options, const std::string& device_name)
    : tune_(options.tune),
      hold_seconds_(options.hold_seconds),
      choices_(choice_files(options),
               "cublasLt " + std::to_string(cublasLtGetVersion()) + " " + device_name) {
  LT_CHECK(cublasLtCreate(&handle_));
}

Gemm::~Gemm() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

Gemm::Plan& Gemm::plan(const GemmKey& key) {
  std::unique_ptr<Plan>& slot = plans_[key];
  if (slot) return *slot;
  auto p = std::make_unique<Plan>();
  LT_CHECK(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
  if (has_bias(key.epilogue))
    set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(is_fp8(key.a) ? key.d : key.a));
  if (is_fp8(key.a)) {
    set(p->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{key.fast_sums});
    if (key.a_scaling != Scaling::tensor) {
      set(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(key.a_scaling));
      set(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(key.b_scaling));
    }
    // cuBLASLt's heuristics depend on whether there are scales, not on their addresses.
    const void* some = this;
    set(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some);
    set(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some);
  }
  if (has_aux(key.epilogue)) set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ldd);
  p->a = layout(key.a, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.lda,
                key.batch, key.stride_a);
  p->b = layout(key.b, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.ldb,
                key.batch, key.stride_b);
  p->d = layout(key.d, key.m, key.n, key.ldd, key.batch, key.stride_d);

  cublasLtMatmulPreference_t want = nullptr;
  LT_CHECK(cublasLtMatmulPreferenceCreate(&want));
  const auto workspace = static_cast<uint64_t>(kWorkspaceBytes);
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const auto alignment = static_cast<uint32_t>(key.alignment);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const void* value,
                          size_t bytes) {
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(want, what, value, bytes));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  for (auto what :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(what, &alignment, sizeof alignment);
  p->candidates.resize(kCandidates);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, p->desc, p->a, p->b, p->d, p->d, want, kCandidates, p->candidates.data(), &count);
  cublasLtMatmulPreferenceDestroy(want);
  p->candidates.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  std::erase_if(p->candidates, [](const auto& c) { return c.state != CUBLAS_STATUS_SUCCESS; });
  if (!p->candidates.empty()) p->algorithm = p->candidates.front().algo;

  take(choices_.find(key.text()), *p);
  slot = std::move(p);
  return *slot;
}

void Gemm::take(const GemmChoice* choice, Plan& p) {
  if (choice == nullptr || choice->algorithm.size() != sizeof p.algorithm) return;
  cublasLtMatmulAlgo_t algorithm{};
  std::memcpy(&algorithm, choice->algorithm.data(), sizeof algorithm);
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(handle_, p.desc, p.a, p.b, p.d, p.d, &algorithm, &result) !=
          CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > static_cast<size_t>(kWorkspaceBytes))
    return;
  p.algorithm = algorithm;
  p.microseconds = choice->microseconds;
}

bool Gemm::supports(const GemmKey& key) { return !plan(key).candidates.empty(); }

void Gemm::run(GemmKey key, const GemmCall& call, char* workspace, cudaStream_t stream,
               bool may_tune) {
  key.alignment = alignment_of({call.a, call.b, call.c, call.d, call.bias, call.aux});
  Plan& p = plan(key);
  if (p.candidates.empty())
    throw DeviceError("cuda: cublasLt: product " + key.text() + ": no algorithm");
  if (may_tune) tune({&key, 1}, stream);
  LT_CHECK(p.run(handle_, key, call, p.algorithm, workspace, stream));
}

/// Memory that candidates are timed on: room for every operand of the largest key, filled with
/// random numbers.
struct Gemm::Bench {
  std::array<void*, 7> block{};  // a, b, d, aux, bias, scales, workspace
  bool whole = true;
  cudaEvent_t begin = nullptr, end = nullptr;

  explicit Bench(std::span<const GemmKey> keys) {
    std::array<int64_t, 7> bytes{};
    for (const GemmKey& k : keys) {
      const int64_t out = size_bytes(k.d), spare = k.batch - 1;
      bytes[0] = std::max(
          bytes[0], (k.lda * (k.transpose_a ? k.m : k.k) + spare * k.stride_a) * size_bytes(k.a));
      bytes[1] = std::max(
          bytes[1], (k.ldb * (k.transpose_b ? k.k : k.n) + spare * k.stride_b) * size_bytes(k.b));
      bytes[2] = std::max(bytes[2], (k.ldd * k.n + spare * k.stride_d) * out);
      if (has_aux(k.epilogue)) bytes[3] = std::max(bytes[3], k.ldd * k.n * out);
      bytes[4] = std::max(bytes[4], std::max(k.m, k.n) * out);
      if (is_fp8(k.a))
        bytes[5] = std::max({bytes[5], 4 * scale_shape(k.a_scaling, k.m, k.k).count(),
                             4 * scale_shape(k.b_scaling, k.n, k.k).count()});
    }
    bytes[6] = kWorkspaceBytes;
    for (size_t i = 0; i < block.size(); ++i) {
      if (bytes[i] == 0) continue;
      if (cudaMalloc(&block[i], static_cast<size_t>(bytes[i])) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        whole = false;
        return;
      }
    }
    // Random 16-bit words of moderate exponent are usable as bf16, fp16, fp32 and fp8 numbers.
    std::vector<uint16_t> words(size_t{1} << 22);
    uint32_t x = 1;
    for (uint16_t& w : words) {
      x = x * 1664525u + 1013904223u;
      w = static_cast<uint16_t>((x >> 16 & 0x80ffu) | 0x3c00u | (x >> 9 & 0x0300u));
    }
    const auto chunk = static_cast<int64_t>(words.size() * 2);
    for (size_t i = 0; i < 6; ++i)
      for (int64_t at = 0; at < bytes[i]; at += chunk)
        CUDA_CHECK(cudaMemcpy(static_cast<char*>(block[i]) + at, words.data(),
                              static_cast<size_t>(std::min(chunk, bytes[i] - at)),
                              cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
  }
  ~Bench() {
    for (void* b : block) cudaFree(b);
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
};

// No algorithm where no candidate ran.
GemmChoice Gemm::time_candidates(const GemmKey& key, Plan& p, const Bench& bench,
                                 cudaStream_t stream) {
  const GemmCall call{.a = bench.block[0],
                      .b = bench.block[1],
                      .c = bench.block[2],
                      .d = bench.block[2],
                      .bias = bench.block[4],
                      .aux = bench.block[3],
                      .a_scale = static_cast<const float*>(bench.block[5]),
                      .b_scale = static_cast<const float*>(bench.block[5])};
  auto* workspace = static_cast<char*>(bench.block[6]);
  const auto once = [&](const cublasLtMatmulAlgo_t& algorithm, int runs) {
    CUDA_CHECK(cudaEventRecord(bench.begin, stream));
    for (int i = 0; i < runs; ++i)
      if (p.run(handle_, key, call, algorithm, workspace, stream) != CUBLAS_STATUS_SUCCESS)
        return 1e30f;
    CUDA_CHECK(cudaEventRecord(bench.end, stream));
    CUDA_CHECK(cudaEventSynchronize(bench.end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, bench.begin, bench.end));
    return ms * 1000.0f / static_cast<float>(runs);
  };
  std::vector<std::pair<float, size_t>> first;
  for (size_t i = 0; i < p.candidates.size(); ++i) {
    if (p.candidates[i].workspaceSize > static_cast<size_t>(kWorkspaceBytes)) continue;
    if (once(p.candidates[i].algo, 1) > 1e29f) continue;
    first.emplace_back(once(p.candidates[i].algo, kFirstRuns), i);
  }
  if (first.empty()) return {};
  std::sort(first.begin(), first.end());
  first.resize(std::min<size_t>(first.size(), kFinalists));
  std::vector<std::vector<float>> times(first.size());
  for (int run = 0; run < kFinalRuns; ++run)
    for (size_t i = 0; i < first.size(); ++i)
      times[i].push_back(once(p.candidates[first[i].second].algo, 2));
  std::vector<float> finals(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    finals[i] = times[i][kFinalRuns / 2];
  }
  // A quarter of the time warms the card up.
  const auto held = [&](size_t i) {
    const int quarter = std::max(1, static_cast<int>(hold_seconds_ * 0.25e6 / double{finals[i]}));
    once(p.candidates[first[i].second].algo, quarter);
    return once(p.candidates[first[i].second].algo, 3 * quarter);
  };
  if (hold_seconds_ > 0) {
    const float limit = kNear * *std::min_element(finals.begin(), finals.end());
    for (size_t i = 0; i < finals.size(); ++i) finals[i] = finals[i] > limit ? 1e30f : held(i);
  }
  const auto best =
      static_cast<size_t>(std::min_element(finals.begin(), finals.end()) - finals.begin());
  const cublasLtMatmulAlgo_t& algorithm = p.candidates[first[best].second].algo;
  return {std::string(reinterpret_cast<const char*>(&algorithm), sizeof algorithm), finals[best]};
}

void Gemm::tune(std::span<const GemmKey> keys, cudaStream_t stream) {
  if (!tune_) return;
  std::vector<GemmKey> unknown;
  for (const GemmKey& k : keys) {
    Plan& p = plan(k);
    if (p.candidates.empty() || p.microseconds > 0 || p.tried) continue;
    p.tried = true;
    unknown.push_back(k);
  }
  if (unknown.empty()) return;
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const Bench bench(unknown);
  std::map<std::string, GemmChoice> timed;
  for (const GemmKey& k : unknown) {
    if (!bench.whole) break;
    GemmChoice best = time_candidates(k, plan(k), bench, stream);
    if (best.algorithm.empty()) continue;
    take(&best, plan(k));
    timed[k.text()] = std::move(best);
  }
  choices_.add(timed);
  for (const GemmKey& k : unknown) take(choices_.find(k.text()), plan(k));  // as agreed on
}

}  // namespace ops::cuda
