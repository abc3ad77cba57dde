// SPDX-License-Identifier: MIT
// Tests of what is printed from rows, and of the notation of the man pages.
// Exact text where users and man(1) read it, fragments elsewhere.
#include "tools/cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/cli/sample_flags.h"

namespace cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Program kProgram = {
    .name = "sample-tool", .summary = "does nothing", .operands = "[FILE...]"};

TEST(Help, ShortFormHasFirstSentencesOnly) {
  Sample options;
  const std::string help = short_help(kProgram, bind_rows(sample_table(), options));
  EXPECT_THAT(help, HasSubstr("usage: sample-tool [OPTION...] [FILE...]\ndoes nothing\n"));
  EXPECT_THAT(help, HasSubstr("  -a, --append-eod                Append the token\n"));
  EXPECT_THAT(help, Not(HasSubstr("chunk-size")));
}

TEST(Help, FullFormHasDefaultsChoicesAliasesAndReasons) {
  Sample options;
  const std::string help = full_help(kProgram, bind_rows(sample_table(), options));
  EXPECT_THAT(help,
              HasSubstr("      --json-keys KEY...\n          Keys to read. Several may follow."
                        " Default: text.\n"));
  EXPECT_THAT(help, HasSubstr("Bytes to use. Default: 64M."));
  EXPECT_THAT(help, HasSubstr("Token type. One of uint16, int32."));
  EXPECT_THAT(help, HasSubstr("Where to. Required. Also --prefix, --out."));
  EXPECT_THAT(help, HasSubstr("      --chunk-size, --chunk-count\n"
                              "          Accepted, no effect here: chunks are cut by bytes.\n"));
  EXPECT_THAT(help, HasSubstr("      --fp8 KIND\n          Refused: eight bits are not enough.\n"));
  EXPECT_THAT(help, Not(HasSubstr("Append the token. It ends documents. Default")));
}

TEST(Help, ANumberThatNobodySetHasNoDefault) {
  const auto help_of = [](int64_t workers) {
    Sample options;
    options.workers = workers;
    const Table<Sample> table = {
        {"", {{.name = "jobs", .help = "Jobs.", .field = integer(&Sample::workers, 1)}}}};
    return full_help(kProgram, bind_rows(table, options));
  };
  EXPECT_THAT(help_of(0), Not(HasSubstr("Default")));
  EXPECT_THAT(help_of(1), HasSubstr("Jobs. Default: 1."));
}

TEST(Help, EveryRowIsInEveryOutput) {
  Sample options;
  const std::vector<Row> rows = bind_rows(sample_table(), options);
  for (const Row& row : rows) {
    const std::string name = "--" + std::string(row.name);
    EXPECT_THAT(full_help(kProgram, rows), HasSubstr(name));
    EXPECT_THAT(man_options(rows), HasSubstr(name));
    const bool offered = bash_completion(kProgram, rows).find(name) != std::string::npos;
    EXPECT_EQ(offered, row.refused.empty()) << name;
  }
  EXPECT_THAT(bash_completion(kProgram, rows), HasSubstr("complete -o filenames -F _sample_tool"));
  EXPECT_THAT(bash_completion(kProgram, rows), HasSubstr("compgen -W 'uint16 int32'"));
}

TEST(ManPage, Notation) {
  const std::string page = man_page(
      "# sample-tool(1)\n<!-- a comment -->\n## NAME\n\nsample-tool - does *nothing*\nat "
      "**all**\n\n"
      "## OPTIONS\n\n{{OPTIONS}}\n## EXAMPLES\n\n```sh\n$ a \\\n.b 'c' ~ ^ `\n```\n- one `x-y`\n- "
      "two\n\nterm\n: what\n",
      "**--flag** *N*\n: Help.\n\n", "9.9");
  EXPECT_EQ(page,
            ".TH SAMPLE\\-TOOL 1 \"\" \"gristmill 9.9\"\n.nh\n.if n .ad l\n.SH NAME\n.PP\n"
            "sample\\-tool \\- does \\fInothing\\fR at \\fBall\\fR\n.SH OPTIONS\n.TP\n"
            "\\fB\\-\\-flag\\fR \\fIN\\fR\nHelp.\n.SH EXAMPLES\n.PP\n.RS 4\n.nf\n$ a "
            "\\e\n\\&.b \\(aqc\\(aq \\(ti \\(ha \\(ga\n.fi\n.RE\n"
            ".IP \\(bu 2\none \\fBx\\-y\\fR\n.IP \\(bu 2\ntwo\n.TP\nterm\nwhat\n");
}

}  // namespace
}  // namespace cli
