// SPDX-License-Identifier: MIT
// Room: trainer/config. The files that a run writes under names of the user's choice must not be
// files that it reads, or that it writes under names of its own.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/parse.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// Refuses --metrics-file (which would be cut to the lines of earlier iterations) and
/// --schedule-svg where they are the same file as an input: tokenizer, datasets that are named on
/// the command line, lists of datasets, DeepSpeed's file, a card, the job's secret, and `others`;
/// and where they are a file that the run itself writes in --save, also through links.
/// Errors: cli::UsageError naming the flag and both files.
void refuse_inputs_as_outputs(const TrainConfig& config, const std::vector<std::string>& others);

/// The files of `config` that are read: those above without `others`.
std::vector<std::string> input_files(const TrainConfig& config);

/// Forgets a metrics-file of configuration files that is only the default for their own `save`, as
/// earlier trainers wrote into config.toml: the default follows the --save of the command line.
/// State: takes the name out of parsed.given.
void forget_default_metrics_file(TrainConfig& config, cli::Parsed& parsed);

/// N where --metrics-file names what is open already as descriptor N (/dev/stderr, /dev/fd/N,
/// standard output), which is written from where it stands; -1 for any other file. Errors:
/// std::system_error (EBADF) if it cannot be written; to be asked before other files are opened.
int metrics_descriptor(const TrainConfig& config);

}  // namespace trainer
