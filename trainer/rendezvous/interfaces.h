// Interfaces: this host's network interfaces, and the variables that choose among them. Not here:
// listening (meeting.h). May include: the C++ library, POSIX, launch.h. Source: NCCL's manual
// (NCCL_SOCKET_IFNAME), PyTorch's (GLOO_SOCKET_IFNAME).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/rendezvous/launch.h"

namespace rendezvous {

/// Names and addresses of this host's interfaces; a name may occur more than once, or without an
/// address. Link-local addresses are left out: they are not enough to connect.
using Interfaces = std::vector<std::pair<std::string, std::string>>;

/// Those of this host that are up.
Interfaces interfaces();

/// Why NCCL would find no interface with NCCL_SOCKET_IFNAME ("eth", "=eth0,eth1", "^docker,lo"), or
/// CPU ranks none with GLOO_SOCKET_IFNAME ("eth0,eth1"); empty if the variables are unset or valid.
std::string interface_objection(const Environment& environment, const Interfaces& own, bool nccl);

/// The address of the first interface that GLOO_SOCKET_IFNAME names; empty without the variable.
std::string gloo_address(const Environment& environment, const Interfaces& own);

}  // namespace rendezvous
