// See calibrate.h. Measures collectives first, with a process for each GPU, forked before this one
// has used CUDA; then this process measures one GPU.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/calibrate.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "libindexed/output_file.h"
#include "tools/cli/fields.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/ops/number.h"
#include "trainer/planning/card.h"
#include "trainer/session/calibration.h"
#include "trainer/session/calibration_load.h"
#include "trainer/session/calibration_work.h"
#include "trainer/session/devices.h"
#ifdef GRISTMILL_NCCL
#include "trainer/comm/nccl.h"
#include "trainer/rendezvous/file_store.h"
#endif

namespace trainer {
namespace {

using cli::concat;
using ops::DType;
using ops::Tensor;
using Clock = std::chrono::steady_clock;

constexpr double kGib = int64_t{1} << 30;

/// Runs `body` in a separate process and returns its result.
int in_a_process(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      _exit(body());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "plan-training: %s\n", cli::describe(error).c_str());
      _exit(255);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

#ifdef GRISTMILL_NCCL

/// One GPU among those whose collectives are measured.
class CollectiveRank {
 public:
  CollectiveRank(const TrainConfig& config, int rank, int size, rendezvous::Store& store)
      : ops_(open_device(config, {.gpu = rank, .ranks_on_host = size})),
        comm_(comm::make_nccl_comm({.name = "calibration",
                                    .id = concat("calibration-", size),
                                    .rank = rank,
                                    .size = size,
                                    .device_index = rank},
                                   store)),
        rank_(rank),
        size_(size),
        elements_(int64_t{256} << 18) {
    block_ = ops_->allocate(2 * elements_ * 4);
    whole_ = Tensor(block_, DType::f32, ops_->device(), {elements_});
    other_ = Tensor(static_cast<std::byte*>(block_) + elements_ * 4, DType::f32, ops_->device(),
                    {elements_});
    ops_->run(ops::Fill{.dst = whole_, .value = 1});
    ops_->run(ops::Fill{.dst = other_, .value = 0});
  }
  ~CollectiveRank() {
    leave();
    ops_->release(block_);
  }

  /// The end of communication, for which all ranks wait.
  void leave() {
    ops_->synchronize();
    comm_.reset();
  }

  /// From here on transfers go by copy engines, where it returns true.
  bool share_memory() {
    return comm_->share_memory({block_, DType::u8, ops_->device(), {2 * elements_ * 4}});
  }

  void check() {
    const Tensor some = whole_.slice(0, comm::kLeastSharedBytes / 4 * size_);
    ops_->run(ops::Fill{.dst = some, .value = 1});
    comm_->follow(ops_->mark());
    comm_->all_reduce(some, comm::Reduce::sum);
    ops_->follow(comm_->mark());
    void* host = ops_->allocate_host(some.bytes());
    ops_->download(host, some);
    ops_->synchronize();
    const float got = ops::load(Tensor(host, DType::f32, ops::Device::cpu, {some.elements()}), 7);
    ops_->run(ops::Fill{.dst = some, .value = 1});
    ops_->release_host(host);
    if (got != static_cast<float>(size_))
      throw DeviceError(
          concat("calibrate: an all-reduce of ones over ", size_, " GPUs gives ", got));
  }

  /// Bytes per second, by NCCL's tests' definition of bus bandwidth.
  double rate(ops::Transfer kind, int64_t bytes, double seconds) {
    const int64_t n = bytes / 4 / size_ * size_, share = n / size_;
    const Tensor whole = whole_.slice(0, n), part = whole_.slice(rank_ * share, share);
    const auto once = [&] {
      if (kind == ops::Transfer::all_reduce) comm_->all_reduce(whole, comm::Reduce::mean);
      if (kind == ops::Transfer::reduce_scatter)
        comm_->reduce_scatter(part, whole, comm::Reduce::mean);
      if (kind == ops::Transfer::all_gather) comm_->all_gather(whole, part);
      if (kind == ops::Transfer::send) {
        comm_->group_begin();
        comm_->send(whole, (rank_ + 1) % size_);
        comm_->receive(other_.slice(0, n), (rank_ + size_ - 1) % size_);
        comm_->group_end();
      }
    };
    const auto wait = [&] {
      ops_->follow(comm_->mark());
      ops_->wait(ops_->mark());
    };
    for (int i = 0; i < 3; ++i) once();
    comm_->barrier();
    // The same number on every rank: from the rate of a slow link.
    const double traffic = static_cast<double>(bytes);
    const int count = static_cast<int>(std::clamp(seconds / (2e-5 + traffic / 1.5e11), 4.0, 400.0));
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < count; ++i) once();
    wait();
    const double each = std::chrono::duration<double>(Clock::now() - begin).count() / count;
    const double n_ranks = static_cast<double>(size_);
    double moved = traffic;
    if (kind == ops::Transfer::all_reduce) moved = 2 * traffic * (n_ranks - 1) / n_ranks;
    if (kind == ops::Transfer::reduce_scatter || kind == ops::Transfer::all_gather)
      moved = traffic * (n_ranks - 1) / n_ranks;
    return moved / each;
  }

