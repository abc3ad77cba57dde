// The Comm of GPUs. Only nccl.cc includes NCCL. May include: comm/comm.h, rendezvous/store.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trainer/comm/comm.h"
#include "trainer/rendezvous/rank_status.h"
#include "trainer/rendezvous/store.h"

namespace comm {

/// Options of a group's Comm over NCCL.
struct NcclOptions {
  std::string name = "world";  ///< Of the group, for messages: "tensor-parallel".
  std::string id = "world";    ///< Of the group in the Store: unique in the job.
  int rank = 0, size = 1;      ///< In the group.
  int device_index = 0;        ///< This rank's GPU, among those that the process sees.
  /// The most thread blocks for a collective; 0: NCCL's choice. Fewer leave multiprocessors to
  /// concurrent products.
  int max_ctas = 0;
  /// Use Ring and Simple for everything: the order of additions then depends only on the group, not
  /// on the size of the message. Slower for small messages. NCCL reads it once per process.
  bool one_algorithm = false;
  int64_t least_shared_bytes = kLeastSharedBytes;                ///< For tests: less.
  int64_t sum_bytes = kSumBytes;                                 ///< The same.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< For the rendezvous.
  rendezvous::RankStatus* rank_status = nullptr;  ///< Is told of every queued call; may be null.
};

/// Connects to the group's other ranks; the first rank's NCCL id is sent through `store`, which
/// must outlive the Comm. Device memory only; one process for each GPU. The queue is a stream of
/// high priority; while the compute stream is captured, follow(ops.mark()) makes it part of the
/// graph and ops.follow(mark()) joins it again. Memory that ranks share is accessed by their copy
/// engines, where NVLink connects the GPUs, of one model, every rank sees them all and has memory
/// for sums, and NCCL_P2P_DISABLE is not set; otherwise all goes by NCCL. NVLink multicast stays
/// off unless NCCL_NVLS_ENABLE is set by the user. Errors: DeviceError naming the call and NCCL's
/// reason; the destructor of a failed Comm aborts it instead of finishing. The destructor waits
/// until no captured graph has calls of this Comm: call Ops::forget first.
std::unique_ptr<Comm> make_nccl_comm(const NcclOptions& options, rendezvous::Store& store);

}  // namespace comm
