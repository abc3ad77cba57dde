// See job.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/job.h"
#include "tools/cli/exit_status.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/comm/tcp.h"
#include "trainer/config/flags.h"
#include "trainer/rendezvous/interfaces.h"
#include "trainer/rendezvous/links.h"
#include "trainer/rendezvous/wire.h"
#include "trainer/session/devices.h"
#include "trainer/session/launcher.h"
#ifdef GRISTMILL_NCCL
#include "trainer/comm/nccl.h"
#endif

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using std::chrono::milliseconds;

const char* variable(const char* name) { return std::getenv(name); }

constexpr rlim_t kMostFiles = 1 << 16;

/// How long a rank whose command line is wrong tries to tell the others: they listen, and connect,
/// when they have opened their GPUs, which takes seconds. The user hears it sooner.
constexpr std::chrono::seconds kTells{30}, kSays{4};

milliseconds in_ms(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

std::string read_secret(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0)
    throw std::system_error(errno, std::generic_category(), path);
  if ((about.st_mode & 077) != 0)
    throw UsageError(concat(path, ": others than its owner may read it: run chmod 600"));
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < 16) throw UsageError(concat(path, ": a secret has 16 characters or more"));
  return text;
}

/// Applies --rendezvous, which overrides the launcher. Returns the meeting file, or nothing.
std::string take_rendezvous(const std::string& place, rendezvous::Launch& launch) {
  if (place.empty() || launch.launcher == "trainer") return "";
  if (place.starts_with("file:")) return place.substr(5);
  const size_t colon = place.find_last_of(':');
  int port = 0;
  const char* end = place.data() + place.size();
  if (colon != std::string::npos) {
    const auto parsed = std::from_chars(place.data() + colon + 1, end, port);
    if (parsed.ptr != end) port = 0;
  }
  if (port < 1 || port > 65535)
    throw UsageError(concat("--rendezvous ", place, ": HOST:PORT or file:PATH is expected"));
  launch.address = place.substr(0, colon);
  if (launch.address.starts_with("[") && launch.address.ends_with("]"))
    launch.address = launch.address.substr(1, launch.address.size() - 2);
  launch.port = port;
  launch.exact_port = true;
  return "";
}

/// A rank has a connection to every other rank of its groups, and rank 0 one more to every rank:
/// this may exceed the soft limit of 1,024 descriptors, so it is raised to the hard limit.
void raise_limit_of_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kMostFiles) return;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, kMostFiles);
  setrlimit(RLIMIT_NOFILE, &files);
}

/// What must be the same on all ranks: every flag except those that describe a host.
std::string comparable(const TrainConfig& config) {
  std::string out;
  for (const auto& [name, values] : flag_values(config))
    if (name != "cpu-threads" && name != "nproc-per-node" && name != "job-secret-file" &&
        name != "rendezvous" && name != "node-rank" && name != "master-addr")
      out += concat("--", name, " ", cli::join(values, " "), "\n");
  return out;
}

}  // namespace

bool goes_on_from_save(const TrainConfig& config) {
  return same_folder(config.load, config.save) && !config.finetune && !config.ckpt_step &&
         !(config.no_load_optim && !config.no_save_optim);
}

bool repeatable(const TrainConfig& config) {
  return goes_on_from_save(config) && config.no_load_optim == config.no_save_optim;
}

std::string to_go_on(const TrainConfig& config) {
  if (repeatable(config)) return "";
  std::vector<std::string> without;
  if (config.finetune) without.push_back("--finetune");
  if (config.ckpt_step) without.push_back("--ckpt-step");
  if (config.no_load_optim && !config.no_save_optim) without.push_back("--no-load-optim");
  return concat("--load ", cli::shell_word(config.save),
                config.no_save_optim && !config.no_load_optim ? " with --no-load-optim" : "",
                without.empty() ? "" : " without ", cli::join(without, " and "));
}

bool goes_on(const TrainConfig& config, bool starts_again) {
  const bool again = starts_again && config.max_restarts > 0 && !config.save.empty();
  return again || repeatable(config);
}

Job::Job(rendezvous::Launch launch, const TrainConfig& config, cli::Console& console)
    : launch_(std::move(launch)),
      config_(config),
      goes_on_(goes_on(config, launch_.by_trainer)),
      console_(console) {
  meeting_file_ = take_rendezvous(config.rendezvous, launch_);
  if (!config.job_secret_file.empty()) launch_.secret = read_secret(config.job_secret_file);
}

Topology Job::topology() const {
  return make_topology(launch_.rank, launch_.world_size,
                       static_cast<int>(config_.tensor_model_parallel_size),
                       static_cast<int>(config_.pipeline_model_parallel_size));
}

