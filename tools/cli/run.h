// SPDX-License-Identifier: MIT
// Room: tools/cli. The start and the end of a program: the flags every tool has, the one catch,
// signals, the last flush, the exit status (0 complete, 1 not, 2 wrong command line; signals have
// their own).
//
//   const cli::Program kProgram = {.name = "merge-datasets", .summary = "...", .operands = "",
//                                  .at_signal = indexed::remove_temporaries};
//   const cli::Table<Options> kFlags = {{"Input", {{.name = "input", .value = "DIR", .help = "...",
//                                                   .field = cli::text(&Options::input), .required
//                                                   = true}}}};
//   int merge(Options& options, cli::Invocation& call) { ...; return 0; }
//   int main(int argc, char** argv) { return cli::run(kProgram, kFlags, argc, argv, merge); }
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tools/cli/console.h"
#include "tools/cli/fields.h"
#include "tools/cli/flags.h"
#include "tools/cli/help.h"
#include "tools/cli/parse.h"

namespace cli {

/// What a program's body receives besides its options.
struct Invocation {
  Console& console;
  Parsed parsed;                       ///< operands, and which flags were given
  std::vector<std::string> arguments;  ///< the program's name and its words
  std::string command_line;            ///< as typed, quoted for a shell: for manifests and logs
  std::vector<std::string> config_files = {};  ///< those of --config, in order
};

/// The release, as "0.1.0".
std::string_view version();

/// Runs `body` inside the one catch, with signals set up and stdout checked at the end.
/// Handles -h, --help, --version, -q, -v, --config, --show-config, --help-man, --help-completion;
/// says once that a flag has no effect. UsageError gives 2; any other exception 1 with its text as
/// `tool: place: what: why`. `complete`, where there is one, brings what other files say into the
/// options before --show-config prints them.
int run_rows(const Program& program, std::vector<Row> rows, int argc, char** argv,
             const std::function<int(Invocation&)>& body,
             const std::function<void(Invocation&)>& complete = {});

/// The same from a table: parses argv into a default-made O, then calls `body(options,
/// invocation)`. `body` may throw UsageError as long as it has opened nothing.
template <class O>
int run(const Program& program, const Table<O>& table, int argc, char** argv,
        int (*body)(O&, Invocation&), void (*complete)(O&, Invocation&) = nullptr) {
  O options{};
  return run_rows(
      program, bind_rows(table, options), argc, argv,
      [&](Invocation& invocation) { return body(options, invocation); },
      [&](Invocation& invocation) {
        if (complete != nullptr) complete(options, invocation);
      });
}

/// The text of an exception, for use in a message. The reason of a std::system_error begins in
/// lower case.
std::string describe(const std::exception& error);

/// Standard output could not be written: what() is "standard output: " and the reason.
class StdoutError : public std::system_error {
 public:
  explicit StdoutError(int error);
};

/// Writes to stdout. Errors: StdoutError with the reason of a write that failed, of which
/// finish_stdout() would only know that it failed.
void print(std::string_view text);

/// The same of printf's format and values.
[[gnu::format(printf, 1, 2)]] void print_format(const char* format, ...);

/// Flushes stdout and checks it; run() calls it as the last act. Errors: StdoutError.
void finish_stdout();

/// Errors: UsageError if file descriptor `fd` is a terminal; `what` (such as "token ids") says what
/// would be unreadable there.
void refuse_terminal(int fd, std::string_view what);

}  // namespace cli
