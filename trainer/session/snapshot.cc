// See snapshot.h. The copies run during the next step, which does not change these tensors before
// its update; the update waits for the copies.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/snapshot.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "libindexed/format.h"
#include "libindexed/message.h"
#include "trainer/ops/number.h"

namespace trainer {
namespace {

using indexed::message;

constexpr const char* kFp8Group = "fp8";

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    default:
      return "";
  }
}

// Reads this rank's elements of one parameter into a device tensor of either dtype.
class TensorLoader {
 public:
  TensorLoader(ops::Ops& ops, Checkpoint& checkpoint) : ops_(ops), checkpoint_(checkpoint) {}

  // Loads elements `range` of the local parameter, which are all of `target`.
  void load(const TensorRecord& record, const LocalParam& param, const Range& range,
            const Tensor& target) {
    if (range.count == 0) return;
    if (record.shape != param.spec.shape) {
      throw indexed::FormatError(message(checkpoint_.path(), ": ", record.name, " is ",
                                         shape_text(record.shape), ", this model's is ",
                                         shape_text(param.spec.shape)));
    }
    const int64_t item = record.dtype == "F32" ? 4 : 2;
    raw_.resize(static_cast<size_t>(range.count * item));
    int64_t at = 0;
    for (const Piece& piece : local_pieces(param, range)) {
      checkpoint_.read(record, piece,
                       std::span(raw_).subspan(static_cast<size_t>(at * item),
                                               static_cast<size_t>(piece.count * item)));
      at += piece.count;
    }
    upload(record.dtype, target, range.count);
  }

 private:
  static std::string shape_text(const std::vector<int64_t>& shape) {
    std::string out = "(";
    for (const int64_t n : shape) out += message(out.size() > 1 ? ", " : "", n);
    return out + ")";
  }

  // Converts the stored elements to the target's dtype, through fp32 if they differ.
  void upload(const std::string& stored, const Tensor& target, int64_t count) {
    if (stored != safetensors_name(target.dtype)) {
      converted_.resize(static_cast<size_t>(target.bytes()));
      const Tensor to(converted_.data(), target.dtype, Device::cpu, {count});
      const Tensor from(raw_.data(),
                        stored == "BF16"  ? DType::bf16
                        : stored == "F16" ? DType::f16
                                          : DType::f32,
                        Device::cpu, {count});
      for (int64_t i = 0; i < count; ++i) ops::store(to, i, ops::load(from, i));
    }
    ops_.upload(target, stored == safetensors_name(target.dtype) ? raw_.data() : converted_.data());
    ops_.wait(ops_.mark());
  }

  ops::Ops& ops_;
  Checkpoint& checkpoint_;
  std::vector<std::byte> raw_;
  std::vector<std::byte> converted_;
};

/// The rows of a shared state: the newest entries that both have, then zeros.
std::vector<float> shared_rows(Checkpoint& checkpoint, const TensorRecord& record,
                               int64_t columns) {
  const int64_t rows = record.shape[0], held = record.shape[1];
  std::vector<float> from(static_cast<size_t>(rows * held)),
      to(static_cast<size_t>(rows * columns), 0.0f);
  checkpoint.read(record, Piece::whole(record.shape), std::as_writable_bytes(std::span(from)));
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(from.begin() + r * held, std::min(held, columns), to.begin() + r * columns);
  return to;
}

/// Loads FP8's scales, if the checkpoint has them for the same number of tensors; otherwise the
/// first step computes them.
void load_shared_state(Engine& engine, Checkpoint& checkpoint) {
  const std::vector<StateView> states = engine.shared_state();
  std::vector<const TensorRecord*> records;
  for (const StateView& state : states) {
    const TensorRecord* record = checkpoint.meta().find(kFp8Group, state.name);
    if (record == nullptr || record->dtype != "F32" || record->shape.size() != 2 ||
        record->shape[0] != state.tensor.shape[0])
      return;
    records.push_back(record);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor& t = states[i].tensor;
    const std::vector<float> rows = shared_rows(checkpoint, *records[i], t.shape[1]);
    engine.ops().upload(t, rows.data());
    engine.ops().synchronize();
  }
  if (!states.empty()) engine.shared_state_loaded();
}

const TensorRecord& needed(const Checkpoint& checkpoint, std::string_view group,
                           const std::string& name) {
  const TensorRecord* record = checkpoint.meta().find(group, name);
  if (!record) {
    throw indexed::FormatError(
        message(checkpoint.path(), ": ", group, " ", name, ": the checkpoint has no such tensor"));
  }
  return *record;
}

}  // namespace

Snapshot::Snapshot(Engine& engine, bool optimizer, bool ahead)
    : engine_(engine),
      optimizer_(optimizer),
      block_(std::async(
          ahead && engine.ops().device() == Device::cuda ? std::launch::async
                                                         : std::launch::deferred,
          [&ops = engine.ops(), bytes = needed_bytes()] { return ops.allocate_host(bytes); })) {}

Snapshot::~Snapshot() {
  // Deferred: no save has used it.
  if (block_.wait_for(std::chrono::seconds(0)) == std::future_status::deferred) return;
  try {
    engine_.ops().release_host(block_.get());
  } catch (...) {  // there was not enough memory: a save has reported it, or none was started
  }
}

int64_t Snapshot::needed_bytes() const {
  int64_t out = 0;
  for (const ParamView& view : engine_.parameters()) {
    int64_t item = size_bytes(view.model.dtype);
    if (optimizer_) {
      item += 4;
      for (const StateView& state : view.states) item += size_bytes(state.tensor.dtype);
    }
    out += view.saved.count * item + 4 * ops::kAlignment;
  }
  for (const StateView& state : engine_.shared_state())
    out += state.tensor.bytes() + ops::kAlignment;
  return out;
}

