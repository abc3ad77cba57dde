// Linear layers on cuBLASLt: which product, which epilogue, and what needs a kernel of its own.
// Lives here: LinearForward and its backward, CudaOps::prepare, and
// the keys of their products. Not here: plans and timing (gemm.cc), the kernels of activation.cu.
// Row-major (R, C) is column-major (C, R), so y^T (O, R) = W^T-of-memory (O, I) x^T (I, R), and so
// on; see the three *_key functions. Bias and tanh GELU of the forward are epilogues; the
// activation's slope and the bias gradients of the backward are passes of our own, which beat
// cuBLASLt's epilogues for them, or our own epilogue (dgelu_gemm.cu).
// SPDX-License-Identifier: MIT
#include <vector>

#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/dgelu_gemm.h"
#include "trainer/ops/cuda/gemm.h"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/product.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

GemmKey forward_key(const LinearForward& a, Epilogue epilogue) {
  const int64_t out = a.weight.rows(), in = a.weight.columns();
  return {.m = out,
          .n = a.x.rows(),
          .k = in,
          .lda = in,
          .ldb = in,
          .ldd = out,
          .transpose_a = true,
          .add_c = bool(a.addend),
          .a = a.x.dtype,
          .b = a.x.dtype,
          .d = a.y.dtype,
          .epilogue = epilogue};
}
GemmKey backward_input_key(const LinearBackwardInput& a) {
  const int64_t out = a.weight.rows(), in = a.weight.columns();
  return {.m = in,
          .n = a.dy.rows(),
          .k = out,
          .lda = in,
          .ldb = out,
          .ldd = in,
          .add_c = bool(a.addend),
          .a = a.dy.dtype,
          .b = a.dy.dtype,
          .d = a.dx.dtype};
}
GemmKey backward_weight_key(const LinearBackwardWeight& a) {
  const int64_t out = a.dy.columns(), in = a.x.columns();
  return {.m = in,
          .n = out,
          .k = a.dy.rows(),
          .lda = in,
          .ldb = out,
          .ldd = in,
          .transpose_b = true,
          .add_c = a.accumulate,
          .a = a.dy.dtype,
          .b = a.dy.dtype,
          .d = a.dweight.dtype};
}

// GELU in the product where cuBLASLt has it for this GPU.
Epilogue forward_epilogue(const LinearForward& a, Gemm& gemm) {
  if (a.activation == Activation::gelu_tanh && a.bias && a.pre_activation &&
      a.weight.rows() % 8 == 0 && a.x.dtype != DType::f32 &&
      gemm.supports(forward_key(a, Epilogue::gelu_aux_bias)))
    return Epilogue::gelu_aux_bias;
  return a.bias ? Epilogue::bias : Epilogue::none;
}

}  // namespace

bool dgelu_gemm_takes(const LinearBackwardInput& a) noexcept {
  return a.activation == Activation::gelu_tanh && a.dx.dtype == DType::bf16 && !a.addend &&
         a.dbias && a.dy.columns() <= 2560 && a.dx.rows() >= kDgeluTileRows &&
         packable(a.dx.columns(), 2, data<char>(a.dx), data<char>(a.pre_activation),
                  data<char>(a.weight)) &&
         packable(a.dy.columns(), 2, data<char>(a.dy));
}

int64_t dgelu_gemm_partial_rows(int64_t rows) noexcept {
  return ceil_div(rows, kDgeluTileRows) * kDgeluTileWarps;
}
int64_t dgelu_gemm_scratch(int64_t rows, int64_t columns) noexcept {
  return dgelu_gemm_partial_rows(rows) * columns * 4;
}

int64_t scratch_bytes(CudaOps&, const LinearForward&) { return Gemm::kWorkspaceBytes; }

void launch(CudaOps& cuda, const LinearForward& args) {
  if (args.y.elements() == 0) return;
  char* workspace = cuda.scratch(scratch_bytes(cuda, args));
  const Epilogue epilogue = forward_epilogue(args, cuda.gemm());
  const bool activates = args.activation != Activation::none;
  const bool separate = activates && epilogue != Epilogue::gelu_aux_bias;
  const Tensor& sum = separate && args.pre_activation ? args.pre_activation : args.y;
  const GemmCall call{
      .a = args.weight.data,
      .b = args.x.data,
      .c = args.addend.data,
      .d = sum.data,
      .bias = args.bias.data,
      .aux = epilogue == Epilogue::gelu_aux_bias ? args.pre_activation.data : nullptr};
  cuda.gemm().run(forward_key(args, epilogue), call, workspace, cuda.stream(), !cuda.capturing());
  if (separate)
    cuda.run(ActivationForward{.y = args.y,
                               .x = sum.view({args.y.rows(), args.y.columns()}),
                               .activation = args.activation});
  else if (args.pre_activation && !activates)
    cuda.run(Copy{.dst = args.pre_activation, .src = args.y});
}

