// CUTLASS's Hopper product (TMA, wgmma, two consumer warpgroups in turn, 128 x 128 tiles in
// clusters of two) with an epilogue of our own: source tile = pre-activation, output = accumulator
// times GELU's slope, and sums over the tile's rows. While one warpgroup is in its epilogue the
// other multiplies, so the slope costs little. Not here: when it is used (linear.cc). Compiled for
// 9.0a alone, where the build has that (cmake/cuda.cmake), and dgelu_gemm_absent.cc elsewhere.
// Source of the visitor interface: CUTLASS 4, epilogue/fusion.
// SPDX-License-Identifier: MIT
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_compute_tma_warpspecialized.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/util/packed_stride.hpp>

#include <string>

#include "trainer/ops/cuda/dgelu_gemm.h"
#include "trainer/ops/cuda/launch.h"

namespace ops::cuda {
namespace {

namespace fusion = cutlass::epilogue::fusion;
using cute::Shape;
using Element = cutlass::bfloat16_t;
using Row = cutlass::layout::RowMajor;

constexpr int kTileRows = kDgeluTileRows, kTileColumns = 128, kWarps = kDgeluTileWarps;
constexpr float kSqrt2OverPi = 0.7978845608028654f;
constexpr float kGeluCubic = 0.044715f;

// d/dx of x s, s = (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3). The hardware's tanh is good
// to 5e-4, a quarter of what rounding to bf16 costs the product.
__device__ __forceinline__ float gelu_slope(float x) {
  const float square = x * x;
  float tanh_u;
  asm("tanh.approx.f32 %0, %1;"
      : "=f"(tanh_u)
      : "f"(x * fmaf(kSqrt2OverPi * kGeluCubic, square, kSqrt2OverPi)));
  const float gate = fmaf(0.5f, tanh_u, 0.5f), gated = x * gate;
  const float inner = fmaf(6 * kSqrt2OverPi * kGeluCubic, square, 2 * kSqrt2OverPi);
  return fmaf(fmaf(-gated, gate, gated), inner, gate);
}

/// The element-wise node: product and pre-activation to the gradient.
template <class T>
struct TimesSlope;
template <class T, int kSize>
struct TimesSlope<cutlass::Array<T, kSize>> {
  using Values = cutlass::Array<T, kSize>;
  CUTLASS_DEVICE Values operator()(const Values& product, const Values& pre) const {
    Values out;
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = product[i] * gelu_slope(pre[i]);
    return out;
  }
};

/// The node above it: passes its input through and adds it up over the rows of a warp, one partial
/// row per warp. A thread of the accumulator's layout holds, of each 32 columns, 8: a pair in every
/// 8, at 2 (lane % 4). Rows and columns past the end are zeros in the product: they add nothing.
struct RowSums {
  static constexpr int kHeld = kTileColumns / 4;  // columns that a thread holds part of
  struct SharedStorage {};
  struct Arguments {
    float* partial = nullptr;
  };
  using Params = Arguments;

  template <class Problem>
  static constexpr Params to_underlying_arguments(const Problem&, const Arguments& args, void*) {
    return args;
  }
  template <class Problem>
  static bool can_implement(const Problem&, const Arguments&) {
    return true;
  }
  template <class Problem>
  static size_t get_workspace_size(const Problem&, const Arguments&) {
    return 0;
  }
  template <class Problem>
  static cutlass::Status initialize_workspace(const Problem&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }
  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  CUTLASS_HOST_DEVICE RowSums() {}
  CUTLASS_HOST_DEVICE RowSums(const Params& p, const SharedStorage&) : params(p) {}
  Params params;

  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(const fusion::ProducerLoadArgs<Args...>&) {
    return fusion::EmptyProducerLoadCallbacks{};
  }

  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    float* row;
    int columns, lane;  // columns: of the matrix from this tile on
    float sum[kHeld];

    CUTLASS_DEVICE Callbacks(float* row_, int columns_, int lane_)
        : row(row_), columns(columns_), lane(lane_) {
#pragma unroll
      for (float& s : sum) s = 0;
    }

