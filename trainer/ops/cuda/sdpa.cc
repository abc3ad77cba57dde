// cuDNN graphs for attention; see sdpa.h. The only file that includes cudnn_frontend.h, which takes
// most of a minute to compile. A graph is validated, planned and kept under its shape; execute()
// only fills in pointers. Source: the front end's own documentation of sdpa and sdpa_backward.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/sdpa.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "trainer/ops/cuda/cuda_check.h"

namespace ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using Shared = std::shared_ptr<Attributes>;

enum Uid : int64_t { kQ = 1, kK, kV, kOut, kStats, kDout, kDq, kDk, kDv, kSeed, kOffset, kBias };

void check_fe(fe::error_t status, const char* call, int line) {
  if (status.is_bad()) throw_device_error(call, __FILE__, line, status.get_message());
}
#define FE_CHECK(call) check_fe((call), #call, __LINE__)

fe::DataType_t io_type(DType dtype) {
  return dtype == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

struct Cut {
  std::vector<int64_t> dim, stride;
};
Cut cut_of(int64_t heads, const SdpaShape& s, const int64_t (&stride)[3]) {
  return {{s.batch, heads, s.length, s.channels}, {stride[0], stride[1], stride[2], 1}};
}
Cut cut_of_stats(const SdpaShape& s) {
  return {{s.batch, s.heads, s.length, 1}, {s.heads * s.length, s.length, 1, 1}};
}

Shared tensor(fe::graph::Graph& g, const char* name, Uid uid, const Cut& cut, fe::DataType_t type) {
  return g.tensor(Attributes()
                      .set_name(name)
                      .set_uid(uid)
                      .set_dim(cut.dim)
                      .set_stride(cut.stride)
                      .set_data_type(type));
}
Shared scalar(fe::graph::Graph& g, const char* name, Uid uid) {
  return tensor(g, name, uid, {{1, 1, 1, 1}, {1, 1, 1, 1}}, fe::DataType_t::INT64);
}
Shared bias_tensor(fe::graph::Graph& g, const SdpaShape& s) {
  const int64_t pitch = sdpa_pitch(s.length), sample = s.length * pitch;
  return tensor(g, "bias", kBias, {{s.batch, 1, s.length, s.length}, {sample, sample, pitch, 1}},
                io_type(s.dtype));
}
void output(const Shared& t, Uid uid, const Cut& cut, fe::DataType_t type) {
  t->set_output(true).set_uid(uid).set_dim(cut.dim).set_stride(cut.stride).set_data_type(type);
}

void build_forward(fe::graph::Graph& g, const SdpaShape& s) {
  const fe::DataType_t io = io_type(s.dtype);
  const Shared q = tensor(g, "q", kQ, cut_of(s.heads, s, s.q_stride), io);
  const Shared k = tensor(g, "k", kK, cut_of(s.groups, s, s.kv_stride), io);
  const Shared v = tensor(g, "v", kV, cut_of(s.groups, s, s.kv_stride), io);
  auto options = fe::graph::SDPA_attributes().set_name("attention").set_attn_scale(s.scale);
  options.set_generate_stats(s.with_stats);
  if (s.causal) options.set_causal_mask(true);
  if (s.bias) options.set_bias(bias_tensor(g, s));
  if (s.dropout > 0)
    options.set_dropout(s.dropout, scalar(g, "seed", kSeed), scalar(g, "offset", kOffset));
  auto [out, stats] = g.sdpa(q, k, v, options);
  output(out, kOut, cut_of(s.heads, s, s.out_stride), io);
  if (s.with_stats) output(stats, kStats, cut_of_stats(s), fe::DataType_t::FLOAT);
}

void build_backward(fe::graph::Graph& g, const SdpaShape& s) {
  const fe::DataType_t io = io_type(s.dtype);
  const Cut q_cut = cut_of(s.heads, s, s.q_stride), kv_cut = cut_of(s.groups, s, s.kv_stride);
  const Cut out_cut = cut_of(s.heads, s, s.out_stride);
  const Shared q = tensor(g, "q", kQ, q_cut, io);
  const Shared k = tensor(g, "k", kK, kv_cut, io);
  const Shared v = tensor(g, "v", kV, kv_cut, io);
  const Shared out = tensor(g, "out", kOut, out_cut, io);
  const Shared dout = tensor(g, "dout", kDout, out_cut, io);
  const Shared stats = tensor(g, "stats", kStats, cut_of_stats(s), fe::DataType_t::FLOAT);
  auto options =
      fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_attn_scale(s.scale);
  options.set_deterministic_algorithm(true);
  if (s.causal) options.set_causal_mask(true);
  if (s.bias) options.set_bias(bias_tensor(g, s));
  if (s.dropout > 0)
    options.set_dropout(s.dropout, scalar(g, "seed", kSeed), scalar(g, "offset", kOffset));
  auto [dq, dk, dv] = g.sdpa_backward(q, k, v, out, dout, stats, options);
  output(dq, kDq, q_cut, io);
  output(dk, kDk, kv_cut, io);
  output(dv, kDv, kv_cut, io);
}

}  // namespace

