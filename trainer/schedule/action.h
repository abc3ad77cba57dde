// Action: a pipeline schedule as data. make_schedule writes the list, run_step (engine.h) walks it,
// tests simulate it. Not here: what forward and backward are (model/stage.h). May include: the C++
// library. A micro-batch is counted from 0 within the step, a chunk from 0 on its rank.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

/// One thing that a rank does, in its turn.
struct Action {
  enum class Kind : uint8_t {
    receive_forward,
    forward,
    send_forward,
    receive_backward,
    backward,
    send_backward,
  };
  Kind kind{};
  int64_t microbatch = 0;
  int chunk = 0;
};

/// sequential: forward, backward for each micro-batch (one stage). one_f_one_b: Narayanan et al.
/// 2019, PipeDream-Flush.
enum class ScheduleKind : uint8_t { sequential, one_f_one_b };

/// What rank `stage` of `stages` does in one step. With one stage there are no sends and receives.
/// Errors: std::invalid_argument when the kind does not fit stages or chunks.
std::vector<Action> make_schedule(ScheduleKind kind, int stage, int stages,
                                  int64_t num_microbatches, int chunks = 1);

/// "F0 F1 B0 r2 F2 s2 ...": one word an action.
std::string describe(const std::vector<Action>& actions);

/// Most micro-batches whose forward is done and whose backward is not.
int64_t most_in_flight(const std::vector<Action>& actions);

}  // namespace trainer