void Job::check_interfaces() const {
  if (alone() && !launch_.per_node) return;
  const std::string objection = rendezvous::interface_objection(variable, rendezvous::interfaces(),
                                                                visible_gpus(config_) > 0);
  if (!objection.empty()) throw UsageError(objection);
}

std::unique_ptr<ops::Ops> Job::open_device() {
  const int visible = visible_gpus(config_);
  const bool chosen = launch_.device >= 0 && launch_.devices > 0;
  if (chosen || (visible > 0 && !alone())) device_index_ = rendezvous::device_of(launch_, visible);
  return trainer::open_device(config_, {device_index_, launch_.local_size});
}

void Job::meet(const ops::Ops* ops, const std::string& error, StopRequest* stop) {
  if (alone()) return;
  raise_limit_of_files();
  rendezvous::ControlOptions options;
  options.launch = launch_;
  options.claim = {.rank = launch_.rank,
                   .world_size = launch_.world_size,
                   .local_rank = launch_.local_rank,
                   .host = rendezvous::host_name(),
                   .address = rendezvous::gloo_address(variable, rendezvous::interfaces()),
                   .device = "cpu",
                   .version = std::string(cli::version()),
                   .config = comparable(config_),
                   .pid = getpid(),
                   .restarts = launch_.restarts,
                   .error = error,
                   .stopped = tells_stop_};
  if (launch_.devices > 0 || (ops != nullptr && ops->device() == ops::Device::cuda))
    options.claim.device =
        concat("GPU ", launch_.device >= 0 ? launch_.device : launch_.local_rank);
  if (ops != nullptr) options.claim.unique_device = ops->identity();
  const bool patient = patience_.count() == 0;
  options.start_timeout = in_ms(config_.distributed_timeout_minutes * 60);
  options.timeout = patient ? in_ms(config_.meeting_timeout_seconds) : patience_;
  options.host_timeout = patient ? options.start_timeout : patience_;
  options.rejoin_timeout = patient ? in_ms(config_.rejoin_timeout_minutes * 60) : patience_;
  options.hang_timeout = in_ms(config_.hang_timeout_seconds);
  options.meeting_file = meeting_file_;
  options.hosts_apart = hosts_apart();
  options.tells = tells_;
  options.late_comers = late_comers_;
  options.comes_back = launch_.by_trainer && launch_.nodes > 1 && config_.max_restarts > 0;
  if (const int end = launch_.end_file; end >= 0)
    options.over = [this, end] {
      const unsigned char status = static_cast<unsigned char>(status_.load());
      static_cast<void>(!write(end, &status, 1));
    };
  const bool own = launch_.by_trainer;
  options.resumable = goes_on_;
  options.stop = stop_;
  if (stop != nullptr) options.stop = [stop] { return stop->reason().value_or(""); };
  // While a checkpoint gets its name, its files stay.
  options.at_end = [] {
    for (int i = 0; i < 2000 && !indexed::remove_temporaries(0); ++i)
      std::this_thread::sleep_for(milliseconds(1));
  };
  options.print = [this](const std::string& line) { console_.error(line); };
  options.end_process = [own, this](int status) {
    _exit(!own || status != exit_status::kResumable ? status
          : at_fault_                               ? exit_status::kAtFault
          : StopRequest::signalled()                ? exit_status::kStopped
                                                    : exit_status::kRankLost);
  };
  control_ = std::make_unique<rendezvous::Control>(options);
  if (launch_.launcher == "torchrun") launch_.run = rendezvous::agreed_run(exchange(launch_.run));
  console_.note(concat("launched by ", launch_.describe()));
  console_.log(concat("ranks met in ", control_->seconds_to_meet(), " s"));
}

bool Job::hosts_apart() const {
  return launch_.nodes > 1 && (launch_.launcher == "environment" || launch_.launcher == "torchrun");
}

int Job::unmet(const rendezvous::MeetingError& error) {
  // Rank 0 says why; where it was not found, or its output is far, each host's first rank does.
  if (error.end == rendezvous::MeetingEnd::over) {
    if (launch_.local_rank == 0) console_.error(error.what());
    return error.status == exit_status::kResumable && !goes_on_ ? exit_status::kFailed
                                                                : error.status;
  }
  const bool speaks = (!error.told && first_to_speak()) || speaks_for_host();
  if (speaks) console_.error(cli::describe(error));
  // Nothing was done since the checkpoint.
  const bool whole = error.end == rendezvous::MeetingEnd::retryable || launch_.restarts > 0;
  if (whole && goes_on_) return exit_status::kResumable;
  if (whole && speaks && !config_.save.empty() && !stored_iterations(config_.save).empty())
    console_.note(concat("to continue from the last checkpoint, give ", to_go_on(config_)));
  return exit_status::kFailed;
}

