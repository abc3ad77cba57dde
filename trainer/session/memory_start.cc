// See memory_start.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/memory_start.h"

#include <cstdlib>

#include "libindexed/format.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/shard_files.h"
#include "trainer/session/assembly.h"
#include "trainer/session/restart.h"

namespace trainer {
namespace {

using cli::concat;

constexpr int kChannel = 1;

// Checks this rank's share of the files; returns what is wrong with them.
std::string damage(Checkpoint& checkpoint, const Job& job) {
  const int64_t world = job.launch().world_size;
  int64_t number = 0;
  std::map<std::string, bool> mine;
  for (const auto& [name, bytes] : checkpoint.meta().files)
    mine[name] = number++ / 2 % world == job.rank();
  try {
    checkpoint.verify([&](const std::string& file) { return mine[file]; });
  } catch (const indexed::FormatError& error) {
    return error.what();
  }
  return "";
}

// The newest one above `floor` that no rank finds damaged.
std::optional<Checkpoint> undamaged(const MemoryCheckpoints& memory, int64_t floor, Job& job,
                                    cli::Console& console) {
  for (const int64_t iteration : memory.iterations()) {
    if (iteration < floor) break;
    Checkpoint checkpoint = memory.open(iteration);
    std::string why;
    for (const std::string& found : job.exchange(damage(checkpoint, job)))
      if (why.empty()) why = found;
    if (why.empty()) return checkpoint;
    if (job.speaks())
      console.error(concat(why, ": the checkpoint of step ", iteration, " in memory is not used"));
  }
  return std::nullopt;
}

}  // namespace

void note_what_is_taken(int64_t taken, int64_t in_memory, int64_t on_disk, cli::Console& console) {
  const auto step = [](int64_t iteration, const char* none) {
    return iteration < 0 ? none : concat("step ", iteration);
  };
  const std::string others = concat(" (in memory: ", step(in_memory, "no checkpoint"),
                                    ", on disk: ", step(on_disk, "no complete checkpoint"), ")");
  if (taken >= 0)
    console.note(concat("continuing from step ", taken, " in memory", others));
  else if (on_disk >= 0)
    console.note(concat("continuing from step ", on_disk, " on disk", others));
  else
    console.note(concat("nothing in memory to continue from", others));
}

std::optional<MemoryCheckpoints> memory_of(const TrainConfig& config, const Job& job,
                                           rendezvous::FileRing* ring) {
  const rendezvous::Launch& launch = job.launch();
  if (!config.in_memory_checkpoint || launch.memory_files.empty()) return std::nullopt;
  MemoryHosts hosts{.count = launch.nodes, .ranks = launch.local_size, .own = launch.node};
  if (ring != nullptr)
    hosts.exchange = [ring](int64_t number, const std::vector<int>& out, const std::vector<int>& in,
                            const std::function<bool()>& given_up) {
      std::vector<rendezvous::OutgoingFile> files;
      for (const int fd : out) files.push_back({.fd = fd});
      return ring->exchange(number, files, in, given_up);
    };
  return std::optional<MemoryCheckpoints>(std::in_place, launch.memory_files,
                                          job.writer_place(kChannel), std::move(hosts));
}

std::optional<Checkpoint> newest_in_memory(const MemoryCheckpoints& memory,
                                           const TrainConfig& config, Job& job,
                                           cli::Console& console) {
  if (job.launch().restarts == 0) return std::nullopt;
  const int64_t on_disk = whole_saved_iteration(config, job.launch().run);
  const std::vector<int64_t> held = memory.iterations();
  std::optional<Checkpoint> found = undamaged(memory, on_disk, job, console);
  const int64_t taken = found ? found->meta().state.iteration : -1;
  job.barrier();  // all have looked.
  memory.forget_after(found ? taken : on_disk);
  note_what_is_taken(taken, held.empty() ? -1 : held.front(), on_disk, console);
  return found;
}

int64_t checkpoint_bytes(const ModelSpec& spec, const EngineOptions& options, bool optimizer) {
  int64_t bytes = 0;
  for (const ParamSpec& param : param_table(spec)) {
    int64_t item = size_bytes(options.model_dtype);
    if (optimizer) {
      item += options.model_dtype == DType::f32 ? 0 : 4;
      for (const StateSpec& state : optimizer_states(options.optimizer))
        if (keeps(state, param))
          item += size_bytes(state.always_fp32 ? DType::f32 : options.moment_dtype);
    }
    bytes += param.elements() * item;
  }
  return bytes;
}

// The snapshot from which a checkpoint is written counts too.
std::string in_memory_note(const TrainConfig& config, const ModelSpec& spec,
                           const EngineOptions& options, int64_t hosts) {
  const double bytes = static_cast<double>(checkpoint_bytes(spec, options, true));
  const bool many = hosts > 1;
  std::string out = concat(
      "a checkpoint every ", *config.in_memory_checkpoint, " steps, two are kept",
      many ? ", each also on the next host: " : ": ", cli::readable_bytes((many ? 5 : 3) * bytes),
      " of host memory over all ranks, at ", cli::readable_bytes(bytes),
      many ? " each and each copy and one being taken" : " each and one being taken");
  if (hosts > 2)
    out += concat("; a restart takes ", cli::readable_bytes(bytes),
                  " more on each host while it loads");
  return out;
}

}  // namespace trainer
