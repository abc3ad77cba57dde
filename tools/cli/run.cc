// SPDX-License-Identifier: MIT
// Room: tools/cli. The one catch of every program.
// Not here: the parsing itself (parse.cc), the pages (help.cc, man.cc).
#include "tools/cli/run.h"
#include "tools/cli/exit_status.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/cli/text.h"

namespace cli {
namespace {

constexpr int kFatalSignals[] = {SIGINT,  SIGTERM, SIGHUP,    SIGPIPE, SIGQUIT, SIGUSR1,
                                 SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU};

/// Set before the handler is installed, read by it.
std::atomic<bool (*)(int) noexcept> at_signal_function = nullptr;

/// Unlinks unfinished files, then ends by the same signal's default action, so that the shell sees
/// 130 or 143.
void on_fatal_signal(int number) {
  const int saved = errno;
  bool (*const may_end)(int) noexcept = at_signal_function.load();
  const bool ends = may_end == nullptr || may_end(number);
  errno = saved;
  if (!ends) return;
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  _exit(128 + number);  // a container's first process ignores the default action.
}

/// Set before the handler is installed, read by it.
std::atomic<size_t (*)(const void*, char*, size_t) noexcept> at_fault_function = nullptr;
char fault_head[64];  // the tool's name and colon, with which messages begin
std::atomic<bool> faulted = false;
bool fault_erases_line = false;  // there may be a progress line, and it can be erased

void die_of(int number) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
}

/// A mapped file was cut short, or its disk cannot be read: prints one line and ends with the
/// status of bad input, instead of a crash. For any other fault the default action follows on
/// return.
void on_fault(int number, siginfo_t* info, void*) {
  const bool sent = info->si_code <= 0;  // by a process, not by a read
  if (sent && faulted) return;           // from the end of NamingSection: see the wait below
  char line[PATH_MAX + 256];
  const size_t head = std::strlen(fault_head);
  std::memcpy(line, fault_head, head);
  const size_t length =
      sent ? 0 : at_fault_function.load()(info->si_addr, line + head, sizeof line - head - 1);
  if (length == 0) {
    die_of(number);
    if (sent) raise(number);
    return;
  }
  while (faulted.exchange(true)) pause();  // another thread prints it
  line[head + length] = '\n';
  if (fault_erases_line) static_cast<void>(!write(STDERR_FILENO, "\r\x1b[K", 4));
  static_cast<void>(!write(STDERR_FILENO, line, head + length + 1));
  // While another thread is renaming a set of files, wait for it before unlinking.
  bool (*const may_end)(int) noexcept = at_signal_function.load();
  constexpr timespec kMoment = {0, 1'000'000};
  for (int i = 0; may_end != nullptr && i < 10'000 && !may_end(number); ++i)
    nanosleep(&kMoment, nullptr);
  _exit(exit_status::kFailed);
}

void install_fault(const Program& program) {
  if (program.at_fault == nullptr) return;
  at_fault_function = program.at_fault;
  fault_erases_line = erases_lines(STDERR_FILENO);
  std::snprintf(fault_head, sizeof fault_head, "%.*s: ", static_cast<int>(program.name.size()),
                program.name.data());
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int number : kFatalSignals) sigaddset(&action.sa_mask, number);
  sigaction(SIGBUS, &action, nullptr);
}

void install_signals(const Program& program) {
  at_signal_function = program.at_signal;
  install_fault(program);
  signal(SIGXFSZ, SIG_IGN);  // writing past `ulimit -f` then fails with EFBIG.
  struct sigaction action = {};
  action.sa_handler = on_fatal_signal;
  sigemptyset(&action.sa_mask);
  for (const int number : kFatalSignals) sigaddset(&action.sa_mask, number);
  for (const int number : kFatalSignals) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    // Signals that the parent ignores stay ignored (nohup), except SIGPIPE: a filter needs its
    // default action.
    if (before.sa_handler != SIG_IGN || number == SIGPIPE) sigaction(number, &action, nullptr);
  }
}

/// A descriptor, O_PATH, of what can neither be read nor written nor opened: a socket, to which no
/// path leads. Without /proc, where no name leads to a descriptor either, of /dev/null.
int open_unusable() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int path = socket < 0 ? -1 : open(concat("/proc/self/fd/", socket).c_str(), O_PATH);
  if (socket >= 0) close(socket);
  return path >= 0 ? path : open("/dev/null", O_PATH);
}

/// A program may be started with standard descriptors closed (`2>&-`). The first files that it
/// opens would then get these descriptors, and messages would go into a dataset. So they are
/// filled: reading and writing still fail, as on a closed descriptor, and so does opening
/// /dev/stdin.
void fill_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int filled = open_unusable();
    if (filled != fd && dup2(filled, fd) != fd) std::abort();
    if (filled != fd) close(filled);
  }
}

