// The Comm of processes without GPUs, over TCP. May include: comm/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/rendezvous/rank_status.h"
#include "trainer/rendezvous/store.h"

namespace comm {

/// Options of a group's Comm over TCP.
struct TcpOptions {
  std::string name = "world";      ///< Of the group, for messages: "tensor-parallel".
  std::string id = "world";        ///< Of the group in the Store: unique in the job.
  int rank = 0, size = 1;          ///< In the group.
  std::vector<std::string> peers;  ///< For messages, in group order: "rank 3 (n07)". May be empty.
  std::string address = "127.0.0.1";  ///< This rank's address, to which the others connect.
  std::string secret;                 ///< The job's; connections with another secret are refused.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< For one wait for a peer.
  rendezvous::RankStatus* rank_status = nullptr;  ///< Is told of every call; may be null.
};

/// Finds the group's other ranks through `store` and connects to each of them. Host memory only.
/// Reductions add in rank order, so their bits depend only on the group. Every message says which
/// call its sender makes: a rank that skips a collective, or gives another shape, causes a
/// DeviceError naming both ranks and both calls. Errors: DeviceError if a rank does not connect
/// within the timeout, or has another secret.
std::unique_ptr<Comm> make_tcp_comm(const TcpOptions& options, rendezvous::Store& store);

}  // namespace comm
