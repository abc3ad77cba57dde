// trainer: GPT pre-training from an indexed dataset. The spine: rows become a configuration, the
// configuration becomes parts, the parts meet in a TrainingLoop. The only place that chooses a
// device.
// Not here: the loop (session/training_loop.h), the model (engine/engine.h), the flags (config/).
//
// SPDX-License-Identifier: MIT
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/fields.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"
#include "trainer/config/outputs.h"
#include "trainer/session/assembly.h"
#include "trainer/session/auto_layout.h"
#include "trainer/session/checkpoint_args.h"
#include "trainer/session/common_start.h"
#include "trainer/session/devices.h"
#include "trainer/session/dry_run.h"
#include "trainer/session/foreign.h"
#include "trainer/session/job.h"
#include "trainer/session/launcher.h"
#include "trainer/session/manifest_notes.h"
#include "trainer/session/memory_hosts.h"
#include "trainer/session/memory_start.h"
#include "trainer/session/neox_files.h"
#include "trainer/session/restart.h"
#include "trainer/session/stop.h"
#include "trainer/session/training_loop.h"

namespace {

using namespace trainer;
using cli::concat;
using cli::UsageError;

// Whether this process is the job's first, or its launcher: of many ranks one names what has no
// effect.
bool speaks() {
  if (std::getenv("GRISTMILL_RANK") != nullptr) return false;  // the launcher has
  for (const char* name :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr) return rank == std::string_view("0");
  }
  return true;
}

const cli::Program kProgram = {.name = "trainer",
                               .summary = "train a language model from an indexed dataset",
                               .operands = "",
                               .at_signal = indexed::remove_temporaries,
                               .at_fault = indexed::describe_fault,
                               .at_end = indexed::check_mapped_files,
                               .config_file = true,
                               .yaml_flag = "neox-config",
                               .speaks = speaks,
                               .version_note = gpu_support};

// Ranks that this host gets where a launcher does not say: as asked, or one for each GPU.
int ranks_here(const TrainConfig& config) {
  if (config.nproc_per_node) return static_cast<int>(*config.nproc_per_node);
  return std::max(1, visible_gpus(config));
}

// What DeepSpeed's file says counts as if flags said it.
void take_deepspeed(TrainConfig& config, Given& given, cli::Console& console) {
  if (config.deepspeed_config.empty()) return;
  const std::vector<std::string> idle = apply_deepspeed(
      config, given, read_text_file(config.deepspeed_config), config.deepspeed_config);
  if (!idle.empty())
    console.note(concat(config.deepspeed_config, ": no effect here: ", cli::join(idle, ", ")));
}

// Everything that a wrong command line can be told, before anything is opened for writing.
void complete_config(TrainConfig& config, Given& given, cli::Console& console,
                     const Cluster& cluster) {
  take_deepspeed(config, given, console);
  refuse_foreign(config);
  if (const std::string note = take_checkpoint_args(config, given); !note.empty())
    console.note(note);
  choose_layout(config, given, cluster, console);
  for (const std::string& note : derive_and_check(config, given, cluster.world_size))
    console.note(note);
}

// Elements of the parameters that this rank holds.
int64_t parameters_held(const Engine& engine) {
  int64_t sum = 0;
  for (const ParamView& view : engine.parameters()) sum += view.param->elements();
  return sum;
}

void print_config(const TrainConfig& config, const cli::Invocation& call, LogFile& out) {
  if (call.console.quiet()) return;
  out.add(concat("------------------------ arguments ------------------------\n",
                 effective_config(config),
                 "-------------------- end of arguments ---------------------\n"));
  out.flush();
}

// Whether somebody else wrote a configuration, or a comment into it: save_config(), of this release
// or another one, begins with the same group and writes none.
bool is_edited_config(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const std::string text = indexed::read_file(path), own = effective_config(TrainConfig{});
  return !text.empty() && (!text.starts_with(own.substr(0, own.find('\n') + 1)) ||
                           text.find("\n#") != std::string::npos);
}