struct CommonOptions {
  bool help = false;
  bool short_help = false;
  bool version = false;
  bool verbose = false;
  bool quiet = false;
  bool show_config = false;
  bool completion = false;
  std::string man;
  std::vector<std::string> config;
};

Table<CommonOptions> common_table(bool config_file) {
  using C = CommonOptions;
  Table<C> table = {
      {"General",
       {{.name = "quiet", .letter = 'q', .help = "Print errors only.", .field = on(&C::quiet)},
        {.name = "verbose",
         .letter = 'v',
         .help = "Log what is being done.",
         .field = on(&C::verbose)},
        {.name = "version", .help = "Print the release and exit.", .field = on(&C::version)},
        {.name = "help",
         .help = "Print all flags and exit; -h prints a short form.",
         .field = on(&C::help)}}}};
  if (config_file) {
    std::vector<Flag<C>>& flags = table[0].flags;
    flags.insert(
        flags.begin(),
        {{.name = "config",
          .value = "FILE",
          .help =
              "Read flags from FILE, one `name = value` per line; the command line overrides them.",
          .field = list(&C::config)},
         {.name = "show-config",
          .help = "Print all current values as a configuration file and exit.",
          .field = on(&C::show_config)}});
  }
  return table;
}

/// Switches for the build; not shown in help.
Table<CommonOptions> hidden_table() {
  using C = CommonOptions;
  return {{"",
           {{.name = "help-short", .letter = 'h', .help = "", .field = on(&C::short_help)},
            {.name = "help-man", .value = "FILE", .help = "", .field = text(&C::man)},
            {.name = "help-completion", .help = "", .field = on(&C::completion)}}}};
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  try {
    return std::string(std::istreambuf_iterator<char>(file), {});
  } catch (const std::system_error& error) {  // a folder, or a disk that fails
    throw std::system_error(error.code(), path);
  }
}

/// Prints the help that a switch asks for; false if none is given.
bool print_help(const Program& program, std::span<const Row> rows, const CommonOptions& common) {
  std::string out;
  if (common.short_help)
    out = short_help(program, rows);
  else if (common.help)
    out = full_help(program, rows);
  else if (common.version)
    out = concat(program.name, " (gristmill) ", version(), "\n",
                 program.version_note == nullptr ? "" : program.version_note());
  else if (common.completion)
    out = bash_completion(program, rows);
  else if (!common.man.empty())
    out = man_page(read_whole(common.man), man_options(rows), version());
  else
    return false;
  print(out);
  return true;
}

/// Parses everything; help is printed before values are set, so it shows the defaults.
class Session {
 public:
  Session(const Program& program, std::vector<Row> rows, int argc, char** argv)
      : program_(program),
        common_table_(common_table(program.config_file)),
        hidden_table_(hidden_table()),
        visible_(std::move(rows)),
        own_rows_(visible_.size()),
        arguments_(argv + (argc > 0 ? 1 : 0), argv + argc) {
    for (Row& row : bind_rows(common_table_, common_)) visible_.push_back(std::move(row));
    all_ = visible_;
    for (Row& row : bind_rows(hidden_table_, common_)) all_.push_back(std::move(row));
  }

  int run(Console& console, const std::function<int(Invocation&)>& body,
          const std::function<void(Invocation&)>& complete) {
    if (ask_for_help()) return 0;
    Parsed parsed;
    const Parsed first = parse_arguments(all_, arguments_);
    std::vector<std::string> yaml;
    for (const std::string& file :
         common_.config) {  // files first, then the command line over them
      if (!program_.yaml_flag.empty() && (file.ends_with(".yml") || file.ends_with(".yaml")))
        yaml.push_back(file);
      else
        read_config(visible_, read_whole(file), file, parsed);
    }
    const std::vector<std::string> files = std::exchange(common_.config, {});
    Parsed line = parse_arguments(all_, arguments_);
    line.on_line = line.given;
    line.given.merge(parsed.given);
    line.in_files = std::move(parsed.in_files);
    if (!yaml.empty()) find_row(visible_, program_.yaml_flag)->set(yaml);
    console.set_quiet(common_.quiet);
    console.set_verbose(common_.verbose);
    if (common_.show_config) {
      Invocation shown{console, std::move(line), words(), command_line()};
      if (complete) complete(shown);
      const std::string text = show_config(std::span(visible_).first(own_rows_));
      print(text);
      return 0;
    }
    if (program_.operands.empty() && !line.operands.empty()) {
      throw UsageError(concat("unexpected argument ", quote(line.operands[0])));
    }
    check_required(all_, line);
    if (program_.speaks == nullptr || program_.speaks()) note_idle(console, line);
    Invocation invocation{console, std::move(line), words(), command_line(), files};
    return body(invocation);
  }

