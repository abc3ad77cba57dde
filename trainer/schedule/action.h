// Action: a pipeline schedule as data. make_schedule writes the list, the engine executes it, tests
// simulate it. Not here: what forward and backward are (model/stage.h). May include: the C++
// library. A micro-batch is counted from 0 within the step, a chunk from 0 on its rank. Chunk c of
// stage s is part c * stages + s of the model.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

/// One step of a rank's schedule.
struct Action {
  enum class Kind : uint8_t {
    receive_forward,
    forward,
    send_forward,
    receive_backward,
    backward,
    send_backward,
    backward_input,   ///< backward without the linears' weights,
    backward_weight,  ///< and only those.
  };
  Kind kind{};
  int64_t microbatch = 0;
  int chunk = 0;
  int peer = -1;        ///< The stage at the other end of a send or receive.
  bool joined = false;  ///< Part of one exchange with the action before it: neither may wait for
                        ///< the other.

  bool sends() const noexcept { return kind == Kind::send_forward || kind == Kind::send_backward; }
  bool receives() const noexcept {
    return kind == Kind::receive_forward || kind == Kind::receive_backward;
  }
};

/// sequential: forward, backward for each micro-batch (one stage).
/// one_f_one_b: Narayanan et al. 2019, PipeDream-Flush.
/// interleaved: Narayanan et al. 2021, several chunks per rank; if the stages do not divide the
/// number of micro-batches, the last round is smaller. zero_bubble: ZB-H1 of Qi et al. 2023,
/// one_f_one_b's memory and a third of its bubble. forward_only: for evaluation, any number of
/// chunks.
enum class ScheduleKind : uint8_t {
  sequential,
  one_f_one_b,
  interleaved,
  zero_bubble,
  forward_only
};

/// The actions of rank `stage` of `stages` in one step. With one stage there are no sends and
/// receives. The lists of all stages are parts of one order in time, so there is no deadlock even
/// if a send blocks until it is received. Errors: std::invalid_argument if the kind does not fit
/// stages or chunks.
std::vector<Action> make_schedule(ScheduleKind kind, int stage, int stages,
                                  int64_t num_microbatches, int chunks = 1);

/// How long a step takes if a forward of one chunk takes 1, a backward 2, each half of it 1, and
/// nothing else takes time; and how much of that a rank computes.
struct StepTime {
  int64_t whole = 0, busy = 0;
};
/// Errors: as make_schedule.
StepTime step_time(ScheduleKind kind, int stages, int64_t num_microbatches, int chunks = 1);

/// An action that computes, and when: units of step_time, from the step's begin.
struct TimedAction {
  Action action;
  int64_t begin = 0, end = 0;
};
/// What each rank computes in a step under step_time's assumptions, in order of time.
/// Errors: as make_schedule.
std::vector<std::vector<TimedAction>> timed_schedule(ScheduleKind kind, int stages,
                                                     int64_t num_microbatches, int chunks = 1);

/// "F0 F1 B0 r2+s1 F2 s2 ...": one word per action, "+" between those of one exchange; with several
/// chunks "F0.1" is chunk 1.
std::string describe(const std::vector<Action>& actions);

/// The most micro-batches (of one chunk each) in flight: forward done, backward not.
int64_t most_in_flight(const std::vector<Action>& actions);

}  // namespace trainer
