// SPDX-License-Identifier: MIT
// Room: tools/cli. Prints a table: -h, --help, the man page, the completion. Text in, text out.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tools/cli/flags.h"

namespace cli {

/// A program's description, for its help, man page and completion.
struct Program {
  std::string_view name;           ///< as typed: bpe-tokenize
  std::string_view summary;        ///< one line, lower case, no full stop: goes into NAME
  std::string_view operands = {};  ///< what follows the flags, such as "[FILE...]"; empty: nothing
                                   ///< may
  /// Called first by the handler of SIGINT, SIGTERM, SIGHUP and SIGPIPE: unlinks temporary files.
  /// Returns false if the process must not end yet; the signal will be raised again. Must be
  /// async-signal-safe. Null: nothing to do.
  bool (*at_signal)(int signal) noexcept = nullptr;
  /// Called by the handler of SIGBUS when `address` cannot be read: writes a line that names the
  /// file and the place to `line` and returns its length. Temporary files are then unlinked and the
  /// status is 1. Returns 0 if the address is in no file that it knows: the signal then has its
  /// default action. Must be async-signal-safe. Null: always the default action.
  size_t (*at_fault)(const void* address, char* line, size_t size) noexcept = nullptr;
  /// Called after the program's body has ended with status 0, before the last flush: throws if an
  /// input was changed while it was read. Null: nothing to do.
  void (*at_end)() = nullptr;
  bool config_file = false;  ///< whether --config FILE and --show-config exist
  /// The flag that receives the files of --config that end in .yml or .yaml; empty: they are
  /// treated like others.
  std::string_view yaml_flag = {};
  /// Whether this process of a job names the flags without effect; null: it does.
  bool (*speaks)() = nullptr;
  std::string (*version_note)() = nullptr;  ///< further lines of --version, each with its line end
};

/// -h: usage and a line per flag that does something, with the first sentence of its help.
std::string short_help(const Program& program, std::span<const Row> rows);

/// --help: every flag with all its sentences, choices and default. Width 80.
std::string full_help(const Program& program, std::span<const Row> rows);

/// Bash completion: long names, choices after a flag that has them, files elsewhere.
std::string bash_completion(const Program& program, std::span<const Row> rows);

/// OPTIONS in the notation of docs/man, a paragraph per flag.
std::string man_options(std::span<const Row> rows);

/// A page of docs/man or docs/format as roff. The line `{{OPTIONS}}` is replaced by `options`.
/// Known notation: `# name(1)`,
/// `## SECTION`, paragraphs, fenced code, `- ` items, `: ` definitions under a term, tables,
/// **bold**, *italic*, `code`.
std::string man_page(std::string_view source, std::string_view options, std::string_view version);

}  // namespace cli
