// See common_start.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/common_start.h"

#include <cstdint>
#include <span>
#include <stdexcept>
#include <system_error>

#include "libindexed/crc32c.h"
#include "tools/cli/text.h"
#include "trainer/rendezvous/sha256.h"

namespace trainer {
namespace {

using cli::concat;

/// How late a file system may show another host a new name.
constexpr std::chrono::seconds kMostDelay{10};

/// A checkpoint's step and the checksum of its tensors' checksums; empty: there is none.
std::string identity(const Start& start) {
  if (!start.checkpoint) return "";
  uint32_t crc = 0;
  for (const TensorRecord& tensor : start.checkpoint->meta().tensors)
    for (const ShardRecord& shard : tensor.shards)
      crc = indexed::crc32c(crc, std::as_bytes(std::span(shard.crc32c)));
  return concat("step ", start.checkpoint->meta().state.iteration, " ", crc);
}

/// "from step 40" of an identity.
std::string from(const std::string& identity) {
  if (identity.empty()) return "without a checkpoint";
  return "from " + identity.substr(0, identity.find(' ', sizeof "step"));
}

}  // namespace

void expect_one_beginning(const Start& start, const TrainConfig& config, Job& job) {
  if (job.alone()) return;
  const std::string own = identity(start), first = job.exchange(own).front();
  if (own == first) return;
  const std::string name = job.writer_place().name(0);
  const bool loads = !config.load.empty(), other = from(own) != from(first);
  throw std::runtime_error(
      concat(loads ? config.load : config.pretrained_checkpoint, ": this rank begins ", from(own),
             ", ", name, " ", other ? from(first) : "from other weights of that step", ": --",
             loads ? "load" : "pretrained-checkpoint", " must lead all hosts to one checkpoint"));
}

void expect_one_folder(const TrainConfig& config, Job& job) {
  if (job.launch().nodes <= 1 || job.alone() || config.save.empty() || config.skip_train) return;
  std::optional<FolderMark> mark;
  if (job.speaks()) {
    try {
      mark.emplace(config.save, rendezvous::to_hex(rendezvous::random_bytes(8)));
    } catch (const std::system_error&) {  // a full disk ends no run that goes on.
      mark.reset();
    }
  }
  const std::string name = job.exchange(mark ? mark->name() : "").front();
  if (name.empty()) return;
  if (!sees_mark(config.save, name, kMostDelay))
    throw std::runtime_error(concat(config.save, ": is not the folder that ",
                                    job.writer_place().name(0),
                                    " has there: --save must be one folder for all hosts"));
  job.barrier();  // all have looked.
}

}  // namespace trainer
