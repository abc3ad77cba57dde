// Engine::Parts: a schedule's actions one after another, with the tensors that travel between
// stages. A send's memory is kept until a later exchange is due, so that compute need not wait for
// the receiver; a receive is queued when its message is born, and waited for when it is used.
//
// SPDX-License-Identifier: MIT
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "trainer/engine/parts.h"

namespace trainer {
namespace {

using Kind = Action::Kind;

/// Exchanges whose sends may still be under way before compute waits for the oldest.
constexpr size_t kExchangesUnderWay = 2;

}  // namespace

class Engine::Parts::Walk {
 public:
  explicit Walk(Parts& parts) : p_(parts) {}

  void all(const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size();) {
      size_t end = i + 1;
      if (!actions[i].sends() && !actions[i].receives()) {
        compute(actions[i]);
      } else {
        while (end < actions.size() && actions[end].joined) ++end;
        exchange(std::span(actions).subspan(i, end - i));
      }
      i = end;
    }
    while (!leaving_.empty()) finish_oldest();
  }

 private:
  /// Direction, chunk, micro-batch.
  using Key = std::tuple<bool, int, int64_t>;
  /// Of a send or a receive.
  static Key key_of(const Action& a) {
    return {a.kind == Kind::send_backward || a.kind == Kind::receive_backward, a.chunk,
            a.microbatch};
  }
  struct Arriving {
    PoolTensor tensor;
    ops::Mark mark;
  };
  struct Leaving {
    std::vector<PoolTensor> tensors;
    ops::Mark mark;
  };

  PoolTensor arrived(bool backward, const Action& a) {
    const auto at = arriving_.find({backward, a.chunk, a.microbatch});
    if (at == arriving_.end()) return {};
    p_.ops.follow(at->second.mark);
    PoolTensor tensor = std::move(at->second.tensor);
    arriving_.erase(at);
    return tensor;
  }

  /// What compute() queues, out of the tape.
  void repeat(const Action& a) {
    const Topology& t = p_.groups.topology;
    const bool forward = a.kind == Kind::forward, weights = a.kind == Kind::backward_weight;
    if (!weights) arrived(!forward, a);
    p_.tape->repeat(a);
    const int last = static_cast<int>(p_.stages.size()) - 1;
    const bool at_end =
        forward ? t.last_stage() && a.chunk == last : t.first_stage() && a.chunk == 0;
    if (!weights && !at_end && t.pipeline_size > 1)
      ready_[{!forward, a.chunk, a.microbatch}] = p_.take_stream();
  }

  void compute(const Action& a) {
    if (p_.tape != nullptr && p_.tape->repeats()) return repeat(a);
    if (p_.tape != nullptr) p_.tape->begin();
    compute_now(a);
    if (p_.tape != nullptr) p_.tape->end(a);
  }

  void compute_now(const Action& a) {
    const MicroBatch batch = p_.micro_batch(a.microbatch);
    Stage& stage = p_.stages[static_cast<size_t>(a.chunk)];
    const bool forward = a.kind == Kind::forward;
    PoolTensor out;
    if (forward && p_.run.training) {
      out = stage.forward(batch, arrived(false, a));
    } else if (forward) {
      out = stage.evaluate(batch, arrived(false, a));
    } else if (a.kind == Kind::backward) {
      out = stage.backward(batch, arrived(true, a));
    } else if (a.kind == Kind::backward_input) {
      out = stage.backward_input(batch, arrived(true, a));
    } else {
      stage.backward_weight(batch);
    }
    if (out) ready_[{!forward, a.chunk, a.microbatch}] = std::move(out);
  }

  void exchange(std::span<const Action> actions) {
    if (leaving_.size() == kExchangesUnderWay) finish_oldest();
    comm::Comm& comm = *p_.groups.pipeline;
    std::vector<PoolTensor> tensors;
    for (const Action& a : actions)
      tensors.push_back(a.sends() ? std::move(ready_.extract(key_of(a)).mapped())
                                  : p_.take_stream());
    comm.follow(p_.ops.mark());
    if (actions.size() > 1) comm.group_begin();
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].sends()) {
        comm.send(tensors[i], actions[i].peer);
      } else {
        comm.receive(tensors[i], actions[i].peer);
      }
    }
    if (actions.size() > 1) comm.group_end();
    Leaving leaving{.tensors = {}, .mark = comm.mark()};
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].sends())
        leaving.tensors.push_back(std::move(tensors[i]));
      else
        arriving_[key_of(actions[i])] = {std::move(tensors[i]), leaving.mark};
    }
    leaving_.push_back(std::move(leaving));
  }

  void finish_oldest() {
    p_.ops.follow(leaving_.front().mark);
    leaving_.pop_front();
  }

  Parts& p_;
  std::map<Key, PoolTensor> ready_;
  std::map<Key, Arriving> arriving_;
  std::deque<Leaving> leaving_;
};

PoolTensor Engine::Parts::take_stream() {
  return pool.take("between stages", options.model_dtype,
                   {run.stream_length(), options.micro_batch_size, spec.hidden_size});
}

void Engine::Parts::walk(ScheduleKind kind, int64_t num_microbatches) {
  const int chunks = static_cast<int>(stages.size());
  if (tape != nullptr) tape->walk_begin = tape->position();
  Walk(*this).all(make_schedule(kind, groups.topology.pipeline_rank, groups.topology.pipeline_size,
                                num_microbatches, chunks));
  if (tape != nullptr) tape->walk_end = tape->position();
}

namespace {

void sum_over(ops::Ops& ops, comm::Comm& comm, const std::vector<Tensor>& tensors) {
  if (tensors.empty() || comm.size() == 1) return;
  comm.follow(ops.mark());
  comm.group_begin();
  for (const Tensor& tensor : tensors) comm.all_reduce(tensor, comm::Reduce::sum);
  comm.group_end();
  ops.follow(comm.mark());
}

}  // namespace

/// Tied embeddings have gradients from the lookup on the first stage and from the head on the last.
/// Their layouts differ in what else the bucket holds, so they meet before they are divided.
void Engine::Parts::sum_tied_gradients() {
  if (!spec.tied_embeddings || groups.embedding->size() == 1) return;
  if (const Tensor words = grads.whole(-1, Role::word_embeddings))
    sum_over(ops, *groups.embedding, {words});
}

/// With sequence parallelism norms and row-parallel biases have gradients from each tensor-parallel
/// rank's rows alone, and norms of heads have them from its heads. What is kept of them is the same
/// on all these ranks.
void Engine::Parts::sum_gradients_of_rows() {
  std::vector<Tensor> rows;
  for (const Slot& slot : layout.slots()) {
    const ParamSpec& param = slot.param.spec;
    if (param.split >= 0 || param.role == Role::position_embeddings) continue;
    if (!run.sequence_parallel && !param.of_heads) continue;
    const Tensor kept = in_shares() ? flats.grad.range(slot) : flats.grad.whole(slot);
    if (kept) rows.push_back(kept);
  }
  sum_over(ops, *groups.tensor, rows);
}

}  // namespace trainer