  /// This rank's share of the algorithms: most of the time of a first calibration.
  void choose() { choose_algorithms(*ops_, {}, rank_, size_); }

  /// See Card::hidden_cost: what a layer, repeated without a rest, loses to all-reduces beside it
  /// that take about a third of its time. Both are as fast as the card's power permits.
  double hidden_cost() {
    const CalibrationPlan plan;
    const calibration::Carrier carrier(*ops_, plan);
    calibration::OperandMemory block(*ops_);
    calibration::Operands memory(*ops_, block);
    // Sequences of 2,048 with the carrier's rows and width.
    calibration::Attention attention(
        plan.dtype, {.size = 128,
                     .length = 2048,
                     .heads = plan.carrier_rows / 2048 * plan.carrier_width / 128});
    attention.take(memory);
    calibration::Load layer(*ops_, [&] {
      carrier.queue();
      attention.run(*ops_, false);
      attention.run(*ops_, true);
    });
    const Tensor bucket = whole_.slice(0, int64_t{64} << 18);
    const auto seconds_of = [&](bool computes, bool moves) {
      const auto repeat = [&](int count) {
        constexpr int kTransfers = 12;
        for (int i = 0; i < count; ++i) {
          comm_->follow(ops_->mark());
          for (int t = 0; moves && t < kTransfers; ++t)
            comm_->all_reduce(bucket, comm::Reduce::mean);
          if (computes) layer.once();
          ops_->follow(comm_->mark());
        }
        ops_->wait(ops_->mark());
      };
      constexpr int kSettling = 30, kCounted = 40;
      comm_->barrier();
      repeat(kSettling);
      const Clock::time_point begin = Clock::now();
      repeat(kCounted);
      return std::chrono::duration<double>(Clock::now() - begin).count() / kCounted;
    };
    const double full_clock = calibration::after_rests(*ops_, layer, 0.1);
    const double alone = seconds_of(true, false), both = seconds_of(true, true),
                 moving = seconds_of(false, true);
    // Transfers are as fast as the clock too.
    return std::max(0.0, both - alone) / (moving * std::max(1.0, alone / full_clock));
  }

 private:
  std::unique_ptr<ops::Ops> ops_;
  std::unique_ptr<comm::Comm> comm_;
  int rank_, size_;
  int64_t elements_;
  void* block_ = nullptr;
  Tensor whole_, other_;
};

constexpr ops::Transfer kKinds[] = {ops::Transfer::all_reduce, ops::Transfer::reduce_scatter,
                                    ops::Transfer::all_gather, ops::Transfer::send};
constexpr size_t kSharedKinds = 3;  ///< The first ones, which copy engines can make.

/// First words of a line: then whether copy engines made the transfers, and what was measured.
constexpr const char* kHidden = "hidden";
constexpr const char* kRate = "rate";

/// One rank of a group of `size`; rank 0 writes its measurements to `path`. The last group also
/// chooses algorithms.
int measure_collectives(const TrainConfig& config, int rank, int size, bool last,
                        const std::string& folder, const std::string& path) {
  constexpr unsigned kMostSeconds = 60;  // a failed peer must not block this process forever.
  alarm(kMostSeconds);
  rendezvous::FileStore store(folder);
  CollectiveRank self(config, rank, size, store);
  self.check();
  std::ofstream out;
  if (rank == 0) out.open(path);
  const auto measure = [&](bool copied, std::span<const ops::Transfer> kinds) {
    out << kHidden << ' ' << copied << ' ' << self.hidden_cost() << '\n';
    for (const ops::Transfer kind : kinds)
      for (const int64_t mib : {1, 4, 16, 64, 256}) {
        if (copied && (mib << 20) / size < comm::kLeastSharedBytes) continue;
        out << kRate << ' ' << copied << ' ' << static_cast<int>(kind) << ' ' << mib << ' '
            << self.rate(kind, mib << 20, 0.03) / 1e9 << '\n';
      }
  };
  measure(false, kKinds);
  if (self.share_memory()) {
    alarm(kMostSeconds);
    self.check();
    measure(true, std::span(kKinds).first(kSharedKinds));
  }
  out.close();
  self.leave();
  alarm(0);  // from here on no peer is waited for.
  if (last) self.choose();
  return 0;
}

/// Groups of two, four, ... of this machine's GPUs.
void add_collectives(const TrainConfig& config, int gpus, Card& card) {
  std::string folder = std::filesystem::temp_directory_path() / "calibrate.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    throw std::runtime_error(concat(folder, ": no temporary folder"));
  for (int size = 2; size <= gpus; size *= 2) {
    const std::string meeting = concat(folder, "/", size), path = concat(folder, "/rates", size);
    std::filesystem::create_directory(meeting);
    std::fflush(nullptr);
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        try {
          _exit(measure_collectives(config, rank, size, 2 * size > gpus, meeting, path));
        } catch (const std::exception& error) {
          std::fprintf(stderr, "plan-training: rank %d: %s\n", rank, cli::describe(error).c_str());
          _exit(1);
        }
      }
      ranks.push_back(pid);
    }
    bool failed = false;
    for (const pid_t pid : ranks) {
      int status = 0;
      waitpid(pid, &status, 0);
      failed = failed || status != 0;
    }
    if (failed) {
      std::filesystem::remove_all(folder);
      throw std::runtime_error(concat("collectives of ", size, " GPUs could not be measured"));
    }
    std::ifstream in(path);
    bool copied = false, shares = false;
    for (std::string word; in >> word >> copied;) {
      if (word == kHidden) {  // of the largest group, which is the last.
        in >> (copied ? card.hidden_copy_cost : card.hidden_cost);
        continue;
      }
      shares = shares || copied;
      int kind = 0;
      TransferRate t{.ranks = size};
      in >> kind >> t.mib >> t.gb_per_s;
      t.kind = static_cast<ops::Transfer>(kind);
      (copied ? card.copies : card.transfers).push_back(t);
    }
    // What pairs do says nothing of a host of which not all GPUs are linked.
    if (!shares) card.copies.clear();
  }
  std::filesystem::remove_all(folder);
  card.measured_transfers = !card.transfers.empty();
  for (const TransferRate& t : card.transfers)
    if (t.kind == ops::Transfer::send) card.link_gb_per_s = t.gb_per_s;
}

