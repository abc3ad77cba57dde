// Recognises launchers by their variables, the most specific first: torchrun runs inside srun, and
// this program's own processes inside either.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/launch.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/rendezvous/sha256.h"

namespace rendezvous {
namespace {

constexpr int kDefaultPort = 29500;
/// Stands before the job of SLURM in Launch::run; ids are hexadecimal.
constexpr std::string_view kJob = "-slurm-";

/// Reads variables as numbers; throws if they are not.
struct Reader {
  const Environment& environment;

  std::string text(const char* name) const {
    const char* value = environment(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  std::optional<int> number(const char* name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    char* end = nullptr;
    const long parsed = std::strtol(value.c_str(), &end, 10);
    if (*end != 0 || parsed < 0 || parsed > 1 << 24)
      throw LaunchError(std::string(name) + "=" + value + " is no count");
    return static_cast<int>(parsed);
  }
  int needed(const char* name, const char* beside) const {
    const std::optional<int> value = number(name);
    if (!value)
      throw LaunchError(std::string(beside) + " is set, " + name +
                        " is not: set both, or start with one of trainer --nproc-per-node, "
                        "torchrun, srun, mpirun");
    return *value;
  }
};

/// A port that all ranks of a job derive from the same text; away from the ephemeral ones.
int port_from(const std::string& job) {
  const std::string digest = sha256(job);
  const int value = static_cast<uint8_t>(digest[0]) << 8 | static_cast<uint8_t>(digest[1]);
  return 10000 + value % 20000;
}

/// "3,4,5".
std::vector<int> numbers(const std::string& list) {
  std::vector<int> out;
  for (size_t at = 0; at < list.size(); at = std::min(list.find(',', at), list.size()) + 1)
    out.push_back(std::atoi(list.c_str() + at));
  return out;
}

std::string listed(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return out;
}

bool read_own(const Reader& env, Launch& launch) {
  if (!env.has("GRISTMILL_RANK")) return false;
  const char* beside = "GRISTMILL_RANK";
  launch.by_trainer = true;
  launch.launcher = env.text("GRISTMILL_LAUNCHER");
  launch.rank = *env.number("GRISTMILL_RANK");
  launch.world_size = env.needed("GRISTMILL_WORLD_SIZE", beside);
  launch.local_rank = env.needed("GRISTMILL_LOCAL_RANK", beside);
  launch.local_size = env.needed("GRISTMILL_LOCAL_SIZE", beside);
  launch.node = env.needed("GRISTMILL_NODE", beside);
  launch.nodes = env.needed("GRISTMILL_NODES", beside);
  launch.address = env.text("GRISTMILL_ADDRESS");
  launch.port = env.needed("GRISTMILL_PORT", beside);
  launch.exact_port = env.needed("GRISTMILL_EXACT_PORT", beside) != 0;
  launch.listener = env.number("GRISTMILL_LISTENER").value_or(-1);
  launch.job = env.text("GRISTMILL_JOB");
  launch.run = env.text("GRISTMILL_RUN");
  launch.secret = env.text("GRISTMILL_JOB_SECRET");
  launch.restarts = env.number("GRISTMILL_RESTARTS").value_or(0);
  launch.began_ms = std::strtoll(env.text("GRISTMILL_BEGAN_MS").c_str(), nullptr, 10);
  launch.tracker = env.text("GRISTMILL_TRACKER");
  launch.memory_files = numbers(env.text("GRISTMILL_MEMORY_FILES"));
  launch.end_file = env.number("GRISTMILL_END_FILE").value_or(-1);
  launch.device = env.number("GRISTMILL_DEVICE").value_or(-1);
  launch.devices = env.number("GRISTMILL_DEVICES").value_or(0);
  return true;
}

/// Whether srun started this process: a batch script and an interactive shell are no tasks of it.
bool is_step(const Reader& env) {
  const std::string step = env.text("SLURM_STEP_ID");
  return env.has("SLURM_PROCID") && !step.empty() && step != "4294967291" && step != "4294967292" &&
         step != "batch";
}

bool read_torchrun(const Reader& env, Launch& launch) {
  if (!env.has("TORCHELASTIC_RUN_ID") || !env.has("RANK")) return false;
  launch.launcher = "torchrun";
  launch.rank = *env.number("RANK");
  launch.world_size = env.needed("WORLD_SIZE", "RANK");
  launch.local_rank = env.needed("LOCAL_RANK", "RANK");
  launch.local_size = env.number("LOCAL_WORLD_SIZE").value_or(1);
  launch.node = env.number("GROUP_RANK").value_or(launch.rank / launch.local_size);
  launch.nodes = std::max(1, launch.world_size / std::max(1, launch.local_size));
  launch.address = env.text("MASTER_ADDR");
  // torchrun itself listens on MASTER_PORT.
  launch.port = env.number("MASTER_PORT").value_or(kDefaultPort) + 1;
  launch.restarts = env.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  launch.job = "torchrun " + env.text("TORCHELASTIC_RUN_ID") + " " + env.text("MASTER_PORT") + " " +
               std::to_string(launch.restarts);
  // Without --rdzv-id torchrun says "none". An id may be any bytes, but is written into text.
  const std::string id = env.text("TORCHELASTIC_RUN_ID");
  if (id != "none") launch.run = to_hex(id);
  // Many jobs of SLURM may give the same one, such as a tutorial's.
  if (!launch.run.empty() && env.has("SLURM_JOB_ID"))
    launch.run += std::string(kJob) + to_hex(env.text("SLURM_JOB_ID"));
  launch.requeued = env.number("SLURM_RESTART_COUNT").value_or(0) > 0;
  const int tasks = env.number("SLURM_STEP_NUM_TASKS").value_or(1);
  const int hosts = env.number("SLURM_STEP_NUM_NODES").value_or(tasks);
  if (tasks > hosts)
    throw LaunchError("srun started " + std::to_string(tasks) + " tasks on " +
                      std::to_string(hosts) +
                      " nodes and each of them started torchrun: give srun --ntasks-per-node=1, "
                      "or leave torchrun out: srun trainer needs none");
  return true;
}

bool read_slurm(const Reader& env, Launch& launch, int devices) {
  const int asked = env.number("SLURM_NTASKS").value_or(1);
  if (!is_step(env)) {
    if (env.has("SLURM_JOB_ID") && asked > 1)
      launch.remarks.push_back("SLURM's allocation has " + std::to_string(asked) +
                               " tasks, but this process was not started by srun: say "
                               "srun trainer to use them all");
    return false;
  }
  launch.launcher = "srun";
  launch.rank = *env.number("SLURM_PROCID");
  launch.world_size = env.number("SLURM_STEP_NUM_TASKS").value_or(asked);
  launch.nodes =
      env.number("SLURM_STEP_NUM_NODES").value_or(env.number("SLURM_NNODES").value_or(1));
  launch.node = env.number("SLURM_NODEID").value_or(0);
  launch.local_rank = env.number("SLURM_LOCALID").value_or(0);
  // "8(x2),4" or "8": of this node; tasks are as even as SLURM makes them.
  launch.local_size = std::max(launch.local_rank + 1, launch.world_size / launch.nodes);
  launch.job = "slurm " + env.text("SLURM_JOB_ID") + "." + env.text("SLURM_STEP_ID") + " " +
               env.text("SLURM_RESTART_COUNT");
  launch.one_per_host = launch.world_size == launch.nodes;
  launch.per_node = launch.one_per_host && devices > 1;
  const std::string nodes =
      env.has("SLURM_STEP_NODELIST") ? env.text("SLURM_STEP_NODELIST") : env.text("SLURM_NODELIST");
  const std::vector<std::string> hosts = expand_hosts(nodes);
  if (launch.nodes > 1 || launch.per_node) {
    launch.address = hosts.empty() ? "" : hosts.front();
    launch.port = port_from(launch.job);
    if (launch.nodes > 1 && launch.address.empty())
      throw LaunchError("SLURM_STEP_NODELIST=" + nodes +
                        " names no host: say where rank 0 is with --rendezvous HOST:PORT");
  }
  return true;
}

struct MpiNames {
  const char *launcher, *rank, *size, *local_rank, *local_size, *job;
};
constexpr MpiNames kMpi[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_ID"},
    {"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_APID"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_LOCAL_SIZE",
     "FLUX_JOB_ID"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", "LSB_JOBID"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "HYDRA_JOBID"}};

bool read_mpi(const Reader& env, Launch& launch) {
  for (const MpiNames& names : kMpi) {
    const std::optional<int> rank = env.number(names.rank);
    if (!rank) continue;
    launch.launcher = names.launcher;
    launch.rank = *rank;
    launch.world_size = env.needed(names.size, names.rank);
    launch.local_rank = env.number(names.local_rank).value_or(launch.rank);
    launch.local_size = env.number(names.local_size).value_or(launch.world_size);
    launch.nodes = std::max(1, launch.world_size / std::max(1, launch.local_size));
    launch.node = launch.rank / std::max(1, launch.local_size);
    launch.address = env.text("MASTER_ADDR");
    launch.job = env.text(names.job).empty() ? "" : launch.launcher + " " + env.text(names.job);
    launch.port = env.number("MASTER_PORT").value_or(port_from(launch.job));
    if (launch.nodes > 1 && launch.address.empty())
      throw LaunchError(std::string(names.launcher) + " started ranks on " +
                        std::to_string(launch.nodes) +
                        " hosts and tells none where rank 0 is: use --rendezvous HOST:PORT, or "
                        "--rendezvous file:PATH in a folder that all hosts see");
    return true;
  }
  return false;
}

/// RANK and WORLD_SIZE by hand, by pdsh, by Kubernetes or PAI: with LOCAL_RANK one process for each
/// device, without it one for each host.
bool read_plain(const Reader& env, Launch& launch, int devices) {
  const char* name = env.has("RANK") ? "RANK" : "JOB_COMPLETION_INDEX";
  const std::optional<int> rank = env.number(name);
  if (!rank || !env.has("WORLD_SIZE")) {
    if (rank && name == std::string("RANK")) env.needed("WORLD_SIZE", name);
    if (env.number("WORLD_SIZE").value_or(1) > 1) env.needed("RANK", "WORLD_SIZE");
    return false;
  }
  launch.launcher = "environment";
  launch.rank = *rank;
  launch.world_size = *env.number("WORLD_SIZE");
  const std::optional<int> local = env.number("LOCAL_RANK");
  launch.local_size =
      env.number("LOCAL_WORLD_SIZE")
          .value_or(local ? env.number("LOCAL_SIZE").value_or(launch.world_size)  // set by
                                                                                  // deepspeed
                          : 1);
  launch.local_rank = local.value_or(0);
  launch.nodes = std::max(1, launch.world_size / std::max(1, launch.local_size));
  launch.node = launch.rank / std::max(1, launch.local_size);
  launch.one_per_host = !local;
  launch.per_node = !local && devices > 1;
  launch.address = env.text("MASTER_ADDR");
  launch.port = env.number("MASTER_PORT").value_or(kDefaultPort);
  // The address is left out: one host may name it as its loopback, another by number.
  launch.job = "environment " + std::to_string(launch.port);
  if (launch.world_size > 1 && launch.address.empty())
    throw LaunchError(std::string(name) +
                      " and WORLD_SIZE are set, MASTER_ADDR is not: set it to "
                      "the host of rank 0");
  if (launch.local_size > launch.world_size || launch.local_rank >= launch.local_size)
    throw LaunchError("local rank " + std::to_string(launch.local_rank) + " of " +
                      std::to_string(launch.local_size) +
                      " on a host, and WORLD_SIZE=" + std::to_string(launch.world_size) +
                      ": WORLD_SIZE counts the ranks of all "
                      "hosts");
  return true;
}

/// PMIx without a launcher that sets more: each process would consider itself the only one.
void refuse_pmix_alone(const Reader& env) {
  if (env.has("PMIX_RANK"))
    throw LaunchError("PMIX_RANK=" + env.text("PMIX_RANK") +
                      " is set, and no variable tells how many ranks there are: set RANK, "
                      "WORLD_SIZE, LOCAL_RANK and MASTER_ADDR, or start with srun or mpirun");
}

void check_address(const Launch& launch) {
  if (launch.address.find_first_of(" ,\t\n") != std::string::npos)
    throw LaunchError("rank 0 at \"" + launch.address +
                      "\" is more than one address (hostname -I prints all of a host's): name one "
                      "that the other hosts reach");
  if (!launch.address.empty() && (launch.port < 1 || launch.port > 65535))
    throw LaunchError("port " + std::to_string(launch.port) + ": permitted is 1 to 65535");
}

void check(const Reader& env, Launch& launch) {
  check_address(launch);
  const std::string world = env.text("WORLD_SIZE");
  const bool by_world =
      launch.launcher == "torchrun" || launch.launcher == "environment" || launch.device >= 0;
  if (!by_world && !launch.per_node && !world.empty() && world != std::to_string(launch.world_size))
    launch.remarks.push_back("WORLD_SIZE=" + world + " is set, and " + launch.launcher +
                             " started " + std::to_string(launch.world_size) +
                             " tasks: the tasks count");
  if (launch.world_size < 1 || launch.rank >= launch.world_size)
    throw LaunchError(launch.launcher + ": rank " + std::to_string(launch.rank) + " of " +
                      std::to_string(launch.world_size) + ": a rank is below the world size");
  const std::string interface = env.text("NCCL_SOCKET_IFNAME");
  if (launch.nodes > 1 && (interface == "lo" || interface.starts_with("docker")))
    launch.remarks.push_back("NCCL_SOCKET_IFNAME=" + interface +
                             " is not reachable from the other hosts: unset it, or name the "
                             "interface between them");
}

}  // namespace

std::string Launch::describe() const {
  std::string out = launcher.empty() ? "no launcher" : launcher;
  out += ": rank " + std::to_string(rank) + " of " + std::to_string(world_size);
  out += ", local rank " + std::to_string(local_rank) + " of " + std::to_string(local_size);
  out += ", node " + std::to_string(node) + " of " + std::to_string(nodes);
  if (world_size > 1 && !address.empty())
    out += "; rank 0 at " + address + " port " + std::to_string(port);
  return out;
}

Environment with_hosts(Environment environment, const HostFlags& hosts) {
  const bool started =
      environment("GRISTMILL_RANK") != nullptr || environment("TORCHELASTIC_RUN_ID") != nullptr;
  if (hosts.nodes <= 1 || started) return environment;
  const std::map<std::string, std::string, std::less<>> said = {
      {"RANK", std::to_string(hosts.node_rank)},
      {"WORLD_SIZE", std::to_string(hosts.nodes)},
      {"MASTER_ADDR", hosts.address},
      {"MASTER_PORT", std::to_string(hosts.port == 0 ? kDefaultPort : hosts.port)}};
  return [environment = std::move(environment), said](const char* name) -> const char* {
    const auto found = said.find(name);
    if (found != said.end()) return found->second.c_str();
    const std::string_view asked = name;
    for (const std::string_view launcher :
         {"LOCAL_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "PALS_", "FLUX_", "JSM_"})
      if (asked.starts_with(launcher)) return nullptr;
    return environment(name);
  };
}

Launch detect_launch(const Environment& environment, int devices) {
  const Reader env{environment};
  Launch launch;
  if (read_own(env, launch) || read_torchrun(env, launch) || read_slurm(env, launch, devices) ||
      read_mpi(env, launch) || read_plain(env, launch, devices)) {
    if (launch.secret.empty()) launch.secret = env.text("GRISTMILL_JOB_SECRET");
    check(env, launch);
    // Ranks of one host meet through a file, whatever the host's name is.
    if (launch.nodes == 1 && !launch.per_node && launch.launcher != "trainer" &&
        launch.launcher != "environment" && launch.listener < 0 && !launch.exact_port)
      launch.address.clear();
    return launch;
  }
  refuse_pmix_alone(env);
  launch.per_node = devices > 1;
  return launch;
}

bool may_be_one_run(const std::string& a, const std::string& b) {
  const std::string &less = a.size() < b.size() ? a : b, &more = a.size() < b.size() ? b : a;
  return !less.empty() && more.starts_with(less + std::string(kJob));
}

std::string agreed_run(const std::vector<std::string>& runs) {
  std::string agreed = runs.front();
  for (const std::string& run : runs) {
    if (may_be_one_run(agreed, run) && run.size() > agreed.size()) agreed = run;
    if (run != agreed && !may_be_one_run(agreed, run)) return run.substr(0, run.find(kJob));
  }
  return agreed;
}

std::vector<Launch> ranks_on_host(const Launch& host, int processes) {
  std::vector<Launch> out;
  for (int i = 0; i < processes; ++i) {
    Launch one = host;
    if (one.launcher.empty()) one.launcher = "trainer";
    one.per_node = one.one_per_host = false;
    one.by_trainer = true;
    one.local_rank = i;
    one.local_size = processes;
    one.node = host.rank;
    one.nodes = host.world_size;
    one.rank = host.rank * processes + i;
    one.world_size = host.world_size * processes;
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> to_variables(const Launch& l) {
  return {{"GRISTMILL_RANK", std::to_string(l.rank)},
          {"GRISTMILL_WORLD_SIZE", std::to_string(l.world_size)},
          {"GRISTMILL_LOCAL_RANK", std::to_string(l.local_rank)},
          {"GRISTMILL_LOCAL_SIZE", std::to_string(l.local_size)},
          {"GRISTMILL_NODE", std::to_string(l.node)},
          {"GRISTMILL_NODES", std::to_string(l.nodes)},
          {"GRISTMILL_LAUNCHER", l.launcher},
          {"GRISTMILL_ADDRESS", l.address},
          {"GRISTMILL_PORT", std::to_string(l.port)},
          {"GRISTMILL_EXACT_PORT", l.exact_port ? "1" : "0"},
          {"GRISTMILL_LISTENER", l.listener >= 0 ? std::to_string(l.listener) : ""},
          {"GRISTMILL_DEVICE", l.device >= 0 ? std::to_string(l.device) : ""},
          {"GRISTMILL_DEVICES", std::to_string(l.devices)},
          {"GRISTMILL_JOB", l.job},
          {"GRISTMILL_RUN", l.run},
          {"GRISTMILL_JOB_SECRET", l.secret},
          {"GRISTMILL_RESTARTS", std::to_string(l.restarts)},
          {"GRISTMILL_BEGAN_MS", std::to_string(l.began_ms)},
          {"GRISTMILL_TRACKER", l.tracker},
          {"GRISTMILL_MEMORY_FILES", listed(l.memory_files)},
          {"GRISTMILL_END_FILE", l.end_file >= 0 ? std::to_string(l.end_file) : ""}};
}

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < list.size()) {
    const size_t open = list.find_first_of("[,", at);
    if (open == std::string::npos || list[open] == ',') {
      const std::string name = list.substr(at, open == std::string::npos ? open : open - at);
      if (!name.empty()) out.push_back(name);
      at = open == std::string::npos ? list.size() : open + 1;
      continue;
    }
    const size_t close = list.find(']', open);
    if (close == std::string::npos) return {};
    const std::string prefix = list.substr(at, open - at);
    const size_t end = std::min(list.find(',', close), list.size());
    const std::string suffix = list.substr(close + 1, end - close - 1);
    std::string ranges = list.substr(open + 1, close - open - 1) + ",";
    for (size_t comma; (comma = ranges.find(',')) != std::string::npos;
         ranges = ranges.substr(comma + 1)) {
      const std::string range = ranges.substr(0, comma);
      const size_t dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
      for (long n = std::atol(first.c_str()); n <= std::atol(last.c_str()); ++n) {
        std::string digits = std::to_string(n);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        out.push_back(prefix + digits + suffix);
      }
    }
    at = end + 1;
  }
  return out;
}

int device_of(const Launch& launch, int visible) {
  if (launch.device >= 0) {
    if (launch.device < visible) return launch.device;
    throw LaunchError("GPU " + std::to_string(launch.device) + " is not there: this host has " +
                      std::to_string(visible) + " now, and had " + std::to_string(launch.devices) +
                      " when the run began");
  }
  if (launch.local_rank < visible) return launch.local_rank;
  if (visible == 1) return 0;
  throw LaunchError("local rank " + std::to_string(launch.local_rank) + " of " +
                    std::to_string(launch.local_size) + " sees " + std::to_string(visible) +
                    " GPUs: start as many ranks a host as it has GPUs, and let "
                    "CUDA_VISIBLE_DEVICES name them all or each rank's own");
}

}  // namespace rendezvous
