// TcpComm: collectives over a Mesh's messages, in rank order, on a separate thread. Every rank
// communicates with every other directly: this moves as many bytes as a ring, and the order of
// additions is that of the ranks, whatever the size.
// Not here: the connections (links.h), the messages (mesh.h), the arithmetic (reduction.h), the
// thread (host_queue.h).
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/tcp.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "trainer/comm/host_queue.h"
#include "trainer/comm/mesh.h"
#include "trainer/comm/reduction.h"
#include "trainer/rendezvous/links.h"

namespace comm {
namespace {

using std::chrono::milliseconds;

/// Elements of one rank's slice in flight at a time: the scratch memory is this for each rank.
constexpr int64_t kPieceElements = int64_t{64} << 10;
constexpr uint64_t kHeaderSlot = 1, kDataSlot = 16;
/// A rank that leaves waits this long until the others have read what it sent.
constexpr std::chrono::seconds kFarewell{5};

enum class Call : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  message,
  barrier,
  farewell
};
constexpr std::array<const char*, 7> kCalls{
    "all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "barrier", "end of the run"};

/// What a rank is about to do, sent before the data. `serial` counts the calls of the group, or the
/// messages from one rank to another.
struct Header {
  uint64_t serial = 0;
  int64_t elements = 0;
  Call call = Call::barrier;
  ops::DType dtype = ops::DType::u8;
  Reduce reduce = Reduce::sum;
  uint8_t root = 0;
  std::array<uint8_t, 4> unused{};

  bool operator==(const Header&) const = default;
  std::string describe() const {
    std::string text = kCalls[static_cast<size_t>(call)];
    if (call != Call::barrier && call != Call::farewell)
      text += " of " + std::to_string(elements) + " " + ops::name(dtype);
    return text + " (number " + std::to_string(serial) + ")";
  }
};

/// Bytes [begin, begin + bytes) of a tensor.
char* at(const Tensor& t, int64_t element) {
  return static_cast<char*>(t.data) + element * ops::size_bytes(t.dtype);
}

class TcpComm final : public Comm {
 public:
  TcpComm(const TcpOptions& options, rendezvous::Store& store);
  ~TcpComm() override;

  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return options_.size; }
  std::string describe() const override {
    return options_.name + ", rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
           ", TCP";
  }
  void all_reduce(Tensor x, Reduce reduce) override {
    queue({.elements = x.elements(), .call = Call::all_reduce, .dtype = x.dtype, .reduce = reduce},
          [this, x, reduce] { all_reduce_now(x, reduce); });
  }
  void reduce_scatter(Tensor dst, Tensor src, Reduce reduce) override;
  void all_gather(Tensor dst, Tensor src) override;
  void broadcast(Tensor x, int root) override;
  void send(Tensor x, int to) override { add_message({x, to, true}); }
  void receive(Tensor x, int from) override { add_message({x, from, false}); }
  void barrier() override {
    queue({.call = Call::barrier}, [] {});
    queue_.wait();
  }
  void group_begin() override { ++depth_; }
  void group_end() override;
  Mark mark() override { return queue_.mark(); }
  void follow(const Mark& mark) override { queue_.follow(mark); }

 private:
  struct Message {
    Tensor tensor;
    int peer = 0;
    bool out = false;
  };
  std::string name_of(int rank) const {
    const size_t index = static_cast<size_t>(rank);
    return index < options_.peers.size() ? options_.peers[index] : "rank " + std::to_string(rank);
  }
  /// Where slice `rank` of n elements begins; slices are as equal as possible.
  int64_t cut(int64_t n, int rank) const { return n * rank / size(); }
  void expect_rank(int rank) const;
  void expect_shares(const Tensor& whole, const Tensor& share) const;
  template <class Work>
  void queue(Header header, Work work);
  void begin_call() {
    if (options_.rank_status != nullptr)
      options_.rank_status->begin_call(options_.name + " " + current_);
  }
  void end_call() {
    if (options_.rank_status != nullptr) options_.rank_status->end_call();
  }
  void add_message(const Message& message);
  void run_messages(const std::vector<Message>& messages);
  void exchange_headers(const Header& mine);
  void connect(rendezvous::Store& store);
  void check_header(const Header& mine, const Header& theirs, int peer) const;
  Mesh::Message begin(void* data, int64_t bytes, int peer, bool out, uint64_t slot);
  void finish(const Mesh::Message& transfer);
  void finish(std::vector<Mesh::Message>& transfers) {
    for (const Mesh::Message& transfer : transfers) finish(transfer);
    transfers.clear();
  }
  [[noreturn]] void fail(int peer, const std::string& why) const;
  void all_reduce_now(const Tensor& x, Reduce reduce);
  void reduce_slices(const Tensor& dst, const Tensor& src, Reduce reduce, bool even);
  void gather_slices(const Tensor& x);

  const TcpOptions options_;
  std::optional<Mesh> mesh_;
  // Owned by the queueing thread.
  int depth_ = 0;
  std::vector<Message> messages_;
  // Owned by the queue's thread.
  uint64_t calls_ = 0;
  std::string current_ = "nothing";
  std::vector<uint64_t> sent_, received_;  ///< Messages, by peer.
  std::vector<char> scratch_;
  HostQueue queue_;  ///< Last member: its thread ends before the others are destroyed.
};

TcpComm::TcpComm(const TcpOptions& options, rendezvous::Store& store)
    : options_(options),
      sent_(static_cast<size_t>(options.size)),
      received_(static_cast<size_t>(options.size)),
      queue_(options.rank_status) {
  queue_.add([&] { connect(store); });
  queue_.wait();
}

void TcpComm::connect(rendezvous::Store& store) {
  current_ = "meeting";
  try {
    mesh_.emplace(rendezvous::link_ranks({.id = options_.id,
                                          .rank = rank(),
                                          .size = size(),
                                          .address = options_.address,
                                          .secret = options_.secret,
                                          .timeout = options_.timeout},
                                         store));
  } catch (const rendezvous::LinkError& error) {
    fail(error.peer, error.what());
  }
}

TcpComm::~TcpComm() {
  // Closing a connection drops data that the peer has not read yet, so all say goodbye first,
  // unless something failed.
  if (std::uncaught_exceptions() == 0 && !queue_.failed()) {
    try {
      queue({.call = Call::farewell}, [] {});
      queue_.wait();
    } catch (const std::exception&) {
      // A peer has already ended; nothing is left to send to it.
    }
  }
}

void TcpComm::fail(int peer, const std::string& why) const {
  throw PeerError("comm: " + describe() + ": " + current_ + ": " + name_of(peer) + ": " + why);
}

Mesh::Message TcpComm::begin(void* data, int64_t bytes, int peer, bool out, uint64_t slot) {
  const size_t size = static_cast<size_t>(bytes);
  try {
    return out ? mesh_->send(peer, slot, data, size) : mesh_->receive(peer, slot, data, size);
  } catch (const MeshError& error) {
    fail(error.peer, error.what());
  }
}

void TcpComm::finish(const Mesh::Message& transfer) {
  const bool leaving = current_ == kCalls[static_cast<size_t>(Call::farewell)];
  try {
    mesh_->wait(transfer, leaving ? milliseconds(kFarewell) : options_.timeout);
  } catch (const MeshError& error) {
    fail(error.peer, error.what());
  }
}

void TcpComm::check_header(const Header& mine, const Header& theirs, int peer) const {
  if (mine == theirs) return;
  throw ops::DeviceError("comm: " + describe() + ": ranks do different things: " + name_of(rank()) +
                         " is at " + mine.describe() + ", " + name_of(peer) + " at " +
                         theirs.describe());
}

/// Continues only if all ranks of the group are about to do the same.
void TcpComm::exchange_headers(const Header& mine) {
  std::vector<Header> theirs(static_cast<size_t>(size()));
  Header own = mine;
  std::vector<Mesh::Message> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    transfers.push_back(begin(&own, sizeof own, peer, true, kHeaderSlot));
    transfers.push_back(
        begin(&theirs[static_cast<size_t>(peer)], sizeof own, peer, false, kHeaderSlot));
  }
  finish(transfers);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) check_header(mine, theirs[static_cast<size_t>(peer)], peer);
}