// Once the folder is known to be ours alone. A run that goes on has one there, and needs no other
// on a full disk.
void save_config(const TrainConfig& config, bool goes_on, cli::Console& console) {
  if (config.save.empty() || config.skip_train) return;
  const std::string path = config.save + "/config.toml";
  try {
    if (is_edited_config(path))
      return console.note(concat(path,
                                 ": is not as a run writes it: it stays, and this run's is "
                                 "not written"));
    indexed::OutputFile out(path, indexed::Existing::replace_link);  // a link's is another run's
    out.write(effective_config(config));
    out.commit();
  } catch (const std::system_error& error) {
    if (!goes_on || !may_pass(error.code().value())) throw;
    console.error(concat(cli::describe(error), ": not written; training continues"));
  }
}

// Says that a run which begins before the newest checkpoint in --save will write over it.
void note_what_is_replaced(const TrainConfig& config, const Start& start, cli::Console& console) {
  if (config.skip_train || !begins_before_others(config, start)) return;
  int64_t there = 0;
  try {
    there = tracked_iteration(config.save).value_or(stored_iterations(config.save).back());
  } catch (const std::exception&) {  // what names the newest one cannot be read
    return;
  }
  if (there <= start.state().iteration) return;
  console.note(concat(config.save, ": has checkpoints up to step ", there,
                      ", this run begins at step ", start.state().iteration,
                      ": it replaces checkpoints of the same steps; --load ", config.save,
                      " goes on from step ", there));
}

// Says which checkpoints --keep-last will not remove, although they are in --save.
void note_what_stays(const TrainConfig& config, bool from_save, const std::string& run,
                     cli::Console& console) {
  if (!config.keep_last || from_save || config.save.empty() || config.skip_train) return;
  const int64_t stay = checkpoints_of_others(config.save, run);
  if (stay == 0) return;
  console.note(concat(config.save, ": has ", cli::counted(stay, "checkpoint"),
                      " of other runs: --keep-last ", *config.keep_last,
                      " counts and removes only this run's; with --load ", config.save,
                      " it counts all"));
}

// Says where the manifests of the data contradict the run.
void note_manifests(const TrainConfig& config, const Vocabulary& own, cli::Console& console) {
  for (const std::string& note : manifest_notes(config, own)) console.note(note);
}

// Whether this program itself starts the ranks, and again; and on how many hosts.
bool starts_ranks(const rendezvous::Launch& launch) {
  return launch.per_node || launch.by_trainer || launch.launcher.empty();
}
int hosts_of(const rendezvous::Launch& launch) {
  return std::max(1, launch.per_node ? launch.world_size : launch.nodes);
}

// The job's devices, as many on each host as on this one.
Cluster cluster_of(const Job& job, int64_t world_size) {
  const rendezvous::Launch& launch = job.launch();
  const int64_t hosts = hosts_of(launch);
  return {.world_size = world_size, .local_size = (world_size + hosts - 1) / hosts};
}

// Only this program's own launcher starts ranks again, or ones that find the memory again.
void check_launcher(const TrainConfig& config, const Job& job, cli::Console& console) {
  const rendezvous::Launch& launch = job.launch();
  const bool own = starts_ranks(launch);
  if (config.max_restarts > 0 && !own)
    console.note(concat("--max-restarts changes nothing: ", launch.launcher, " starts the ranks"));
  if (config.in_memory_checkpoint && !own)
    throw UsageError(concat("--in-memory-checkpoint ", *config.in_memory_checkpoint,
                            ": ranks that this program itself starts can keep one; "
                            "these were started by ",
                            launch.launcher));
  if (config.max_restarts == 0 || !own) return;
  if (!config.save.empty() && config.no_save_optim && !config.no_load_optim &&
      !config.in_memory_checkpoint)
    throw UsageError(concat("--max-restarts ", config.max_restarts,
                            " with --no-save-optim: a restart would find no optimizer in --save: "
                            "give --no-load-optim too, or --in-memory-checkpoint"));
  if (hosts_of(launch) == 1) return;
  if (!goes_on_from_save(config))
    throw UsageError(concat("--max-restarts ", config.max_restarts, " with ", hosts_of(launch),
                            " hosts needs --save and --load of one folder, without --finetune, "
                            "--ckpt-step and --no-load-optim: a host that comes back continues "
                            "from there by the same command; --pretrained-checkpoint is for where "
                            "the run begins"));
  if (config.allow_fewer_devices)
    throw UsageError("--allow-fewer-devices: with several hosts every device is needed");
}

