// See engine_step.h. The ranks are forked before CUDA is touched and meet in a temporary folder.
// SPDX-License-Identifier: MIT
#include "bench/step/engine_step.h"

#include <cuda_runtime.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "bench/step/device_meter.h"
#include "bench/step/timed_ops.h"
#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/cuda/cuda_ops.h"
#ifdef GRISTMILL_NCCL
#include "trainer/comm/nccl.h"
#include "trainer/rendezvous/file_store.h"
#endif

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPeakFlops = 989.4e12;
constexpr int kWarmUp = 6;

trainer::ModelSpec spec_of(const GptShape& shape, const EngineRun& run) {
  trainer::ModelSpec spec = trainer::family_defaults(shape.family);
  spec.num_layers = shape.layers;
  spec.hidden_size = shape.hidden;
  spec.num_attention_heads = shape.heads;
  spec.num_query_groups = shape.groups;
  spec.ffn_hidden_size = shape.ffn;
  spec.max_position_embeddings = shape.seq_length;
  spec.vocab_size = shape.vocabulary == 50304 ? 50257 : shape.vocabulary;
  spec.padded_vocab_size = shape.vocabulary;
  spec.hidden_dropout = run.hidden_dropout;
  spec.attention_dropout = run.attention_dropout;
  trainer::complete(spec);
  return spec;
}

trainer::EngineOptions options_of(const GptShape& shape, const EngineRun& run) {
  trainer::EngineOptions options = run.options;
  options.seq_length = shape.seq_length;
  options.micro_batch_size = shape.micro_batch_size;
  options.max_microbatches = run.microbatches;
  options.adam_beta2 = 0.95f;
  options.reset_attention_mask = run.documents > 0;
  if (run.half_state) {
    options.grad_dtype = options.model_dtype;
    options.moment_dtype = ops::DType::bf16;
  }
  if (run.lean) options.recompute.granularity = trainer::Recompute::Granularity::full;
  return options;
}

/// A rank's place, and how it learns a number from rank 0.
struct Rank {
  trainer::Groups groups;
  std::function<int64_t(const std::string&, int64_t)> share;
};

class Measurement {
 public:
  Measurement(const GptShape& shape, const EngineRun& run, Rank rank)
      : shape_(shape),
        run_(run),
        spec_(spec_of(shape, run)),
        topology_(rank.groups.topology),
        share_(std::move(rank.share)),
        ops_({.device_index = topology_.rank(),
              .gemm_choices_path = run_.choices,
              .hold_seconds = run_.hold}),
        free_at_start_(ops_.free_bytes()),
        engine_(spec_, options_of(shape, run),
                run.shares ? static_cast<ops::Ops&>(timed_ops_) : ops_, std::move(rank.groups)) {}