    // Element e of an epilogue tile of 32 columns: a pair of columns, two rows, then the next 8.
    template <class Accumulator, class Input, int kSize>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Accumulator, kSize>&, int part, int, int tile_n,
                              const cutlass::Array<Input, kSize>& in) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const int e = part * kSize + i;
        sum[tile_n * 8 + e / 4 * 2 + e % 2] += in[i];
      }
      return in;
    }

    // Adds over the 8 lanes that hold the same columns: each step halves the columns of a lane.
    template <int kHalf>
    CUTLASS_DEVICE void halve(int mask) {
      const bool upper = lane & mask;
#pragma unroll
      for (int j = 0; j < kHalf; ++j) {
        const float got = __shfl_xor_sync(0xffffffffu, upper ? sum[j] : sum[j + kHalf], mask);
        sum[j] = (upper ? sum[j + kHalf] : sum[j]) + got;
      }
    }

    CUTLASS_DEVICE void end() {
      halve<kHeld / 2>(16);
      halve<kHeld / 4>(8);
      halve<kHeld / 8>(4);
      const int first = lane / 4 % 8;  // bits 4, 3, 2 of the lane chose halves from the top down
      const int base = first * (kHeld / 8);
#pragma unroll
      for (int j = 0; j < kHeld / 8; j += 2) {
        const int held = base + j, column = held / 8 * 32 + held % 8 / 2 * 8 + lane % 4 * 2;
        if (column < columns)
          *reinterpret_cast<float2*>(row + column) = make_float2(sum[j], sum[j + 1]);
      }
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(const fusion::ConsumerStoreArgs<Args...>& args) {
    const int columns = cute::get<1>(args.problem_shape_mnkl);
    const int tile_m = cute::get<0>(args.tile_coord_mnkl),
              tile_n = cute::get<1>(args.tile_coord_mnkl);
    static_assert(decltype(cute::size(args.tiled_mma))::value == 32 * kWarps);
    const int64_t row = int64_t{tile_m} * kWarps + args.thread_idx / 32;
    const int first = tile_n * kTileColumns;
    return Callbacks(params.partial + row * columns + first, columns - first, args.thread_idx % 32);
  }
};

using Tile = Shape<cute::Int<kTileRows>, cute::Int<kTileColumns>, cute::_64>;
using Cluster = Shape<cute::_2, cute::_1, cute::_1>;
constexpr auto kNearest = cutlass::FloatRoundStyle::round_to_nearest;
using Slope = fusion::Sm90EVT<fusion::Sm90Compute<TimesSlope, float, float, kNearest>,
                              fusion::Sm90AccFetch, fusion::Sm90SrcFetch<Element>>;
using Fusion = fusion::Sm90EVT<RowSums, Slope>;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Element, Row, 8, Element, Row, 8,
    cutlass::epilogue::TmaWarpSpecialized, Fusion>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, 8, Element, Row, 8, float,
    Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Product = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

void expect(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess)
    throw DeviceError(std::string("cuda: slope product: ") + what + ": " +
                      cutlass::cutlassGetStatusString(status));
}

}  // namespace

bool dgelu_gemm_runs_on(Capability gpu) noexcept { return gpu == Capability{9, 0}; }

void dgelu_gemm(const LinearBackwardInput& a, float* partial, cudaStream_t stream) {
  const int rows = static_cast<int>(a.dx.rows()), columns = static_cast<int>(a.dx.columns()),
            inner = static_cast<int>(a.dy.columns());
  const auto packed = [](auto stride, int r, int c) {
    return cutlass::make_cute_packed_stride(stride, cute::make_shape(r, c, 1));
  };
  const auto out_stride = packed(typename Kernel::StrideD{}, rows, columns);
  typename Product::Arguments args{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {rows, columns, inner, 1},
      {data<Element>(a.dy), packed(typename Kernel::StrideA{}, rows, inner),
       data<Element>(a.weight), packed(typename Kernel::StrideB{}, columns, inner)},
      {{{{}, {}, {}}, {partial}},
       data<Element>(a.pre_activation),
       packed(typename Kernel::StrideC{}, rows, columns),
       data<Element>(a.dx),
       out_stride}};
  Product product;
  expect(product.can_implement(args), "shape");
  expect(product.initialize(args, nullptr, stream), "preparation");
  expect(product.run(stream), "launch");
}

}  // namespace ops::cuda