// What is saved below a checkpoint would never be found: every reader takes such a folder for that
// one.
void check_save(const TrainConfig& config) {
  if (config.save.empty() || config.skip_train) return;
  if (is_checkpoint(config.save))
    throw UsageError(concat("--save ", config.save,
                            ": is a checkpoint itself: name the folder that holds it, or another"));
}

// Everything that can be refused before memory is taken and others are met.
struct Prepared {
  Vocabulary vocabulary;
  ModelSpec spec;
  EngineOptions options;
  std::string to_go_on;   ///< LoopParts::to_go_on.
  bool from_save = true;  ///< LoopParts::from_save.
};
Prepared prepare(TrainConfig& config, Given& given, cli::Console& console, const Job& job,
                 int64_t world_size) {
  check_planned_gpu(config);
  complete_config(config, given, console, cluster_of(job, world_size));
  check_launcher(config, job, console);
  check_save(config);
  job.check_interfaces();
  Prepared out{.vocabulary = find_vocabulary(config)};
  if (!out.vocabulary.note.empty()) console.note(out.vocabulary.note);
  out.spec = model_spec(config, out.vocabulary.vocab_size);
  std::optional<Checkpoint> in_memory;
  const bool restarted = job.launch().restarts > 0 && job.launch().nodes == 1;
  if (const auto memory = memory_of(config, job); memory && restarted)
    if (const std::vector<int64_t> held = memory->iterations(); !held.empty())
      in_memory = memory->open(held.front());
  follow_checkpoint(config, out.vocabulary, out.spec, console, in_memory ? &*in_memory : nullptr);
  if (const std::string note = family_note(out.spec); !note.empty()) console.note(note);
  out.options = engine_options(config);
  const int tensor = static_cast<int>(config.tensor_model_parallel_size);
  const int pipeline = static_cast<int>(config.pipeline_model_parallel_size);
  const std::string refusal =
      layout_refusal(out.spec, out.options,
                     make_topology(job.rank(), static_cast<int>(world_size), tensor, pipeline));
  if (!refusal.empty()) throw UsageError(refusal);
  return out;
}

