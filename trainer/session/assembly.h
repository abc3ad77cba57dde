// From a configuration to its parts: the model, the engine's options, the learning-rate schedule;
// and their conversion to and from the texts in a checkpoint. Pure functions; no file, no device.
// May include: config/, model/, optim/, schedule/, checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer/config/train_config.h"
#include "trainer/engine/engine.h"
#include "trainer/optim/lr_schedule.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// The model that derived flags describe, with `vocab_size` real token ids.
/// Errors: cli::UsageError for unsupported models; ShapeError from complete().
ModelSpec model_spec(const TrainConfig& config, int64_t vocab_size);

/// For a model that no family can represent: what it cannot do, and which flags would change that;
/// else empty.
std::string family_note(const ModelSpec& spec);

/// The engine's options for a step of the largest size.
EngineOptions engine_options(const TrainConfig& config);

/// Learning rate and weight decay over samples.
LrSchedule lr_schedule(const TrainConfig& config);

/// The numbers that determine the learning rate, by the flag that sets each: the "schedule" part of
/// meta.json. Lengths are samples.
std::map<std::string, std::string> schedule_record(const LrSchedule& schedule);

/// Applies the numbers of a record to `schedule`; missing ones are unchanged.
void apply_schedule_record(const std::map<std::string, std::string>& record, LrSchedule& schedule);

}  // namespace trainer