template <class Work>
void TcpComm::queue(Header header, Work work) {
  queue_.add([this, header, work]() mutable {
    header.serial = ++calls_;
    current_ = header.call == Call::farewell ? kCalls[static_cast<size_t>(Call::farewell)]
                                             : header.describe();
    begin_call();
    exchange_headers(header);
    work();
    end_call();
  });
}

void TcpComm::expect_rank(int rank) const {
  if (rank < 0 || rank >= size() || size() > 255)
    throw ops::ShapeError("comm: " + describe() + ": no rank " + std::to_string(rank));
}

void TcpComm::expect_shares(const Tensor& whole, const Tensor& share) const {
  if (whole.elements() != share.elements() * size() || whole.dtype != share.dtype)
    throw ops::ShapeError("comm: " + describe() + ": " + whole.describe() + " is no " +
                          std::to_string(size()) + " of " + share.describe());
}

void TcpComm::reduce_scatter(Tensor dst, Tensor src, Reduce reduce) {
  expect_shares(src, dst);
  queue({.elements = src.elements(),
         .call = Call::reduce_scatter,
         .dtype = src.dtype,
         .reduce = reduce},
        [this, dst, src, reduce] { reduce_slices(dst, src, reduce, true); });
}

void TcpComm::all_gather(Tensor dst, Tensor src) {
  expect_shares(dst, src);
  queue({.elements = dst.elements(), .call = Call::all_gather, .dtype = dst.dtype},
        [this, dst, src] {
          char* own = at(dst, cut(dst.elements(), rank()));
          if (own != src.data) std::memmove(own, src.data, static_cast<size_t>(src.bytes()));
          gather_slices(dst);
        });
}