// This process as one rank: from its device to the end of its run.
int run_rank(TrainConfig& config, cli::Invocation& call, Job& job, Prepared& prepared) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds began(job.launch().began_ms);  // of the launcher, if there is one
  StopRequest own_stop(config.exit_duration_in_mins, config.stop_file,
                       began.count() == 0 ? Clock::now() : Clock::time_point(began));
  SharedStop stop(own_stop, job);
  std::unique_ptr<ops::Ops> ops;
  try {
    ops = job.open_device();
  } catch (const UsageError&) {
    throw;  // what no device here can do is no matter of one device.
  } catch (const std::exception& error) {
    return job.without_device(error, &own_stop);
  }
  try {
    job.meet(ops.get(), "", &own_stop);
  } catch (const rendezvous::MeetingError& error) {
    return job.unmet(error);
  }
  return job.run([&] {
    LogFile out({.path = "standard output",
                 .descriptor = STDOUT_FILENO,
                 .say = [&](const std::string& line) { call.console.error(line); }});
    const ModelSpec& spec = prepared.spec;
    EngineOptions& options = prepared.options;
    job.enter(rendezvous::Phase::load, 0);
    LrSchedule schedule = lr_schedule(config);
    const int hosts = hosts_of(job.launch());
    std::unique_ptr<rendezvous::FileRing> ring;
    if (config.in_memory_checkpoint && hosts > 1) ring = job.open_ring();
    std::optional<MemoryCheckpoints> memory = memory_of(config, job, ring.get());
    BorrowedFiles borrowed;
    std::optional<Checkpoint> in_memory;
    if (memory)
      in_memory = ring ? newest_over_hosts(*memory, *ring, borrowed, config, job, call.console)
                       : newest_in_memory(*memory, config, job, call.console);
    if (memory && job.launch().restarts == 0)
      call.console.note("in memory: " + in_memory_note(config, spec, options, hosts));
    Start start = find_start(config, spec, schedule, call.console, std::move(in_memory));
    expect_own_start(start, config, prepared.from_save, job);
    expect_one_beginning(start, config, job);
    if (job.launch().restarts == 0) {
      note_what_is_replaced(config, start, call.console);
      note_what_stays(config, prepared.from_save, job.launch().run, call.console);
    }
    settle_start(config, options, start);
    print_config(config, call, out);
    const indexed::TrainingData data = open_training_data(config);
    check_data(config, start, data, call.console);
    if (job.speaks() && job.launch().restarts == 0)
      note_manifests(config, prepared.vocabulary, call.console);
    Engine engine(spec, options, *ops, job.open_groups(*ops));
    if (config.derived.world_size > 1 && ops->device() == ops::Device::cuda) {
      if (const std::string note = link_note(config); !note.empty()) call.console.note(note);
    }
    const std::string group = config.derived.data_parallel_size > 1
                                  ? concat(engine.describe_data_group(), "\n")
                                  : std::string();
    call.console.log(ops->describe(), concat(group, engine.memory_plan().report));
    if (!call.console.quiet()) {
      out.add(concat(" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): ",
                     parameters_held(engine), "\n"));
    }
    const bool goes_on = start.checkpoint.has_value() || job.launch().restarts > 0;
    TrainingLoop loop({.config = config,
                       .spec = spec,
                       .engine = engine,
                       .data = data,
                       .vocabulary = prepared.vocabulary,
                       .schedule = schedule,
                       .stop = stop,
                       .job = job,
                       .console = call.console,
                       .out = out,
                       .memory = memory ? &*memory : nullptr,
                       .to_go_on = prepared.to_go_on,
                       .from_save = prepared.from_save},
                      std::move(start));
    if (job.speaks()) save_config(config, goes_on, call.console);
    job.barrier();  // rank 0 holds the folder of checkpoints, and all have loaded.
    expect_one_folder(config, job);
    borrowed.release();
    return job.guard([&] { return loop.run(); });
  });
}

// --dry-run: for the device that is here, for the card that is named, or for the GPU that is meant
// and is elsewhere.
int dry_run_here(TrainConfig& config, Prepared& prepared, Job& job, cli::Console& console) {
  LrSchedule schedule = lr_schedule(config);
  const Start start = find_start(config, prepared.spec, schedule, console, std::nullopt);
  note_what_is_replaced(config, start, console);
  note_what_stays(config, prepared.from_save, job.launch().run, console);
  settle_start(config, prepared.options, start);
  note_manifests(config, prepared.vocabulary, console);
  const PlannedRun run{
      .config = config,
      .spec = prepared.spec,
      .options = prepared.options,
      .topology = make_topology(0, static_cast<int>(config.derived.world_size),
                                static_cast<int>(config.tensor_model_parallel_size),
                                static_cast<int>(config.pipeline_model_parallel_size)),
      .cluster = cluster_of(job, config.derived.world_size)};
  const bool for_gpu =
      config.device != "cpu" && (config.device == "cuda" || config.fp16 || config.bf16 ||
                                 !config.gpu.empty() || visible_gpus(config) > 0);
  const std::optional<CardChoice> found = for_gpu ? find_card(config) : std::nullopt;
  const bool absent = for_gpu && (visible_gpus(config) == 0 || !config.gpu.empty());
  const std::unique_ptr<ops::Ops> ops = absent ? nullptr : job.open_device();
  return dry_run(run, start, prepared.vocabulary, ops.get(), found ? &found->card : nullptr,
                 console);
}