  void hold_and_print() {
    engine_.initialise();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kWarmUp / 2; ++i) queue();
    ops_.synchronize();
    const float first = engine_.result().loss;
    const Clock::time_point warm = Clock::now();
    for (int i = 0; i < kWarmUp; ++i) queue();
    ops_.synchronize();
    const double step = std::chrono::duration<double>(Clock::now() - warm).count() / kWarmUp;
    const int64_t steps = share_("steps", std::max<int64_t>(8, int64_t(run_.seconds / 2 / step)));
    if (topology_.rank() == 0)
      std::printf("%s engine: %.1f GB planned, tuning and first steps %.1f s, loss %.4f\n",
                  shape_.name, static_cast<double>(engine_.memory_plan().total_bytes) / 1e9,
                  std::chrono::duration<double>(warm - start).count(), static_cast<double>(first));
    for (int64_t i = 0; i < steps; ++i) queue();
    if (run_.shares) return print_shares();
    ops_.synchronize();
    const double before = ops_.seconds_waited().value_or(0);
    DeviceMeter meter;
    const std::vector<float> ms = timed(steps);
    const double waited = ops_.seconds_waited().value_or(0) - before;
    if (topology_.rank() == 0) print(ms, 1e3 * waited / static_cast<double>(steps), meter.stop());
  }

 private:
  void print_shares() {
    constexpr int kSteps = 5;
    timed_ops_.begin();
    for (int i = 0; i < kSteps; ++i) queue();
    std::printf("%s engine, call by call\n", shape_.name);
    timed_ops_.print(kSteps);
  }

  void queue() {
    const trainer::HostBatch batch = engine_.host_batch();
    std::mt19937 random(static_cast<uint32_t>(iteration_ % 4 * 64 + topology_.data_rank));
    const auto vocabulary = static_cast<uint32_t>(spec_.vocab_size);
    const int64_t rows = shape_.tokens();
    for (size_t i = 0; i < static_cast<size_t>(rows * run_.microbatches); ++i) {
      batch.tokens[i] = static_cast<int32_t>(random() % vocabulary);
      batch.labels[i] = static_cast<int32_t>(random() % vocabulary);
      batch.positions[i] =
          static_cast<int32_t>(static_cast<int64_t>(i) % rows / shape_.micro_batch_size);
      batch.loss_mask[i] = 1;
      if (run_.documents > 0)
        batch.first_key[i] =
            static_cast<int32_t>(batch.positions[i] / run_.documents * run_.documents);
    }
    engine_.step(++iteration_, run_.microbatches, 1e-4f, 0.1f);
    if (iteration_ > 2) static_cast<void>(engine_.result(1));
  }

  /// As GptShape::flops_per_token, of any family: a table of embeddings that is not the output
  /// layer too is only looked up.
  double flops_per_token() const {
    const double attention = static_cast<double>(shape_.layers * shape_.hidden * shape_.seq_length);
    const int64_t looked_up =
        spec_.tied_embeddings ? 0 : spec_.padded_vocab_size * spec_.hidden_size;
    return 6 * static_cast<double>(trainer::count_parameters(spec_) - looked_up) + 6 * attention;
  }

  /// Milliseconds of each of `steps` steps, sorted.
  std::vector<float> timed(int64_t steps) {
    std::vector<cudaEvent_t> events(static_cast<size_t>(steps) + 1);
    for (cudaEvent_t& event : events) {
      CUDA_CHECK(cudaEventCreate(&event));
      if (&event != &events.front()) queue();
      CUDA_CHECK(cudaEventRecord(event, ops_.stream()));
    }
    ops_.synchronize();
    std::vector<float> ms(events.size() - 1);
    for (size_t i = 0; i + 1 < events.size(); ++i)
      CUDA_CHECK(cudaEventElapsedTime(&ms[i], events[i], events[i + 1]));
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    std::sort(ms.begin(), ms.end());
    return ms;
  }

  /// Of rank 0: milliseconds of each step, sorted, and how many of one were spent waiting for
  /// transfers, on average.
  void print(const std::vector<float>& ms, double waited, const DeviceMeter::Reading& reading) {
    const double seconds = static_cast<double>(ms[ms.size() / 2]) / 1e3;
    const double samples =
        static_cast<double>(shape_.micro_batch_size * run_.microbatches * topology_.data_size);
    const double tokens = samples * static_cast<double>(shape_.seq_length);
    const double gpus = topology_.world_size();
    const double peak = seconds * gpus * kPeakFlops;
    std::printf(
        "%s engine, tensor %d%s x pipeline %d x data %d, %lld x %lld x %lld tokens: %.0f tokens/s, "
        "%.0f a GPU (median of %zu steps, %.2f ms; 10%% %.2f, 90%% %.2f; waits %.2f), MFU %.1f%% "
        "(attention whole: %.1f%%), planned %.2f GB, taken %.2f GB, SM %.0f MHz, %.0f W, "
        "%.2f mJ/token, loss %.3f\n",
        shape_.name, topology_.tensor_size, run_.options.sequence_parallel ? " + sequence" : "",
        topology_.pipeline_size, topology_.data_size, static_cast<long long>(run_.microbatches),
        static_cast<long long>(shape_.micro_batch_size), static_cast<long long>(shape_.seq_length),
        tokens / seconds, tokens / seconds / gpus, ms.size(), seconds * 1e3,
        static_cast<double>(ms[ms.size() / 10]), static_cast<double>(ms[ms.size() * 9 / 10]),
        waited, 100 * tokens * flops_per_token() / peak,
        100 * samples * trainer::flops_per_sample(spec_, shape_.seq_length) / peak,
        static_cast<double>(engine_.memory_plan().total_bytes) / 1e9,
        static_cast<double>(free_at_start_ - ops_.free_bytes()) / 1e9, reading.mean_mhz,
        reading.mean_watts, reading.mean_watts * gpus / (tokens / seconds) * 1e3,
        static_cast<double>(engine_.result().loss));
    std::fflush(stdout);
  }

  const GptShape& shape_;
  const EngineRun& run_;
  const trainer::ModelSpec spec_;
  const trainer::Topology topology_;
  std::function<int64_t(const std::string&, int64_t)> share_;
  ops::cuda::CudaOps ops_;
  TimedOps timed_ops_{ops_};
  int64_t free_at_start_;
  trainer::Engine engine_;
  int64_t iteration_ = 0;
};

#ifdef GRISTMILL_NCCL
/// One rank's whole life; its exit status.
int run_rank(const GptShape& shape, const EngineRun& run, int rank, const std::string& folder) {
  try {
    rendezvous::FileStore store(folder);
    ops::cuda::device_count();  // asks for the trainer's number of queues before CUDA starts
    CUDA_CHECK(cudaSetDevice(rank));
    const auto share = [&](const std::string& name, int64_t value) {
      if (rank == 0) store.set(name, std::to_string(value));
      return int64_t{std::stoll(store.get(name, std::chrono::minutes(5)))};
    };
    const trainer::Topology topology =
        trainer::make_topology(rank, run.gpus, run.tensor, run.pipeline);
    trainer::Groups groups = trainer::make_groups(topology, [&](const trainer::GroupPlace& place) {
      comm::NcclOptions options;
      options.name = place.name;
      options.id = place.id;
      options.rank = place.rank;
      options.size = static_cast<int>(place.ranks.size());
      options.device_index = rank;
      return comm::make_nccl_comm(options, store);
    });
    Measurement(shape, run, {.groups = std::move(groups), .share = share}).hold_and_print();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-step: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

void run_ranks(const GptShape& shape, const EngineRun& run) {
  std::string folder = std::filesystem::temp_directory_path() / "bench-step.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
  std::vector<pid_t> children;
  for (int rank = 0; rank < run.gpus; ++rank) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run_rank(shape, run, rank, folder));
    }
    children.push_back(child);
  }
  bool failed = false;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (wait(&status) < 0 || status == 0) continue;
    failed = true;  // the others wait for it for ever.
    for (const pid_t child : children) kill(child, SIGTERM);
  }
  std::filesystem::remove_all(folder);
  if (failed) throw std::runtime_error("a rank failed");
}
#endif

}  // namespace

void measure_engine(const GptShape& shape, const EngineRun& run) {
  if (run.gpus == 1) {
    const auto alone = [](const std::string&, int64_t value) { return value; };
    Measurement(shape, run, {.groups = trainer::solo_groups(), .share = alone}).hold_and_print();
    return;
  }
#ifdef GRISTMILL_NCCL
  run_ranks(shape, run);
#else
  throw std::runtime_error("built without NCCL: one GPU");
#endif
}

}  // namespace bench
