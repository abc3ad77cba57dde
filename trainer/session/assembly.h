// From a configuration to the parts it asks for: the model, the engine's options, the schedule of
// the learning rate; and the same as the texts that a checkpoint carries, and back.
// Pure functions; no file, no device. May include: config/, model/, optim/, schedule/, checkpoint/.
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
/// Errors: cli::UsageError for what the models here cannot be; ShapeError from complete().
ModelSpec model_spec(const TrainConfig& config, int64_t vocab_size);

/// What a model that no family holds cannot do, and which flags would change that; else empty.
std::string family_note(const ModelSpec& spec);

/// The engine's options for a step of the largest size.
EngineOptions engine_options(const TrainConfig& config);

/// Learning rate and weight decay over samples.
LrSchedule lr_schedule(const TrainConfig& config);

/// The numbers that decide the learning rate, by the flag that sets each: the "schedule" part of
/// meta.json. Lengths are samples.
std::map<std::string, std::string> schedule_record(const LrSchedule& schedule);

/// Takes the numbers of a record over into `schedule`; names it lacks stay.
void apply_schedule_record(const std::map<std::string, std::string>& record, LrSchedule& schedule);

}  // namespace trainer