 private:
  /// Lists the used flags that have no effect: one line for each reason.
  void note_idle(Console& console, const Parsed& line) const {
    std::vector<std::pair<std::string_view, std::string>> reasons;
    for (const Row& row : visible_) {
      if (row.no_effect.empty() || !line.given.contains(row.name)) continue;
      const auto known = std::ranges::find(reasons, std::string_view(row.no_effect),
                                           &std::pair<std::string_view, std::string>::first);
      if (known == reasons.end()) {
        reasons.emplace_back(row.no_effect, concat("--", row.name));
      } else {
        known->second += concat(", --", row.name);
      }
    }
    for (const auto& [reason, names] : reasons)
      console.note(concat(names, ": accepted, no effect here: ", reason));
  }

  /// Help must work beside any other flag, valid or not, and show defaults: so it is handled before
  /// values are set.
  bool ask_for_help() {
    std::vector<std::string> asked;
    for (size_t i = 0; i < arguments_.size() && arguments_[i] != "--"; ++i) {
      const std::string& word = arguments_[i];
      if (word == "-h" || word == "--help" || word == "--version" || word == "--help-completion" ||
          word.starts_with("--help-man=")) {
        asked.push_back(word);
      }
    }
    if (asked.empty()) return false;
    parse_arguments(all_, asked);
    return print_help(program_, visible_, common_);
  }

  std::vector<std::string> words() const {
    std::vector<std::string> all = {std::string(program_.name)};
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    return all;
  }

  std::string command_line() const {
    std::string out(program_.name);
    for (const std::string& word : arguments_) out += concat(" ", shell_word(word));
    return out;
  }

  const Program& program_;
  CommonOptions common_;
  const Table<CommonOptions> common_table_;
  const Table<CommonOptions> hidden_table_;
  std::vector<Row> visible_;
  size_t own_rows_;  // the first of visible_ are the program's own.
  std::vector<Row> all_;
  std::vector<std::string> arguments_;
};

// The part of `path` that is a link to what is not there; empty if there is none.
std::string dangling_link(const std::filesystem::path& path) {
  std::filesystem::path at;
  std::error_code none;
  for (const std::filesystem::path& part : path) {
    at /= part;
    if (std::filesystem::is_symlink(at, none) && !std::filesystem::exists(at, none)) return at;
  }
  return {};
}

}  // namespace

std::string_view version() { return GRISTMILL_VERSION; }

std::string describe(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  std::string text = error.what();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    text = concat(file->path1().string(), ": ", file->code().message());
    // A folder cannot be made there, although nothing seems to be there.
    if (file->code() == std::errc::file_exists)
      if (const std::string link = dangling_link(file->path1()); !link.empty())
        text = concat(link, ": is a link that leads nowhere");
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const std::string reason = system->code().message();
    if (text.size() >= reason.size() && text.ends_with(reason) && reason.size() > 1 &&
        reason[0] >= 'A' && reason[0] <= 'Z' && !(reason[1] >= 'A' && reason[1] <= 'Z')) {
      char& first = text[text.size() - reason.size()];
      first = static_cast<char>(first + 32);
    }
  }
  return text;
}

StdoutError::StdoutError(int error)
    : std::system_error(error == 0 ? EIO : error, std::generic_category(), "standard output") {}

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) throw StdoutError(errno);
}

void print_format(const char* format, ...) {
  va_list values;
  va_start(values, format);
  char* text = nullptr;
  const int size = vasprintf(&text, format, values);
  va_end(values);
  if (size < 0) throw std::bad_alloc();
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  print({text, static_cast<size_t>(size)});
}

void finish_stdout() {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (failed) throw StdoutError(errno);
}

void refuse_terminal(int fd, std::string_view what) {
  if (isatty(fd) == 1) {
    throw UsageError(concat("standard output is a terminal: ", what,
                            " cannot be read there, send them to a file or a pipe"));
  }
}

int run_rows(const Program& program, std::vector<Row> rows, int argc, char** argv,
             const std::function<int(Invocation&)>& body,
             const std::function<void(Invocation&)>& complete) {
  fill_standard_descriptors();
  Console console{std::string(program.name)};
  install_signals(program);
  int status = exit_status::kFailed;
  try {
    Session session(program, std::move(rows), argc, argv);
    status = session.run(console, body, complete);
    if (status == exit_status::kComplete && program.at_end != nullptr) program.at_end();
    finish_stdout();
  } catch (const UsageError& error) {
    console.error(error.what());
    status = exit_status::kUsage;
  } catch (const std::bad_alloc&) {
    console.error("out of memory");
    status = exit_status::kFailed;
  } catch (const std::exception& error) {
    console.error(describe(error));
    status = exit_status::kFailed;
  }
  return status;
}

}  // namespace cli