// What a restart with fewer ranks needs: the command line as it was given, before anything followed
// from it.
struct Asked {
  TrainConfig config;
  Given given;
};

// The most of `ranks` ranks that the run can go on with: as many as the layout and the global batch
// size can be shared among.
int fitting_ranks(const Asked& asked, int64_t global_batch_size, int ranks, const Job& job) {
  cli::Console quiet{std::string(kProgram.name)};
  quiet.set_quiet(true);
  for (; ranks > 0; --ranks) {
    TrainConfig config = asked.config;
    Given given = asked.given;
    config.global_batch_size = global_batch_size;
    given.insert("global-batch-size");
    try {
      prepare(config, given, quiet, job, ranks);
      break;
    } catch (const UsageError&) {
      continue;  // the next smaller number.
    }
  }
  return ranks;
}

// This process as the launcher of this host's ranks.
int launch(const TrainConfig& config, const Asked& asked, cli::Invocation& call, const Job& job,
           int ranks) {
  const bool one_host = hosts_of(job.launch()) == 1;
  const int64_t batch = config.derived.global_batch_size;
  LauncherOptions options{.host = job.launch(),
                          .processes = ranks,
                          .max_restarts = config.max_restarts,
                          .resumable = goes_on(config, true),
                          .to_go_on = to_go_on(config),
                          .grace = std::chrono::milliseconds(static_cast<int64_t>(
                              1000 * std::clamp(config.hang_timeout_seconds, 1.0, 5.0))),
                          .words = call.arguments};
  options.host.devices = visible_gpus(config);
  // With several hosts the command itself continues from --save (check_launcher).
  if (one_host) options.host.run = new_run_id();
  options.host.tracker = tracker_state(config.save);
  const MemoryHosts hosts{
      .count = hosts_of(job.launch()), .ranks = ranks, .own = one_host ? 0 : job.launch().rank};
  std::optional<MemoryFiles> memory;
  if (config.in_memory_checkpoint)
    options.host.memory_files = memory.emplace(static_cast<int>(hosts.held().size())).descriptors();
  options.allow_fewer = one_host && config.allow_fewer_devices;
  options.fitting = [&](int left) { return fitting_ranks(asked, batch, left, job); };
  options.words_of_fewer = {"--global-batch-size", std::to_string(batch)};
  const auto saved_on_disk = [&]() -> int64_t {
    try {
      return saved_step(config, options.host.run).value_or(SavedStep{}).iteration;
    } catch (const std::exception&) {  // a start from there reports it.
      return 0;
    }
  };
  options.saved = [&] { return saved_on_disk() > 0; };
  options.iteration = [&] {
    const int64_t on_disk = saved_on_disk();
    const std::vector<int64_t> held =
        MemoryCheckpoints(options.host.memory_files, {}, hosts).iterations();
    return std::max(on_disk, held.empty() ? 0 : held.front());
  };
  options.tell_hosts = [&](const std::string& line, bool stopped,
                           const std::function<std::string()>& stop) {
    Job(rendezvous::ranks_on_host(job.launch(), ranks).front(), config, call.console)
        .tell_hosts(line, stopped, stop);
  };
  if (job.hosts_apart()) call.console.set_quiet(false);
  return launch_ranks(options, call.console);
}

