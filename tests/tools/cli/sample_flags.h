// SPDX-License-Identifier: MIT
// A small table with one row of every kind, for the tests of tools/cli.
// Not a program's table: nothing here does anything.
#pragma once

#include "tools/cli/fields.h"
#include "tools/cli/flags.h"

namespace cli {

struct Sample {
  std::vector<std::string> keys = {"text"};
  bool append_eod = false;
  bool pad = true;
  int64_t workers = 1;
  int64_t memory = 64 << 20;
  double rate = 0.5;
  std::string prefix;
  std::string dtype;
  std::vector<std::string> paths;
};

inline const Table<Sample>& sample_table() {
  static const Table<Sample> table = {
      {"Input",
       {{.name = "json-keys",
         .value = "KEY",
         .help = "Keys to read. Several may follow.",
         .field = list(&Sample::keys)},
        {.name = "data-path", .value = "PATH", .help = "Data.", .field = last_list(&Sample::paths)},
        {.name = "append-eod",
         .letter = 'a',
         .help = "Append the token. It ends documents.",
         .field = on(&Sample::append_eod)},
        {.name = "no-pad", .help = "Do not pad.", .field = off(&Sample::pad)}}},
      {"Output",
       {{.name = "output-prefix",
         .aliases = "prefix out",
         .value = "PREFIX",
         .help = "Where to.",
         .field = text(&Sample::prefix),
         .required = true},
        {.name = "workers",
         .letter = 'w',
         .value = "N",
         .help = "Threads.",
         .field = integer(&Sample::workers, 1, 1024)},
        {.name = "memory",
         .value = "SIZE",
         .help = "Bytes to use.",
         .field = size(&Sample::memory)},
        {.name = "rate", .value = "R", .help = "A rate.", .field = real(&Sample::rate, 0, 1)},
        {.name = "dtype",
         .value = "TYPE",
         .help = "Token type.",
         .field = choice(&Sample::dtype, {"uint16", "int32"})},
        {.name = "chunk-size",
         .value = "N",
         .help = "",
         .field = no_effect<Sample>(Arity::one, "chunks are cut by bytes")},
        {.name = "chunk-count",
         .value = "N",
         .help = "",
         .field = no_effect<Sample>(Arity::one, "chunks are cut by bytes")},
        {.name = "format",
         .value = "VERSION",
         .help = "",
         .field = no_effect_with<Sample>({"1"}, "there is one format")},
        {.name = "fp8",
         .value = "KIND",
         .help = "",
         .field = refused<Sample>(Arity::one, "eight bits are not enough")}}}};
  return table;
}

}  // namespace cli