#endif

/// The data sheet's figures for this machine's card, for what is not measured.
Card data_sheet_of(const std::string& product) {
  const ops::Gpu* gpu = find_product(product);
  Card card = card_of(gpu != nullptr ? *gpu : *ops::find_gpu("a100-80gb"));
  if (gpu == nullptr) card.name = product;
  card.product = product;
  card.transfers.clear();
  card.measured_transfers = false;
  return card;
}

}  // namespace

int calibrate_here(const TrainConfig& config, const std::string& path, double seconds,
                   cli::Console& console) {
  const int gpus = in_a_process([&] { return std::min(visible_gpus(config), 64); });
  if (gpus == 0 || gpus == 255)
    throw cli::UsageError("--calibrate needs a GPU, and there is none here that can be used");
  const Clock::time_point begin = Clock::now();
  std::vector<TransferRate> transfers;
  Card measured;
#ifdef GRISTMILL_NCCL
  if (gpus > 1) add_collectives(config, gpus, measured);
#endif
  const std::string product = gpu_product(config);
  Card card = data_sheet_of(product);
  const std::unique_ptr<ops::Ops> ops = open_device(config);
  constexpr double kContextGib = 0.572;  // is taken already.
  card.memory_gib = static_cast<double>(ops->free_bytes()) / kGib + kContextGib;
  if (measured.measured_transfers) {
    card.transfers = measured.transfers;
    card.measured_transfers = true;
    card.link_gb_per_s = measured.link_gb_per_s;
    card.hidden_cost = measured.hidden_cost;
    card.hidden_copy_cost = measured.hidden_copy_cost;
    card.copies = measured.copies;
    card.peer_gib = card.copies.empty() ? 0 : kPeerGib;
  }
  calibrate(*ops,
            {.seconds = seconds,
             .progress =
                 [&](double share) {
                   console.progress({.done = static_cast<int64_t>(share * 100), .total = 100});
                 }},
            card);
  console.clear_progress();
  card.source = concat("measured by --calibrate on ", gpus, gpus == 1 ? " GPU" : " GPUs", ", ",
                       ops->describe());
  const std::string text = card_text(card);
  parse_card(text, path);  // checks that the written text can be read.
  if (path == "-") {
    cli::print(text);
    cli::finish_stdout();
  } else {
    indexed::OutputFile out(path, indexed::Existing::replace);
    out.write(text);
    out.commit();
  }
  console.note(concat(
      product, ": ", card.products.size(), " products, ", card.attention.size(),
      " shapes of attention, ", card.passes.size(), " passes, ", card.transfers.size(),
      " collectives",
      card.copies.empty() ? "" : concat(" and ", card.copies.size(), " by copy engines"), " in ",
      cli::readable_time(std::chrono::duration<double>(Clock::now() - begin).count())));
  return 0;
}

}  // namespace trainer
