// Step: its memory, and what it queues.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/step.h"

#include <optional>
#include <utility>

#include "trainer/engine/host_array.h"
#include "trainer/spec/rotary.h"

namespace trainer {
namespace {

/// The kinds of passes that Weights tells apart: steps by their number of micro-batches, and
/// evaluations.
constexpr int64_t kEvaluation = 0;

Tensor cut_state(ops::Arena& device) {
  return device.cut("state", DType::u8, {sizeof(ops::StepState)});
}

GradsOptions grads_options(const Setup& setup, const Groups& groups) {
  const EngineOptions& o = setup.options;
  return {.in_shares = setup.in_shares(),
          .overlap = o.overlap_grad_reduce,
          .hold_embedding = setup.spec.tied_embeddings && groups.embedding->size() > 1,
          .grad_dtype = o.grad_dtype,
          .model_dtype = o.model_dtype,
          .reduce_dtype = o.grad_reduce_in_bf16 ? DType::bf16 : o.grad_dtype};
}

}  // namespace

Step::Step(const Setup& setup, Groups groups, ops::Ops& ops, StepMemory memory)
    : setup_(setup),
      ops_(ops),
      memory_(std::move(memory)),
      groups_(std::move(groups)),
      parameters_(setup_, memory_.device, memory_.host),
      state_(cut_state(memory_.device)),
      eval_state_(cut_state(memory_.device)),
      sums_(memory_.device.cut("state", DType::f32, {2})),
      exchange_(setup_, memory_.device),
      batch_(setup_, memory_.device),
      fp8_(setup_.options.fp8, setup_.spec),
      weights_(parameters_.layout(), parameters_.flats().model, ops, *groups_.data,
               setup_.in_shares()),
      pool_(cut_rest()),
      grads_(parameters_.layout(), parameters_.flats().grad, ops, *groups_.data, pool_,
             grads_options(setup_, groups_)),
      counted_(counted_parts(parameters_.layout(), parameters_.flats().grad, setup_.topology)),
      run_(make_run()) {
  for (const Place& place : setup_.places)
    stages_.emplace_back(setup_.options.recompute, place, setup_.options.max_microbatches);
  // Without the workspace, whose size follows from the algorithms that each rank chose.
  if (setup_.options.shares_memory()) groups_.data->share_memory(memory_.device.used());
  if (memory_.workspace_bytes > 0)
    ops.set_workspace(memory_.device.cut("workspace", DType::u8, {memory_.workspace_bytes}));
}

Step::~Step() {
  wait_at_end(ops_);
  ops_.set_workspace({});
}

/// Allocates the rest up to the workspace; returns the pool's block, which is empty while planning.
Tensor Step::cut_rest() {
  ops::Arena& device = memory_.device;
  cut_fp8();
  const ModelSpec& spec = setup_.spec;
  if (const int64_t half = spec.rotary_dim() / 2; half > 0) {
    cosine_ = device.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
    sine_ = device.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
  }
  weights_.cut_buffers(device);
  if (memory_.pool_bytes == 0) return {};
  return device.cut("activations and gradients in flight", DType::u8, {memory_.pool_bytes});
}

void Step::cut_fp8() {
  if (!setup_.options.fp8.on()) return;
  ops::Arena& device = memory_.device;
  if (!setup_.options.fp8.in_blocks()) {
    const int64_t n = fp8_.tensors(), length = fp8_.history_length();
    const Tensor scale = device.cut("fp8 scales", DType::f32, {n, ops::kScaleSize});
    const Tensor amax = device.cut("fp8 scales", DType::f32, {n});
    fp8_.place(scale, amax,
               length > 0 ? device.cut("fp8 scales", DType::f32, {n, length}) : Tensor());
  }
  if (setup_.fp8_param_gather()) cut_fp8_parts();
  const auto [bytes, scales] = fp8_.list_weights(
      local_params(setup_.spec, setup_.places),
      [&](int64_t) { return !setup_.in_shares() || setup_.options.zero_stage < 3; });
  if (bytes == 0) return;
  const Tensor memory = device.cut("fp8 weights", DType::e4m3, {bytes});
  fp8_.place_weights(
      memory, scales > 0 ? device.cut("fp8 weights' scales", DType::f32, {scales}) : Tensor());
}

/// Weights that are gathered as FP8: fp8_ rounds this rank's parts, weights_ gathers them.
void Step::cut_fp8_parts() {
  std::vector<Fp8Parts::Part> parts;
  for (const Slot& slot : parameters_.layout().slots()) {
    const std::optional<Linear> linear =
        fp8_linear(setup_.options.fp8, setup_.spec.num_layers, slot.param.spec);
    if (!linear) continue;
    parts.push_back({.param = &slot.param,
                     .linear = *linear,
                     .first = parameters_.layout().in_share(slot, setup_.share).first,
                     .x = parameters_.flats().model.range(slot)});
  }
  const int64_t numbers = fp8_.list_parts(std::move(parts));
  fp8_.place_parts(numbers > 0 ? memory_.device.cut("fp8 weights' scales", DType::f32, {numbers})
                               : Tensor());
  weights_.gather_as_fp8(parameters_.fp8(),
                         [this](const LocalParam& param, const Tensor& x, const Tensor& bytes) {
                           fp8_.round(ops_, param, x, bytes);
                         });
}

void Step::gather_weights() {
  fp8_.scale_weights(ops_, *groups_.data);
  weights_.gather_whole_now();
}

Run Step::make_run() {
  const EngineOptions& o = setup_.options;
  return {.spec = setup_.spec,
          .ops = ops_,
          .pool = pool_,
          .weights = weights_,
          .grads = grads_,
          .tp = *groups_.tensor,
          .fp8 = o.fp8.on() ? &fp8_ : nullptr,
          .fuse_norms = o.fp8.fuse_norms.value_or(ops_.quantizes_norms()),
          .cosine = cosine_,
          .sine = sine_,
          .model_dtype = o.model_dtype,
          .seq_length = o.seq_length,
          .micro_batch_size = o.micro_batch_size,
          .head_rows = setup_.head_rows(),
          .recompute = o.recompute,
          .seed = o.seed,
          .fuse_residual = o.fuse_residual,
          .per_token_loss = o.per_token_loss,
          .sequence_parallel = setup_.sequence_parallel()};
}

void Step::clear() {
  parameters_.clear(ops_);
  if (run_.fp8 != nullptr) fp8_.reset(ops_);
  weights_.clear_buffers();
  if (!cosine_) return;
  const RotaryTables tables = rotary_tables(setup_.spec, cosine_.shape[0]);
  upload_now(ops_, cosine_, tables.cosine.data());
  upload_now(ops_, sine_, tables.sine.data());
}

void Step::initialise() {
  parameters_.draw(ops_);
  if (run_.fp8 != nullptr) fp8_.reset(ops_);
  refresh_model_parameters();
}

void Step::refresh_model_parameters() {
  parameters_.copy_to_model(ops_);
  fp8_.scale_weights(ops_, *groups_.data, true);
  weights_.gather_whole_now();
}

PoolTensor Step::take_stream() {
  return pool_.take("between stages", run_.model_dtype,
                    {run_.stream_length(), run_.micro_batch_size, setup_.spec.hidden_size});
}

void Step::run_schedule(ScheduleKind kind, int stage, int64_t num_microbatches,
                        const ComputeAction& compute) {
  Pipeline(
      ops_, *groups_.pipeline, [this] { return take_stream(); }, compute)
      .run(make_schedule(kind, stage, setup_.topology.pipeline_size, num_microbatches,
                         static_cast<int>(stages_.size())));
}

PoolTensor Step::compute(const Action& a, PoolTensor input, int64_t num_microbatches,
                         bool training) {
  const Pass pass{.run = run_,
                  .batch = batch_.micro_batch(a.microbatch),
                  .state = training ? state_ : eval_state_,
                  .num_microbatches = num_microbatches,
                  .training = training};
  Stage& stage = stages_[static_cast<size_t>(a.chunk)];
  if (!training) return stage.evaluate(pass, std::move(input));
  if (a.kind == Action::Kind::forward) return stage.forward(pass, std::move(input));
  if (a.kind == Action::Kind::backward) return stage.backward(pass, std::move(input));
  if (a.kind == Action::Kind::backward_input) return stage.backward_input(pass, std::move(input));
  stage.backward_weight(pass);
  return {};
}

void Step::begin_gradients(int64_t num_microbatches) {
  if (setup_.options.overlap_param_gather) {
    fp8_.scale_weights(ops_, *groups_.data);
    weights_.gather_whole();
  }
  weights_.begin_pass(num_microbatches);
  grads_.begin_step(num_microbatches);
  fp8_.begin_pass(true);
}

void Step::finish_gradients() {
  sum_tied_gradients();
  grads_.finish();
  sum_gradients_of_rows();
  weights_.end_pass();
  judge(ops_, groups_, counted_, setup_.optimizer(), state_, sums_);
  if (!pool_.empty()) throw DeviceError("engine: a step ended with memory still out");
}

void Step::make_gradients(int64_t num_microbatches) {
  begin_gradients(num_microbatches);
  run_schedule(setup_.options.schedule, setup_.topology.pipeline_rank, num_microbatches,
               [&](const Action& action, PoolTensor input) {
                 return compute(action, std::move(input), num_microbatches);
               });
  finish_gradients();
}

void Step::apply_gradients() {
  update({.ops = ops_,
          .pool = pool_,
          .tensor = *groups_.tensor,
          .layout = parameters_.layout(),
          .share = setup_.share,
          .flats = parameters_.flats(),
          .options = setup_.optimizer(),
          .state = state_});
  if (run_.fp8 != nullptr) fp8_.update(ops_, *groups_.world);
  if (!setup_.options.overlap_param_gather) gather_weights();
}

void Step::evaluate(int64_t num_microbatches) {
  weights_.begin_pass(kEvaluation);
  fp8_.begin_pass(false);
  run_schedule(ScheduleKind::forward_only, setup_.topology.pipeline_rank, num_microbatches,
               [&](const Action& action, PoolTensor input) {
                 return compute(action, std::move(input), num_microbatches, false);
               });
  weights_.end_pass();
  share_loss(ops_, groups_, eval_state_, sums_);
}

/// Tied embeddings get gradients from the lookup on the first stage and from the head on the last.
/// The two stages' buckets have different other contents, so the gradients are summed before they
/// are divided into shares.
void Step::sum_tied_gradients() {
  if (!setup_.spec.tied_embeddings || groups_.embedding->size() == 1) return;
  if (const Tensor words = grads_.whole(-1, Role::word_embeddings))
    await_collectives(ops_, *groups_.embedding,
                      [&] { groups_.embedding->all_reduce(words, comm::Reduce::sum); });
}

/// With sequence parallelism, norms and row-parallel biases get gradients only from each
/// tensor-parallel rank's own rows, and norms of heads only from its own heads. All those ranks
/// keep the same part of these parameters.
void Step::sum_gradients_of_rows() {
  std::vector<Tensor> rows;
  for (const ParamView& view : parameters_.views()) {
    const ParamSpec& param = view.param->spec;
    if (param.split >= 0 || param.role == Role::position_embeddings || !view.grad) continue;
    if (run_.sequence_parallel || param.of_heads) rows.push_back(view.grad);
  }
  if (rows.empty()) return;
  comm::Comm& tensor = *groups_.tensor;
  await_collectives(ops_, tensor, [&] {
    tensor.group_begin();
    for (const Tensor& kept : rows) tensor.all_reduce(kept, comm::Reduce::sum);
    tensor.group_end();
  });
}

}  // namespace trainer