void TcpComm::broadcast(Tensor x, int root) {
  expect_rank(root);
  queue({.elements = x.elements(),
         .call = Call::broadcast,
         .dtype = x.dtype,
         .root = static_cast<uint8_t>(root)},
        [this, x, root] {
          std::vector<Mesh::Message> transfers;
          if (x.bytes() == 0) return;
          if (rank() != root) transfers.push_back(begin(x.data, x.bytes(), root, false, kDataSlot));
          for (int peer = 0; rank() == root && peer < size(); ++peer)
            if (peer != root) transfers.push_back(begin(x.data, x.bytes(), peer, true, kDataSlot));
          finish(transfers);
        });
}

void TcpComm::all_reduce_now(const Tensor& x, Reduce reduce) {
  const int64_t n = x.elements(), mine = cut(n, rank());
  const int64_t count = cut(n, rank() + 1) - mine;
  Tensor slice(at(x, mine), x.dtype, x.device, {count});
  reduce_slices(slice, x, reduce, false);
  gather_slices(x);
}

/// dst = slice `rank` of the reduction of src. Piece by piece: each rank sends every other rank its
/// part of that rank's slice, and adds the received parts to its own. dst may be in src.
void TcpComm::reduce_slices(const Tensor& dst, const Tensor& src, Reduce reduce, bool even) {
  const int64_t n = src.elements(), width = ops::size_bytes(src.dtype);
  const auto first = [&](int r) { return even ? n / size() * r : cut(n, r); };
  const int64_t mine = first(rank()), count = first(rank() + 1) - mine;
  const int64_t longest = (n + size() - 1) / size();
  scratch_.resize(static_cast<size_t>(size() * kPieceElements * width));
  for (int64_t done = 0; done < longest; done += kPieceElements) {
    const auto piece = [&](int r) {
      return std::clamp<int64_t>(first(r + 1) - first(r) - done, 0, kPieceElements);
    };
    std::vector<Mesh::Message> transfers;
    std::vector<const void*> parts;
    for (int peer = 0; peer < size(); ++peer) {
      char* arriving = scratch_.data() + peer * kPieceElements * width;
      parts.push_back(peer == rank() ? at(src, mine + done) : arriving);
      if (peer == rank()) continue;
      if (piece(peer) > 0)
        transfers.push_back(
            begin(at(src, first(peer) + done), piece(peer) * width, peer, true, kDataSlot));
      if (piece(rank()) > 0)
        transfers.push_back(begin(arriving, piece(rank()) * width, peer, false, kDataSlot));
    }
    finish(transfers);
    if (done < count) reduce_parts(at(dst, done), parts, piece(rank()), src.dtype, reduce);
  }
}

/// Sends every rank's slice of x to all others, in place.
void TcpComm::gather_slices(const Tensor& x) {
  const int64_t n = x.elements(), width = ops::size_bytes(x.dtype);
  std::vector<Mesh::Message> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const int64_t mine = cut(n, rank()), theirs = cut(n, peer);
    const int64_t out = (cut(n, rank() + 1) - mine) * width;
    const int64_t in = (cut(n, peer + 1) - theirs) * width;
    if (out > 0) transfers.push_back(begin(at(x, mine), out, peer, true, kDataSlot));
    if (in > 0) transfers.push_back(begin(at(x, theirs), in, peer, false, kDataSlot));
  }
  finish(transfers);
}

void TcpComm::add_message(const Message& message) {
  expect_rank(message.peer);
  if (message.peer == rank())
    throw ops::ShapeError("comm: " + describe() + ": a message to itself");
  messages_.push_back(message);
  if (depth_ == 0) {
    depth_ = 1;
    group_end();
  }
}

void TcpComm::group_end() {
  if (--depth_ > 0 || messages_.empty()) return;
  queue_.add([this, messages = std::exchange(messages_, {})] { run_messages(messages); });
}

/// Starts all transfers before waiting for any.
void TcpComm::run_messages(const std::vector<Message>& messages) {
  std::vector<Header> mine(messages.size()), theirs(messages.size());
  std::vector<Mesh::Message> headers, data;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    const size_t peer = static_cast<size_t>(m.peer);
    mine[i] = {.serial = m.out ? ++sent_[peer] : ++received_[peer],
               .elements = m.tensor.elements(),
               .call = Call::message,
               .dtype = m.tensor.dtype};
    current_ = mine[i].describe();
    begin_call();
    headers.push_back(
        begin(m.out ? &mine[i] : &theirs[i], sizeof(Header), m.peer, m.out, kHeaderSlot));
    if (m.out && m.tensor.bytes() > 0)
      data.push_back(begin(m.tensor.data, m.tensor.bytes(), m.peer, true, kDataSlot));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (m.out) continue;
    current_ = mine[i].describe();
    finish(headers[i]);
    check_header(mine[i], theirs[i], m.peer);
    if (m.tensor.bytes() > 0)
      data.push_back(begin(m.tensor.data, m.tensor.bytes(), m.peer, false, kDataSlot));
  }
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].out) finish(headers[i]);
  finish(data);
  end_call();
}

}  // namespace

std::unique_ptr<Comm> make_tcp_comm(const TcpOptions& options, rendezvous::Store& store) {
  return std::make_unique<TcpComm>(options, store);
}

}  // namespace comm