void Snapshot::take() {
  used_bytes_ = 0;
  shards_.clear();
  copies_.clear();
  for (const ParamView& view : engine_.parameters()) {
    if (view.saved.count == 0) continue;
    const bool whole = view.model.elements() == view.param->elements();
    add("model", view, view.model, whole ? 0 : view.kept.first);
    if (!optimizer_) continue;
    if (view.main.dtype != view.model.dtype) add("main", view, view.main, view.kept.first);
    for (const StateView& state : view.states) add(state.name, view, state.tensor, view.kept.first);
  }
  if (optimizer_ && engine_.topology().rank() == 0)
    for (const StateView& state : engine_.shared_state()) add_shared(state);
  done_ = engine_.ops().download_beside(copies_);
  engine_.before_next_update(done_);
}

// `begin`: the element of the parameter with which `tensor` begins.
void Snapshot::add(const std::string& group, const ParamView& view, const Tensor& tensor,
                   int64_t begin) {
  std::byte* host = static_cast<std::byte*>(block_.get()) + used_bytes_;
  const Tensor part = tensor.flat().slice(view.saved.first - begin, view.saved.count);
  copies_.push_back({host, part});
  used_bytes_ += ops::align_up(part.bytes());
  const int64_t item = size_bytes(tensor.dtype);
  for (Piece& piece : local_pieces(*view.param, view.saved)) {
    const size_t bytes = static_cast<size_t>(piece.count * item);
    const ParamSpec& spec = view.param->spec;
    shards_.push_back({group, spec.name, safetensors_name(tensor.dtype), spec.shape,
                       std::move(piece), std::span<const std::byte>(host, bytes)});
    host += bytes;
  }
}

void Snapshot::add_shared(const StateView& state) {
  std::byte* host = static_cast<std::byte*>(block_.get()) + used_bytes_;
  const Tensor& t = state.tensor;
  copies_.push_back({host, t});
  used_bytes_ += ops::align_up(t.bytes());
  const std::vector<int64_t> shape(t.shape, t.shape + t.rank);
  shards_.push_back({kFp8Group, state.name, safetensors_name(t.dtype), shape, Piece::whole(shape),
                     std::span<const std::byte>(host, static_cast<size_t>(t.bytes()))});
}

void Snapshot::wait() const {
  if (done_.wait_on_host) done_.wait_on_host(done_);
}

std::vector<Piece> local_pieces(const LocalParam& param, const Range& range) {
  const ParamSpec& spec = param.spec;
  const int parts = param.shape == spec.shape ? 1 : spec.split_parts;
  std::vector<Piece> pieces;
  for (int part = 0; part < parts; ++part) {
    Piece piece = Piece::whole(spec.shape);
    if (param.shape != spec.shape) {
      const size_t split = static_cast<size_t>(spec.split);
      std::vector<int64_t> offsets(spec.shape.size(), 0), shape = param.shape;
      shape[split] /= parts;
      offsets[split] = part * (spec.shape[split] / parts) + param.first;
      piece = Piece::box(std::move(offsets), std::move(shape));
    }
    // The parts are consecutive; `range` counts through all of them.
    const int64_t begin = part * piece.count;
    const int64_t first = std::max(range.first, begin);
    const int64_t end = std::min(range.first + range.count, begin + piece.count);
    if (first >= end) continue;
    piece.first = first - begin;
    piece.count = end - first;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void load_tensors(Engine& engine, Checkpoint& checkpoint, bool optimizer) {
  TensorLoader loader(engine.ops(), checkpoint);
  for (const ParamView& view : engine.parameters()) {
    const std::string& name = view.param->spec.name;
    const TensorRecord* main = checkpoint.meta().find("main", name);
    const auto load = [&](const TensorRecord& record, const Tensor& target) {
      loader.load(record, *view.param, view.kept, target);
    };
    load(main ? *main : needed(checkpoint, "model", name), view.main);
    if (!optimizer) continue;
    for (const StateView& state : view.states)
      load(needed(checkpoint, state.name, name), state.tensor);
  }
  if (optimizer) load_shared_state(engine, checkpoint);
  engine.refresh_model_parameters();
}

void load_weight(ops::Ops& ops, Checkpoint& checkpoint, const LocalParam& param,
                 const Tensor& target) {
  const TensorRecord& model = needed(checkpoint, "model", param.spec.name);
  const TensorRecord* main = checkpoint.meta().find("main", param.spec.name);
  const bool exact = model.dtype == safetensors_name(target.dtype) || !main;
  TensorLoader(ops, checkpoint).load(exact ? model : *main, param, {0, param.elements()}, target);
}

void store_state(const ops::StepState& from, RunState& to) noexcept {
  to.loss_scale = static_cast<double>(from.loss_scale);
  to.growth_tracker = from.growth_tracker;
  to.hysteresis_tracker = from.hysteresis_tracker;
  to.adam_steps = from.updates;
  to.skipped_steps = from.skipped_steps;
}

ops::StepState restore_state(const RunState& from) noexcept {
  ops::StepState to;
  to.iteration = from.iteration;
  to.loss_scale = static_cast<float>(from.loss_scale);
  to.growth_tracker = static_cast<int32_t>(from.growth_tracker);
  to.hysteresis_tracker = static_cast<int32_t>(from.hysteresis_tracker);
  to.updates = from.adam_steps;
  to.skipped_steps = from.skipped_steps;
  return to;
}

}  // namespace trainer