int64_t scratch_bytes(CudaOps& cuda, const LinearBackwardInput& args) {
  return cuda.fuses_dgelu() && dgelu_gemm_takes(args)
             ? dgelu_gemm_scratch(args.dx.rows(), args.dx.columns())
             : Gemm::kWorkspaceBytes + (args.dbias ? column_sum_scratch(args.dx.columns()) : 0);
}

void launch(CudaOps& cuda, const LinearBackwardInput& args) {
  if (args.dx.elements() == 0) return;
  if (cuda.fuses_dgelu() && dgelu_gemm_takes(args)) {
    const int64_t rows = args.dx.rows(), columns = args.dx.columns();
    auto* partial = reinterpret_cast<float*>(cuda.scratch(scratch_bytes(cuda, args)));
    dgelu_gemm(args, partial, cuda.stream());
    sum_partials({{sum_target(args.dbias)}, args.accumulate_bias}, partial,
                 dgelu_gemm_partial_rows(rows), columns, columns, cuda.stream());
    return;
  }
  char* workspace = cuda.scratch(scratch_bytes(cuda, args));
  const GemmCall call{
      .a = args.weight.data, .b = args.dy.data, .c = args.addend.data, .d = args.dx.data};
  cuda.gemm().run(backward_input_key(args), call, workspace, cuda.stream(), !cuda.capturing());
  char* sums = workspace + Gemm::kWorkspaceBytes;
  if (args.activation != Activation::none)
    activation_backward_sum(
        cuda,
        ActivationBackward{
            .dx = args.dx, .dy = args.dx, .x = args.pre_activation, .activation = args.activation},
        args.dbias, args.accumulate_bias, sums);
  else if (args.dbias)
    column_sum(cuda, args.dx, args.dbias, args.accumulate_bias, sums);
}

int64_t scratch_bytes(CudaOps&, const LinearBackwardWeight& args) {
  return Gemm::kWorkspaceBytes + (args.dbias ? column_sum_scratch(args.dy.columns()) : 0);
}

void launch(CudaOps& cuda, const LinearBackwardWeight& args) {
  if (args.dy.elements() == 0) return;
  char* workspace = cuda.scratch(scratch_bytes(cuda, args));
  if (args.dweight) {
    const GemmCall call{
        .a = args.x.data, .b = args.dy.data, .c = args.dweight.data, .d = args.dweight.data};
    cuda.gemm().run(backward_weight_key(args), call, workspace, cuda.stream(), !cuda.capturing());
  }
  if (args.dbias)
    column_sum(cuda, args.dy, args.dbias, args.accumulate, workspace + Gemm::kWorkspaceBytes);
}

void CudaOps::prepare(std::span<const AnyArgs> calls) {
  std::vector<GemmKey> keys;
  for (const AnyArgs& any : calls) {
    if (const auto* f = std::get_if<LinearForward>(&any))
      keys.push_back(forward_key(*f, forward_epilogue(*f, *gemm_)));
    else if (const auto* b = std::get_if<LinearBackwardInput>(&any);
             b != nullptr && !(fuses_dgelu_ && dgelu_gemm_takes(*b)))
      keys.push_back(backward_input_key(*b));
    else if (const auto* w = std::get_if<LinearBackwardWeight>(&any); w != nullptr && w->dweight)
      keys.push_back(backward_weight_key(*w));
    else if (const auto* p = std::get_if<Fp8Product>(&any))
      keys.push_back(fp8_product_key(*p));
    else if (const auto* p = std::get_if<MatrixProduct>(&any))
      keys.push_back(product_key(*p));
  }
  gemm_->tune(keys, stream_);
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::LinearForward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::LinearBackwardInput>;
template struct ops::Launch<ops::cuda::CudaOps, ops::LinearBackwardWeight>;
