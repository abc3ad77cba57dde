// Links: a connection between every two ranks of a group, both ends of which know the job's secret.
// Here: finding each other through a Store, and the proofs. Not here: what goes over the
// connections (tcp.h), the meeting of all ranks (meeting.h). May include: ops/tensor.h.
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

/// Of which rank of which group.
struct LinkOptions {
  std::string id;          ///< Of the group in the Store: unique in the job.
  int rank = 0, size = 1;  ///< In the group.
  std::string address;     ///< Of this rank, to which the others connect.
  std::string secret;      ///< Of the job.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< Until all are linked.
};

/// No link to `peer` came about in time.
struct LinkError : ops::DeviceError {
  LinkError(int peer_, const std::string& why) : DeviceError(why), peer(peer_) {}
  int peer;  ///< In the group.
};

/// One connected socket for each rank of the group, in rank order, empty for this rank; all ranks
/// call it. A port is open while it runs. A connection without the secret is closed after its first
/// message, or a few seconds, and never takes the place of a rank.
/// Errors: LinkError; ops::DeviceError where the Store does not say in time where a rank listens;
/// std::system_error where `address` is none of this host.
std::vector<Socket> link_ranks(const LinkOptions& options, Store& store);

}  // namespace rendezvous
