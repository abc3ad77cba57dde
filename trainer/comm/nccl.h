// The Comm of GPUs. nccl.cc alone sees NCCL. May include: comm/comm.h, rendezvous/store.h.
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

/// What a group's Comm over NCCL is made of.
struct NcclOptions {
  std::string name = "world";  ///< Of the group, for messages: "tensor-parallel".
  std::string id = "world";    ///< Of the group in the Store: unique in the job.
  int rank = 0, size = 1;      ///< In the group.
  int device_index = 0;        ///< The GPU of this rank, of those that the process sees.
  /// Most thread blocks that a collective takes; 0: NCCL's choice. Fewer leave the
  /// multiprocessors to the products that run beside it.
  int max_ctas = 0;
  /// Ring and Simple for everything: the order of additions then depends on the group alone, not
  /// on the size of the message. Slower for small ones. NCCL reads it once a process.
  bool one_algorithm = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< Of the meeting.
  rendezvous::RankStatus* rank_status =
      nullptr;  ///< Told of every call that is queued; may be null.
};

/// Meets the group's other ranks: the first rank's NCCL id travels through `store`. Device memory
/// only; one process for each GPU. The queue is a stream of high priority; under a capture of the
/// compute stream, follow(ops.mark()) takes it into the graph and ops.follow(mark()) brings it
/// back. NVLink multicast stays off unless NCCL_NVLS_ENABLE is set by the user. Errors: DeviceError
/// naming the call and NCCL's reason; a failed Comm is aborted by its destructor, not finished. A
/// destructor waits until no recording holds calls of this Comm: Ops::forget comes first.
std::unique_ptr<Comm> make_nccl_comm(const NcclOptions& options, rendezvous::Store& store);

}  // namespace comm