// torchrun's own flags, which say where this host stands.
rendezvous::HostFlags host_flags(const TrainConfig& config) {
  const rendezvous::HostFlags hosts{.nodes = static_cast<int>(config.nnodes.value_or(1)),
                                    .node_rank = static_cast<int>(config.node_rank.value_or(0)),
                                    .address = config.master_addr,
                                    .port = static_cast<int>(config.master_port.value_or(0))};
  if (hosts.node_rank >= hosts.nodes)
    throw UsageError(concat("--node-rank ", hosts.node_rank, ": --nnodes ", hosts.nodes,
                            " has hosts 0 to ", hosts.nodes - 1));
  if (hosts.nodes > 1 && !config.node_rank)
    throw UsageError(
        concat("--nnodes ", hosts.nodes, " needs --node-rank: the number of this host"));
  if (hosts.nodes > 1 && hosts.address.empty())
    throw UsageError(
        concat("--nnodes ", hosts.nodes, " needs --master-addr: the host with number 0"));
  return hosts;
}

// For --show-config. DeepSpeed's file stays named: gradient_accumulation_steps has no flag.
void show_files(TrainConfig& config, cli::Invocation& call) {
  forget_default_metrics_file(config, call.parsed);
  take_neox(config, call.parsed.given, call.console);
  take_deepspeed(config, call.parsed.given, call.console);
}

int train(TrainConfig& config, cli::Invocation& call) {
  cli::Console silent_console{std::string(kProgram.name)};
  silent_console.set_quiet(true);
  std::vector<std::string> configurations = call.config_files;
  configurations.insert(configurations.end(), config.neox_config.begin(), config.neox_config.end());
  take_neox(config, call.parsed.given, speaks() ? call.console : silent_console);
  forget_chosen(config, call.parsed.on_line);
  forget_default_metrics_file(config, call.parsed);
  const int ranks = ranks_here(config);
  rendezvous::Launch place = rendezvous::detect_launch(
      rendezvous::with_hosts([](const char* name) { return std::getenv(name); },
                             host_flags(config)),
      ranks);
  // A single rank of a host that may be started again needs a launcher, too.
  if (config.max_restarts > 0 && (place.launcher.empty() || place.one_per_host))
    place.per_node = true;
  if (place.rank != 0) call.console.set_quiet(true);
  for (const std::string& remark : place.remarks) call.console.note(remark);
  const std::string change = to_go_on(config);
  const bool from_save = goes_on_from_save(config);
  Job job(place, config, call.console);
  go_on_after_restart(config, place, call.console);
  const int64_t world_size = int64_t{place.world_size} * (place.per_node ? ranks : 1);
  const Asked asked{config, call.parsed.given};
  Prepared prepared;
  cli::Console silent{std::string(kProgram.name)};
  silent.set_quiet(true);
  const bool launches = place.per_node && !config.dry_run;  // rank 0 will say it.
  // Of several processes none is to end by a signal without a word: others would wait for it.
  if (launches || (world_size > 1 && !config.dry_run)) hold_stop_signals();
  try {
    refuse_inputs_as_outputs(config, configurations);
    metrics_descriptor(config);
    prepared =
        prepare(config, call.parsed.given, launches ? silent : call.console, job, world_size);
  } catch (const std::exception& error) {
    release_stop_signals();
    const bool many_hosts = place.per_node && place.world_size > 1;
    if (config.dry_run || (!many_hosts && (place.world_size == 1 || place.per_node))) throw;
    if (!many_hosts) return job.tell(error);
    return Job(rendezvous::ranks_on_host(place, ranks).front(), config, call.console).tell(error);
  }
  prepared.to_go_on = change;
  prepared.from_save = from_save;
  if (config.dry_run && place.rank == 0) return dry_run_here(config, prepared, job, call.console);
  if (config.dry_run) return 0;
  if (place.per_node) return launch(config, asked, call, job, ranks);
  return run_rank(config, call, job, prepared);
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_NAME, "trainer");  // ranks are started by /proc/self/exe, and would be "exe".
  return cli::run(kProgram, trainer::flag_table(), argc, argv, train, show_files);
}