bool Job::first_to_speak() const {
  return launch_.rank == 0 || launch_.local_rank == (launch_.node == 0 ? 1 : 0);
}

bool Job::speaks_for_host() const {
  return hosts_apart() && launch_.node > 0 && launch_.local_rank == 0;
}

int Job::tell(const std::exception& error) {
  const int status = dynamic_cast<const UsageError*>(&error) != nullptr ? exit_status::kUsage
                                                                        : exit_status::kFailed;
  const std::string own = cli::describe(error);
  const bool speaks = launch_.rank == 0 || speaks_for_host();
  bool said = false;
  std::jthread waits([&](const std::stop_token& met) {
    std::mutex alone;
    std::unique_lock lock(alone);
    std::condition_variable_any never;
    never.wait_for(lock, met, kSays, [] { return false; });
    said = first_to_speak() && !met.stop_requested();
    if (said) console_.error(own);
  });
  patience_ = kTells;
  tells_ = launch_.rank == 0 && launch_.nodes > 1;
  std::string why = own;
  try {
    meet(nullptr, own);
  } catch (const rendezvous::MeetingError& refusal) {
    // If rank 0 has another reason, that is the cause. It listens only while others may connect.
    const std::string cause = refusal.what();
    if ((refusal.told || launch_.rank == 0) && cause.find(own) == std::string::npos) why = cause;
  } catch (const std::exception& unmet) {
    static_cast<void>(unmet);  // no port, no file: report the original reason.
  }
  waits.request_stop();
  waits.join();
  if (speaks && !(said && why == own)) console_.error(why);
  return status;
}

void Job::tell_hosts(const std::string& line, bool stopped, std::function<std::string()> stop) {
  patience_ =
      stopped ? milliseconds(rendezvous::kStopIsTold) : in_ms(config_.meeting_timeout_seconds);
  tells_ = true;
  tells_stop_ = stopped;
  late_comers_ = milliseconds(0);
  stop_ = std::move(stop);
  try {
    meet(nullptr, line);
  } catch (const std::exception& unmet) {
    static_cast<void>(unmet);  // they have been told, or none has come.
  }
}

int Job::without_device(const std::exception& error, StopRequest* stop) {
  const int status = launch_.launcher == "trainer" ? exit_status::kNoDevice : exit_status::kFailed;
  try {
    meet(nullptr, cli::describe(error), stop);
    console_.error(cli::describe(error));  // a single rank has nobody to tell.
  } catch (const rendezvous::MeetingError& refusal) {
    if (refusal.told) return status;
    const std::string own = cli::describe(error), why = refusal.what();
    if (why.find(own) == std::string::npos) console_.error(own);  // nobody has heard it.
    console_.error(why);
  }
  return status;
}

Groups Job::open_groups(const ops::Ops& ops) {
  if (alone()) return solo_groups();
  const bool gpu = ops.device() == ops::Device::cuda;
  return make_groups(topology(), [&](const GroupPlace& place) -> std::unique_ptr<comm::Comm> {
    const int size = static_cast<int>(place.ranks.size());
    control_->rank_status().progress();  // each group has the whole timeout to connect.
#ifdef GRISTMILL_NCCL
    if (gpu)
      return comm::make_nccl_comm({.name = place.name,
                                   .id = place.id,
                                   .rank = place.rank,
                                   .size = size,
                                   .device_index = device_index_,
                                   .timeout = in_ms(config_.distributed_timeout_minutes * 60),
                                   .rank_status = &control_->rank_status()},
                                  control_->store());
#endif
    if (!gpu) {
      std::vector<std::string> peers;
      for (const int rank : place.ranks)
        peers.push_back(control_->roster()[static_cast<size_t>(rank)].name());
      return comm::make_tcp_comm(
          {.name = place.name,
           .id = place.id,
           .rank = place.rank,
           .size = size,
           .peers = peers,
           .address = control_->roster()[static_cast<size_t>(rank())].address,
           .secret = control_->job_key(),
           .timeout = in_ms(config_.distributed_timeout_minutes * 60),
           .rank_status = &control_->rank_status()},
          control_->store());
    }
    throw UsageError(concat(size, " ranks on GPUs: this trainer was built without NCCL"));
  });
}

