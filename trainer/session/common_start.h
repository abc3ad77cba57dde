// What all ranks of a run must have in common at a start, and folders that hosts do not share would
// make different: the checkpoint from which they begin, and the folder in which they save. Without
// this ranks would train on from different weights, or every save would fail. Not here: finding the
// checkpoint (start.cc), configurations that differ (rendezvous/server.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/config/train_config.h"
#include "trainer/session/job.h"
#include "trainer/session/start.h"

namespace trainer {

/// Every rank calls it before it loads. Errors: std::runtime_error on a rank that begins from
/// another checkpoint than rank 0, or only one of them from any.
void expect_one_beginning(const Start& start, const TrainConfig& config, Job& job);

/// Every rank calls it once rank 0 holds --save. With several hosts rank 0 leaves a file there for
/// the others to see; where its disk refuses that, nothing is checked. Errors: std::runtime_error
/// on a rank of a host whose folder is another one, after some seconds.
void expect_one_folder(const TrainConfig& config, Job& job);

}  // namespace trainer
