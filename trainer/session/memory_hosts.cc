// See memory_hosts.h. A "share" is the two files of one rank; ranks of one place on each host pass
// their shares around the ring, each from a host that has it undamaged to all that need it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/memory_hosts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "libindexed/crc32c.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/shard_files.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/available_memory.h"
#include "trainer/session/memory_start.h"
#include "trainer/session/restart.h"

namespace trainer {
namespace {

using cli::concat;
using Kept = MemoryCheckpoints::Kept;

/// The number of the exchange at a start: below those of saves, which begin at 1.
constexpr int64_t kFirstPass = 0;
/// Of a record in one round.
constexpr size_t kPart_bytes = 16 << 20;

/// A checkpoint in memory: hosts that have the same record have parts of the same one.
struct Identity {
  int64_t iteration = 0;
  uint32_t checksum = 0;
  auto operator<=>(const Identity&) const = default;
};

uint32_t checksum_of(const std::string& record) {
  return indexed::crc32c(0, std::as_bytes(std::span(record)));
}

/// Whether a host has a share undamaged: that of its own rank, and its copy of the partner's.
struct Shares {
  bool own = false, copy = false;
};

/// This rank in the ring: host and place on it.
struct Ring {
  explicit Ring(const rendezvous::Launch& launch)
      : hosts(launch.nodes), ranks(launch.local_size), own(launch.node), place(launch.local_rank) {}
  int hosts, ranks, own, place;
  int before(int host) const { return (host + hosts - 1) % hosts; }
  int after(int host) const { return (host + 1) % hosts; }
  int rank(int host) const { return host * ranks + place; }
  int distance(int from, int to) const { return (to - from + hosts) % hosts; }
};

class Agreement {
 public:
  Agreement(const MemoryCheckpoints& memory, rendezvous::FileRing& ring, BorrowedFiles& borrowed,
            Job& job, cli::Console& console)
      : memory_(memory),
        links_(ring),
        borrowed_(borrowed),
        job_(job),
        console_(console),
        ring_(job.launch()),
        kept_(memory.kept()) {}

  std::optional<Checkpoint> run(int64_t on_disk);

 private:
  void report(int64_t on_disk);
  std::optional<Checkpoint> take(const Identity& wanted);
  std::string record_of(const Identity& wanted);
  std::vector<std::vector<Shares>> check(int slot, const std::string& record);
  std::string lost(const std::vector<std::vector<Shares>>& shares) const;
  std::string too_large(const std::string& record);
  void pass_on(int slot, const std::string& record, const std::vector<Shares>& shares);
  std::map<std::string, std::string> places_of_borrowed();
  void say(const std::string& line) const {
    if (job_.speaks()) console_.error(line);
  }