struct Sdpa::Plan {
  fe::graph::Graph graph;
  bool built = false;
  std::string why;
  int64_t workspace_bytes = 0;
};

struct Sdpa::Impl {
  cudnnHandle_t handle = nullptr;
  std::map<SdpaShape, std::unique_ptr<Plan>> plans;
};

Sdpa::Sdpa() : impl_(std::make_unique<Impl>()) {
  const cudnnStatus_t status = cudnnCreate(&impl_->handle);
  if (status != CUDNN_STATUS_SUCCESS)
    throw_device_error("cudnnCreate", __FILE__, __LINE__, cudnnGetErrorString(status));
}

Sdpa::~Sdpa() {
  impl_->plans.clear();
  cudnnDestroy(impl_->handle);
}

Sdpa::Plan& Sdpa::plan(const SdpaShape& shape) {
  std::unique_ptr<Plan>& slot = impl_->plans[shape];
  if (slot) return *slot;
  slot = std::make_unique<Plan>();
  slot->graph.set_io_data_type(io_type(shape.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (shape.backward)
    build_backward(slot->graph, shape);
  else
    build_forward(slot->graph, shape);
  fe::error_t status = slot->graph.build(impl_->handle, {fe::HeurMode_t::A});
  slot->built = status.is_good();
  slot->why = status.get_message();
  std::ranges::replace(slot->why, '\n', ' ');
  if (slot->built) FE_CHECK(slot->graph.get_workspace_size(slot->workspace_bytes));
  return *slot;
}

bool Sdpa::supports(const SdpaShape& shape) { return plan(shape).built; }

const std::string& Sdpa::why_not(const SdpaShape& shape) { return plan(shape).why; }

int64_t Sdpa::workspace_bytes(const SdpaShape& shape) { return plan(shape).workspace_bytes; }

void Sdpa::run(const SdpaShape& shape, const SdpaCall& call, void* workspace, cudaStream_t stream) {
  Plan& p = plan(shape);
  if (!p.built) throw_device_error("cudnn attention", __FILE__, __LINE__, p.why);
  const cudnnStatus_t status = cudnnSetStream(impl_->handle, stream);
  if (status != CUDNN_STATUS_SUCCESS)
    throw_device_error("cudnnSetStream", __FILE__, __LINE__, cudnnGetErrorString(status));
  std::unordered_map<int64_t, void*> memory{
      {kQ, call.q}, {kK, call.k}, {kV, call.v}, {kOut, call.out}};
  if (shape.backward || shape.with_stats) memory[kStats] = call.stats;
  if (shape.backward) {
    memory[kDout] = call.dout;
    memory[kDq] = call.dq;
    memory[kDk] = call.dk;
    memory[kDv] = call.dv;
  }
  if (shape.dropout > 0) {
    memory[kSeed] = call.seed;
    memory[kOffset] = call.offset;
  }
  if (shape.bias) memory[kBias] = call.bias;
  FE_CHECK(p.graph.execute(impl_->handle, memory, workspace));
}

}  // namespace ops::cuda
