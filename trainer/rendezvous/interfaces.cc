// See interfaces.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>
#include <sstream>

namespace rendezvous {
namespace {

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');)
    if (!word.empty()) out.push_back(word);
  return out;
}

/// Numeric address; empty if it is not an internet address, or is link-local.
std::string numeric(const sockaddr* address) {
  if (address == nullptr) return "";
  socklen_t length = 0;
  if (address->sa_family == AF_INET) length = sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    if (!IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) length = sizeof(sockaddr_in6);
  }
  char text[NI_MAXHOST] = "";
  if (length == 0 ||
      getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

/// Whether NCCL uses interface `name`: the list has prefixes, or whole names after "="; "^" negates
/// it.
bool nccl_takes(std::string list, const std::string& name) {
  const bool except = list.starts_with("^");
  if (except) list.erase(0, 1);
  const bool whole = list.starts_with("=");
  if (whole) list.erase(0, 1);
  const bool listed = std::ranges::any_of(words_of(list), [&](const std::string& word) {
    return whole ? name == word : name.starts_with(word);
  });
  return listed != except;
}

bool gloo_takes(const std::string& list, const std::string& name) {
  return std::ranges::count(words_of(list), name) != 0;
}

}  // namespace

Interfaces interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
  Interfaces out;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if ((i->ifa_flags & IFF_UP) == 0) continue;
    const std::pair<std::string, std::string> one{i->ifa_name, numeric(i->ifa_addr)};
    if (std::ranges::count(out, one) == 0) out.push_back(one);
  }
  return out;
}

std::string interface_objection(const Environment& environment, const Interfaces& own, bool nccl) {
  const char* variable = nccl ? "NCCL_SOCKET_IFNAME" : "GLOO_SOCKET_IFNAME";
  const char* list = environment(variable);
  if (list == nullptr || *list == 0) return "";
  std::string there;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto& [name, address] = own[i];
    if (!address.empty() && (nccl ? nccl_takes(list, name) : gloo_takes(list, name))) return "";
    const bool known =
        std::any_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(i),
                    [&name = name](const auto& other) { return other.first == name; });
    if (!known) there += (there.empty() ? "" : ", ") + name;
  }
  return std::string(variable) + "=" + list + " leaves no interface of this host, which has " +
         (there.empty() ? "none" : there) + ": name one of them, or unset it";
}

std::string gloo_address(const Environment& environment, const Interfaces& own) {
  const char* list = environment("GLOO_SOCKET_IFNAME");
  for (const std::string& word : words_of(list == nullptr ? "" : list))
    for (const auto& [name, address] : own)
      if (name == word && !address.empty()) return address;
  return "";
}

}  // namespace rendezvous