  const MemoryCheckpoints& memory_;
  rendezvous::FileRing& links_;
  BorrowedFiles& borrowed_;
  Job& job_;
  cli::Console& console_;
  const Ring ring_;
  const std::vector<Kept> kept_;              ///< On this host.
  std::vector<std::vector<Identity>> hosts_;  ///< On each host.
  int64_t on_disk_ = -1;
  std::map<std::string, int> lent_;  ///< Descriptors of borrowed files, by name.
};

/// What each host has, and what rank 0 sees on disk.
void Agreement::report(int64_t on_disk) {
  std::string text = std::to_string(on_disk);
  if (ring_.place == 0)
    for (const Kept& one : kept_) text += concat(" ", one.iteration, " ", checksum_of(one.record));
  const std::vector<std::string> all = job_.exchange(text);
  for (int host = 0; host < ring_.hosts; ++host) {
    std::istringstream in(all[static_cast<size_t>(host * ring_.ranks)]);
    int64_t disk = -1;
    in >> disk;
    if (host == 0) on_disk_ = disk;
    hosts_.emplace_back();
    for (Identity one; in >> one.iteration >> one.checksum;) hosts_.back().push_back(one);
  }
}

/// The record, from the first host that has it, where some host has not.
std::string Agreement::record_of(const Identity& wanted) {
  const auto has = [&](const std::vector<Identity>& host) {
    return std::ranges::count(host, wanted) != 0;
  };
  std::string own;
  for (const Kept& one : kept_)
    if (Identity{one.iteration, checksum_of(one.record)} == wanted) own = one.record;
  if (std::ranges::all_of(hosts_, has)) return own;
  const int giver = static_cast<int>(std::ranges::find_if(hosts_, has) - hosts_.begin());
  const bool gives = ring_.own == giver && ring_.place == 0;
  std::string record;
  for (size_t at = 0; at == record.size(); at += kPart_bytes)
    record += job_.exchange(gives && at < own.size() ? own.substr(at, kPart_bytes) : "")
                  .at(static_cast<size_t>(giver * ring_.ranks));
  return record;
}

/// Which shares are undamaged: by place, by host. `slot`: -1 if this host has no such checkpoint.
std::vector<std::vector<Shares>> Agreement::check(int slot, const std::string& record) {
  std::string text = "--", why;
  if (slot >= 0) {
    const int ranks[] = {ring_.rank(ring_.own), ring_.rank(ring_.before(ring_.own))};
    for (size_t i = 0; i < 2; ++i) {
      const std::string found = memory_.damage(slot, record, ranks[i]);
      text[i] = found.empty() ? '+' : '-';
      if (why.empty()) why = found;
    }
  }
  std::vector<std::vector<Shares>> out(static_cast<size_t>(ring_.ranks));
  const std::vector<std::string> all = job_.exchange(text + why);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& one = all[rank];
    out[rank % out.size()].push_back({one.at(0) == '+', one.at(1) == '+'});
    if (one.size() > 2)
      say(concat(job_.writer_place().name(static_cast<int>(rank)), ": ", one.substr(2)));
  }
  return out;
}

/// The ranks whose shares no host has; empty: none.
std::string Agreement::lost(const std::vector<std::vector<Shares>>& shares) const {
  std::set<int> ranks;
  for (int place = 0; place < ring_.ranks; ++place)
    for (int host = 0; host < ring_.hosts; ++host) {
      const std::vector<Shares>& of = shares[static_cast<size_t>(place)];
      if (!of[static_cast<size_t>(host)].own && !of[static_cast<size_t>(ring_.after(host))].copy)
        ranks.insert(host * ring_.ranks + place);
    }
  if (ranks.empty()) return "";
  std::string list;
  for (const int rank : ranks) {
    if (list.size() > 60) return concat("the files of ranks ", list, ", ... are lost");
    list += concat(list.empty() ? "" : ", ", rank);
  }
  return ranks.size() == 1 ? concat("the files of rank ", list, " are lost")
                           : concat("the files of ranks ", list, " are lost");
}

/// With three hosts or more, a host lends the files of the others while it loads: why it cannot.
std::string Agreement::too_large(const std::string& record) {
  if (ring_.hosts < 3) return "";
  int64_t whole = 0;
  for (const auto& [name, bytes] : parse_meta(record, "memory").files) whole += bytes;
  const int64_t available = ops::available_host_bytes();
  const bool fits = whole <= available;
  for (const std::string& why : job_.exchange(
           fits ? ""
                : concat("a host needs ", cli::readable_bytes(static_cast<double>(whole)),
                         " to load it, ", cli::readable_bytes(static_cast<double>(available)),
                         " are available")))
    if (!why.empty()) return why;
  return "";
}

/// Brings every share of this place to the hosts that need it, over the links of this place.
void Agreement::pass_on(int slot, const std::string& record, const std::vector<Shares>& shares) {
  const int hosts = ring_.hosts;
  const auto at = [&](int host) { return shares[static_cast<size_t>(host)]; };
  const auto source = [&](int share) { return at(share).own ? share : ring_.after(share); };
  const auto needs = [&](int host, int share) {
    if (host == share) return !at(host).own;
    if (share == ring_.before(host)) return !at(host).copy;
    return true;  // to load from.
  };
  const auto reach = [&](int share) {
    int out = 0;
    for (int host = 0; host < hosts; ++host)
      if (needs(host, share)) out = std::max(out, ring_.distance(source(share), host));
    return out;
  };
  // Shares that cross the link from `host` to the next one, those that have come least far first.
  const auto crossing = [&](int host) {
    std::vector<std::pair<int, int>> out;
    for (int share = 0; share < hosts; ++share)
      if (const int come = ring_.distance(source(share), host); come < reach(share))
        out.emplace_back(come, share);
    std::ranges::sort(out);
    return out;
  };
  const std::map<std::string, int64_t> named = parse_meta(record, "memory").files;
  const auto names = [&](int share) {
    const int rank = ring_.rank(share);
    return std::array<std::string, 2>{model_file_name(rank), optimizer_file_name(rank)};
  };
  std::vector<int> in;
  std::map<int, int> last;  ///< Received file that ends a share.
  for (const auto& [come, share] : crossing(ring_.before(ring_.own))) {
    const bool held = share == ring_.own || share == ring_.before(ring_.own);
    const std::array<int, 2> kept =
        held ? memory_.files(slot, ring_.rank(share)) : std::array<int, 2>{-1, -1};
    for (size_t i = 0; i < 2; ++i) {
      const bool stays = held && needs(ring_.own, share);
      in.push_back(stays ? kept[i] : borrowed_.add());
      if (!held && named.contains(names(share)[i])) lent_[names(share)[i]] = in.back();
    }
    last[share] = static_cast<int>(in.size()) - 1;
  }
  std::vector<rendezvous::OutgoingFile> out;
  for (const auto& [come, share] : crossing(ring_.own)) {
    const bool passes = last.contains(share);
    const std::array<int, 2> files =
        passes ? std::array<int, 2>{in[static_cast<size_t>(last[share] - 1)],
                                    in[static_cast<size_t>(last[share])]}
               : memory_.files(slot, ring_.rank(share));
    for (size_t i = 0; i < 2; ++i)
      out.push_back({.fd = named.contains(names(share)[i]) ? files[i] : -1,
                     .after = passes ? last[share] : -1});
  }
  try {
    links_.exchange(kFirstPass, out, in, [] { return false; });
  } catch (const ops::DeviceError& error) {
    throw comm::PeerError(error.what());
  }
}

/// Where the ranks of this host have what they borrow.
std::map<std::string, std::string> Agreement::places_of_borrowed() {
  std::map<std::string, std::string> places;
  if (ring_.hosts < 3) return places;
  std::string text = std::to_string(getpid());
  for (const auto& [name, fd] : lent_) text += concat(" ", name, " ", fd);
  const std::vector<std::string> all = job_.exchange(text);
  for (int place = 0; place < ring_.ranks; ++place) {
    std::istringstream in(all[static_cast<size_t>(ring_.own * ring_.ranks + place)]);
    std::string pid, name, fd;
    for (in >> pid; in >> name >> fd;) places[name] = concat("/proc/", pid, "/fd/", fd);
  }
  return places;
}

std::optional<Checkpoint> Agreement::take(const Identity& wanted) {
  const std::string record = record_of(wanted);
  int slot = -1;
  for (const Kept& one : kept_)
    if (one.record == record) slot = one.slot;
  const std::vector<std::vector<Shares>> shares = check(slot, record);
  std::string why = lost(shares);
  if (why.empty()) why = too_large(record);
  if (!why.empty()) {
    say(concat("the checkpoint of step ", wanted.iteration, " in memory is not used: ", why));
    return std::nullopt;
  }
  const bool lacks = slot < 0;
  if (lacks) slot = memory_.free_slot();
  job_.barrier();  // all have chosen.
  if (lacks) memory_.write_record(slot, "");
  pass_on(slot, record, shares[static_cast<size_t>(ring_.place)]);
  std::map<std::string, std::string> others = places_of_borrowed();
  job_.barrier();  // every share has arrived.
  if (lacks && ring_.place == 0) memory_.write_record(slot, record);
  return memory_.open(slot, record, std::move(others));
}

std::optional<Checkpoint> Agreement::run(int64_t on_disk) {
  report(on_disk);
  std::set<Identity, std::greater<>> known;
  for (const std::vector<Identity>& host : hosts_) known.insert(host.begin(), host.end());
  std::optional<Checkpoint> found;
  for (const Identity& one : known) {
    if (one.iteration < on_disk_) break;
    if ((found = take(one))) break;
  }
  const int64_t taken = found ? found->meta().state.iteration : -1;
  job_.barrier();
  memory_.forget_after(found ? taken : on_disk_);
  if (known.empty() && job_.launch().restarts == 0) return found;  // a first start, most likely.
  note_what_is_taken(taken, known.empty() ? -1 : known.begin()->iteration, on_disk_, console_);
  return found;
}

}  // namespace

int BorrowedFiles::add() {
  const int fd = ::memfd_create("gristmill-borrowed", MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "memory of checkpoints");
  descriptors_.push_back(fd);
  return fd;
}

void BorrowedFiles::release() noexcept {
  for (const int fd : descriptors_) ::close(fd);
  descriptors_.clear();
}

std::optional<Checkpoint> newest_over_hosts(const MemoryCheckpoints& memory,
                                            rendezvous::FileRing& ring, BorrowedFiles& borrowed,
                                            const TrainConfig& config, Job& job,
                                            cli::Console& console) {
  return Agreement(memory, ring, borrowed, job, console)
      .run(whole_saved_iteration(config, job.launch().run));
}

}  // namespace trainer
