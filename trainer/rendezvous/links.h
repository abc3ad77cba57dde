// Links: a connection between every two ranks of a group, both of which know the job's secret.
// Here: finding each other through a Store, and the proofs. Not here: traffic on the connections
// (comm/tcp.h), the rendezvous of all ranks (meeting.h). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trainer/ops/tensor.h"
#include "trainer/rendezvous/store.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// The rank and its group.
struct LinkOptions {
  std::string id;          ///< Of the group in the Store: unique in the job.
  int rank = 0, size = 1;  ///< In the group.
  std::string address;     ///< Of this rank, to which the others connect.
  std::string secret;      ///< Of the job.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< Until all are linked.
};

/// No link to `peer` was made in time.
struct LinkError : ops::DeviceError {
  LinkError(int peer_, const std::string& why) : DeviceError(why), peer(peer_) {}
  int peer;  ///< In the group.
};

/// One connected socket for each rank of the group, in rank order, empty for this rank; all ranks
/// call it. A port is open while it runs. A connection without the secret is closed after its first
/// message, or a few seconds, and never takes the place of a rank. Errors: LinkError;
/// ops::DeviceError if the Store does not have a rank's address in time; std::system_error if
/// `address` is not one of this host.
std::vector<Socket> link_ranks(const LinkOptions& options, Store& store);

}  // namespace rendezvous