// Every rank makes its two links in the order of the hosts that send, so none waits for ever.
std::unique_ptr<rendezvous::FileRing> Job::open_ring() {
  const int before = (launch_.node + launch_.nodes - 1) % launch_.nodes;
  rendezvous::Socket next, previous;
  for (const int sender : {std::min(before, launch_.node), std::max(before, launch_.node)}) {
    const bool sends = sender == launch_.node;
    control_->rank_status().progress();
    std::vector<rendezvous::Socket> links;
    try {
      links = rendezvous::link_ranks(
          {.id = concat("copies of rank ", sender * launch_.local_size + launch_.local_rank),
           .rank = sends ? 0 : 1,
           .size = 2,
           .address = control_->roster()[static_cast<size_t>(rank())].address,
           .secret = control_->job_key(),
           .timeout = in_ms(config_.distributed_timeout_minutes * 60)},
          control_->store());
    } catch (const rendezvous::LinkError& error) {
      throw comm::PeerError(concat("comm: copies of checkpoints: ", error.what()));
    }
    (sends ? next : previous) = std::move(links[sends ? 1 : 0]);
  }
  return std::make_unique<rendezvous::FileRing>(std::move(next), std::move(previous));
}

void Job::enter(rendezvous::Phase phase, int64_t step) {
  if (control_) control_->rank_status().enter(phase, step);
}

void Job::barrier() {
  if (control_) control_->exchange("");
}

/// The values of the ranks that give one, in rank order.
std::vector<double> Job::gather(const std::optional<double>& value) {
  char text[40];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value.value_or(0));
  std::vector<double> out;
  for (const std::string& one : control_->exchange(value ? std::string(text, end.ptr) : "")) {
    double x = 0;
    if (one.empty()) continue;
    std::from_chars(one.data(), one.data() + one.size(), x);
    out.push_back(x);
  }
  return out;
}

std::vector<std::string> Job::exchange(const std::string& text) {
  return control_ ? control_->exchange(text) : std::vector<std::string>{text};
}

WriterPlace Job::writer_place(int channel) const {
  WriterPlace place{.rank = launch_.rank,
                    .world = launch_.world_size,
                    .patience = std::chrono::ceil<std::chrono::seconds>(
                        in_ms(config_.distributed_timeout_minutes * 60)),
                    .describe = cli::describe};
  if (!control_) return place;
  const int64_t first = channel * rendezvous::kTopicsOfChannel;
  place.post = [this, first](int to, int64_t save, const std::string& text) {
    control_->post(to, first + save, text);
  };
  place.letters = [this, first](int64_t save, milliseconds wait) {
    std::vector<WriterLetter> out;
    for (rendezvous::Letter& letter : control_->letters(first + save, wait))
      out.push_back({letter.from, std::move(letter.text)});
    return out;
  };
  place.name = [this](int rank) { return control_->roster()[static_cast<size_t>(rank)].name(); };
  return place;
}

std::optional<double> Job::seconds_waited(const ops::Ops& ops) const {
  if (!control_) return 0;
  if (ops.device() != ops::Device::cpu) return ops.seconds_waited();
  return std::chrono::duration<double>(control_->rank_status().waited()).count();
}

double Job::mean_of_last_stages(double value) {
  if (!control_) return value;
  const std::vector<double> all =
      gather(topology().last_stage() ? std::optional<double>(value) : std::nullopt);
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

void Job::fail(const std::exception& error) {
  std::string why = cli::describe(error);
  const bool peer = dynamic_cast<const comm::PeerError*>(&error) != nullptr;
  const bool usage = dynamic_cast<const UsageError*>(&error) != nullptr;
  at_fault_ = dynamic_cast<const ops::DeviceFault*>(&error) != nullptr;
  const bool safe = (peer || at_fault_) && control_->rank_status().status().resumable;
  control_->fail(why, peer,
                 usage  ? exit_status::kUsage
                 : safe ? exit_status::kResumable
                        : exit_status::kFailed);
}

int Job::guard(const std::function<int()>& work) {
  if (!control_) return work();
  try {
    return work();
  } catch (const std::exception& error) {
    fail(error);
  }
}

int Job::run(const std::function<int()>& work) {
  return guard([&] {
    const int status = work();
    status_ = status;
    if (control_) control_->leave(status);
    return status;
  });
}

void SharedStop::ask() {
  if (asked_ || !job_.control_) return;
  asked_ = true;
  const std::optional<std::string> own = own_.reason();
  job_.control_->offer(own ? *own : "");
}

void SharedStop::hear() {
  if (!asked_ || heard_) return;
  heard_ = true;
  answer_.reset();
  for (const std::string& reason : job_.control_->collect())
    if (!answer_ && !reason.empty()) answer_ = reason;
}

std::optional<std::string> SharedStop::reason() {
  if (!job_.control_) return own_.reason();
  ask();
  hear();
  asked_ = heard_ = false;
  return answer_;
}

}  // namespace trainer
