// SPDX-License-Identifier: MIT
// Tests of rows, of the reading of command lines and of configuration files.
#include "tools/cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/cli/sample_flags.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"

namespace cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The sample options after `arguments`; operands and given names in `parsed`.
struct Reading {
  Sample options;
  std::vector<Row> rows = bind_rows(sample_table(), options);
  Parsed parsed;
  explicit Reading(std::vector<std::string> arguments) {
    parsed = parse_arguments(rows, arguments);
  }
};

std::string usage_error(const std::vector<std::string>& arguments) {
  try {
    Reading reading(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseArguments, BothFormsOfAValue) {
  EXPECT_EQ(Reading({"--workers", "3"}).options.workers, 3);
  EXPECT_EQ(Reading({"--workers=3"}).options.workers, 3);
  EXPECT_EQ(Reading({"-w", "3"}).options.workers, 3);
  EXPECT_EQ(Reading({"-w3"}).options.workers, 3);
  EXPECT_EQ(Reading({"--output-prefix="}).options.prefix, "");
}

TEST(ParseArguments, ListsTakeEverythingUpToTheNextFlag) {
  EXPECT_THAT(Reading({"--json-keys", "a", "b,c", "-", "--workers", "2"}).options.keys,
              ElementsAre("a", "b,c", "-"));
  EXPECT_THAT(Reading({"--json-keys=a", "--json-keys", "b"}).options.keys, ElementsAre("a", "b"));
  EXPECT_THAT(Reading({"--json-keys", "-1", "-.5", "--", "x"}).options.keys,
              ElementsAre("-1", "-.5"));
}

TEST(ParseArguments, TheLastUseOfSomeListsCounts) {
  EXPECT_THAT(Reading({"--data-path", "a", "b", "-w2", "--data-path", "c", "d"}).options.paths,
              ElementsAre("c", "d"));
  EXPECT_THAT(Reading({"--data-path", "a", "b", "--data-path=c"}).options.paths, ElementsAre("c"));
}

TEST(ParseArguments, FlagsThatCannotBeHonouredSayWhy) {
  EXPECT_EQ(usage_error({"--fp8", "hybrid"}),
            "--fp8 hybrid: cannot be honoured here: eight bits are not enough");
  EXPECT_EQ(usage_error({"--fp9"}), "unknown option --fp9");
  EXPECT_EQ(usage_error({"--format", "2"}), "--format 2: permitted is 1: there is one format");
  EXPECT_EQ(usage_error({"--format", "1"}), "no error");
}

TEST(ParseArguments, OperandsAndTheEndOfOptions) {
  EXPECT_THAT(Reading({"a", "--workers", "2", "-", "--", "--workers", "b"}).parsed.operands,
              ElementsAre("a", "-", "--workers", "b"));
}

TEST(ParseArguments, SwitchesAndLetters) {
  Reading reading({"-aw2", "--no-pad"});
  EXPECT_TRUE(reading.options.append_eod);
  EXPECT_FALSE(reading.options.pad);
  EXPECT_EQ(reading.options.workers, 2);
  EXPECT_TRUE(reading.parsed.given.contains("append-eod"));
  EXPECT_FALSE(reading.parsed.given.contains("json-keys"));
}

TEST(ParseArguments, AliasesAndTheLastOneCounts) {
  EXPECT_EQ(Reading({"--prefix", "a", "--output-prefix", "b"}).options.prefix, "b");
}

TEST(ParseArguments, ValuesKeepEveryByte) {
  const std::string odd = "a=b c\n\"--d\" \xc3\xa9 ,;";
  EXPECT_EQ(Reading({"--output-prefix", odd}).options.prefix, odd);
  EXPECT_EQ(Reading({"--output-prefix=" + odd}).options.prefix, odd);
}

TEST(ParseArguments, ErrorsNameTheFlagAndTheNearest) {
  EXPECT_EQ(usage_error({"--json-key", "a"}),
            "unknown option --json-key: did you mean --json-keys");
  EXPECT_EQ(usage_error({"--jsno-keys=a"}), "unknown option --jsno-keys: did you mean --json-keys");
  // An exchange of neighbours costs as much as one letter, wherever it is.
  EXPECT_EQ(usage_error({"--wrokesr", "3"}), "unknown option --wrokesr: did you mean --workers");
  EXPECT_EQ(usage_error({"--owrkesr", "3"}), "unknown option --owrkesr: did you mean --workers");
  EXPECT_EQ(usage_error({"--wrokxyz", "3"}), "unknown option --wrokxyz");
  EXPECT_EQ(usage_error({"--work", "3"}), "unknown option --work: did you mean --workers");
  EXPECT_EQ(usage_error({"--zzzzzzzz"}), "unknown option --zzzzzzzz");
  EXPECT_EQ(usage_error({"-z"}), "unknown option -z");
  EXPECT_EQ(usage_error({"--workers"}), "--workers needs a value: N");
  EXPECT_EQ(usage_error({"--workers", "--append-eod"}), "--workers needs a value: N");
  EXPECT_EQ(usage_error({"--append-eod=yes"}), "--append-eod takes no value");
  EXPECT_EQ(usage_error({"--workers", "0"}), "--workers 0: expected a whole number from 1 to 1024");
  EXPECT_EQ(usage_error({"--workers", "8x"}),
            "--workers 8x: expected a whole number from 1 to 1024");
  EXPECT_EQ(usage_error({"--dtype", "int9"}), "--dtype int9: expected one of uint16, int32");
  EXPECT_THAT(usage_error({"--memory", "99999999999G"}), HasSubstr("does not fit in 63 bits"));
}

TEST(ParseArguments, RequiredFlags) {
  Reading reading({"--workers", "3"});
  EXPECT_THROW(check_required(reading.rows, reading.parsed), UsageError);
  Reading whole({"--output-prefix", "x"});
  EXPECT_NO_THROW(check_required(whole.rows, whole.parsed));
}

TEST(ParseArguments, AllMissingFlagsAreNamedAtOnce) {
  Reading reading({"--workers", "3"});
  for (Row& row : reading.rows) row.required = row.required || row.name == "dtype";
  EXPECT_THAT(
      [&] { check_required(reading.rows, reading.parsed); },
      testing::ThrowsMessage<UsageError>("--output-prefix PREFIX and --dtype TYPE are missing"));
}

TEST(ParseArguments, SomeFlagsAddUpUseByUse) {
  Sample options;
  std::vector<Row> rows = bind_rows(sample_table(), options);
  for (Row& row : rows) {
    if (row.name != "json-keys") continue;
    row.arity = Arity::one;
    row.adds_up = true;
  }
  const std::vector<std::string> words = {"--json-keys", "a", "file", "--json-keys=b"};
  const Parsed parsed = parse_arguments(rows, words);
  EXPECT_THAT(options.keys, ElementsAre("a", "b"));
  EXPECT_THAT(parsed.operands, ElementsAre("file"));
}

struct Outer {
  Sample inner;
  int64_t other = 1;
};

TEST(Lift, RowsOfAPartWorkOnTheWhole) {
  Table<Outer> table;
  for (const Group<Sample>& group : sample_table()) table.push_back(lift(group, &Outer::inner));
  Outer options;
  std::vector<Row> rows = bind_rows(table, options);
  const std::vector<std::string> words = {"--workers", "9", "--prefix", "p"};
  parse_arguments(rows, words);
  EXPECT_EQ(options.inner.workers, 9);
  EXPECT_THAT(show_config(rows), HasSubstr("workers = 9\n"));
  EXPECT_EQ(rows.size(), 13u);
  EXPECT_TRUE(find_row(rows, "out")->required);
}

TEST(Numbers, SizesHaveUnitsAndLimits) {
  EXPECT_EQ(parse_size("0", 0, kMaxInteger), 0);
  EXPECT_EQ(parse_size("64k", 0, kMaxInteger), 65536);
  EXPECT_EQ(parse_size("3G", 0, kMaxInteger), 3221225472);
  EXPECT_EQ(parse_size("8388607T", 0, kMaxInteger), 9223370937343148032);
  for (const char* wrong :
       {"", "K", "-1", "1.5G", "8388608T", "9223372036854775808", "1KB", " 1"}) {
    EXPECT_THROW(parse_size(wrong, 0, kMaxInteger), UsageError) << wrong;
  }
  EXPECT_THROW(parse_size("2M", 0, 1 << 20), UsageError);
  for (const int64_t size :
       {int64_t{0}, int64_t{1023}, int64_t{1024}, int64_t{1536}, int64_t{1} << 42, kMaxInteger}) {
    EXPECT_EQ(parse_size(show_size(size), 0, kMaxInteger), size);
  }
}

TEST(Numbers, UnderscoresStandBetweenDigits) {
  EXPECT_EQ(parse_integer("9_765_625", 0, kMaxInteger), 9765625);
  EXPECT_EQ(parse_real("1_0.5e1_0", 0, 1e300), 10.5e10);
  for (const char* text : {"_1", "1_", "1__0", "1_e5"})
    EXPECT_THROW(parse_real(text, 0, 1e300), UsageError) << text;
  EXPECT_THROW(parse_integer("1_", 0, 10), UsageError);
}

TEST(Numbers, RealNumbersReadBack) {
  for (const double value : {0.0, 0.1, 1e-5, 6e-4, 1.0 / 3, 1e300}) {
    EXPECT_EQ(parse_real(show_real(value), -1, 1e301), value);
  }
  for (const char* wrong : {"", "nan", "inf", "1e999", "0.1x", "2"}) {
    EXPECT_THROW(parse_real(wrong, 0, 1), UsageError) << wrong;
  }
}

TEST(Config, EchoReadsBack) {
  Reading first({"--workers", "7", "--json-keys", "a b", "c\"d", "--append-eod", "--no-pad",
                 "--memory", "3M", "--output-prefix", "x # y", "--rate", "0.25"});
  const std::string text = show_config(first.rows);
  Reading second({});
  read_config(second.rows, text, "echo", second.parsed);
  EXPECT_EQ(show_config(second.rows), text);
  EXPECT_EQ(second.options.prefix, "x # y");
  EXPECT_THAT(second.options.keys, ElementsAre("a b", "c\"d"));
  EXPECT_TRUE(second.parsed.given.contains("memory"));
}

TEST(Config, FormsAndErrors) {
  Reading reading({});
  read_config(
      reading.rows,
      "# comment\n[Input]\njson_keys = [a, 'b c',\n  \"d\", # more\n]\nappend-eod = true\r\n"
      "workers=4 # four\nprefix = /data/x",
      "f.toml", reading.parsed);
  EXPECT_THAT(reading.options.keys, ElementsAre("a", "b c", "d"));
  EXPECT_TRUE(reading.options.append_eod);
  EXPECT_EQ(reading.options.workers, 4);
  EXPECT_EQ(reading.options.prefix, "/data/x");
  const auto message = [&](std::string_view text) -> std::string {
    try {
      read_config(reading.rows, text, "f.toml", reading.parsed);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("\nwrokers = 1"), "f.toml:2: unknown name wrokers: did you mean workers");
  EXPECT_EQ(message("workers = 0"),
            "f.toml:1: workers = 0: expected a whole number from 1 to 1024");
  EXPECT_EQ(message("workers = [1, 2]"), "f.toml:1: workers takes one value, not a list");
  EXPECT_EQ(message("workers 3"), "f.toml:1: expected name = value, found \"workers\"");
  EXPECT_EQ(message("json-keys = [a"), "f.toml:1: the list does not end");
  EXPECT_EQ(message("prefix = \"a"), "f.toml:1: the text in quotes does not end on its line");
  EXPECT_EQ(message("workers = 1 2"), "f.toml:1: more after the value of workers");
}

// Lists go over any number of lines, wherever they are broken; nothing else does.
TEST(Config, OnlyListsGoOverLines) {
  const auto outcome = [](std::string_view text) -> std::string {
    Reading reading({});
    try {
      read_config(reading.rows, text, "f.toml", reading.parsed);
    } catch (const UsageError& error) {
      return error.what();
    }
    std::string out;
    for (const std::string& key : reading.options.keys) out += key + ";";
    return out + std::to_string(reading.options.workers);
  };
  const std::string pieces[] = {"json-keys = [", "\"a\"", ",", "b", "]", "", "workers = 7"};
  std::string whole, broken;
  for (const std::string& piece : pieces) {
    if (piece.empty()) whole += "\n";
    whole += piece;
    broken += piece + " # more\n \t\n";
  }
  EXPECT_EQ(outcome(whole), "a;b;7");
  EXPECT_EQ(outcome(broken), "a;b;7");
  EXPECT_EQ(outcome("workers\n= 7"), "f.toml:1: expected name = value, found \"workers\"");
  EXPECT_EQ(outcome("workers =\n7"), "f.toml:1: expected a value");
  EXPECT_EQ(outcome("workers = 7 json-keys = [a]"), "f.toml:1: more after the value of workers");
}

TEST(Text, OneLineShowsWhatItSays) {
  EXPECT_EQ(one_line("a/b \\ \"caf\xc3\xa9\" \xe6\x97\xa5"), "a/b \\ \"caf\xc3\xa9\" \xe6\x97\xa5");
  EXPECT_EQ(one_line("a\nb\r\tc\x1b[31m\x7f"), "a\\nb\\r\\tc\\x1b[31m\\x7f");
  EXPECT_EQ(one_line("\xc2\x9b"
                     "2J"),
            "\\xc2\\x9b"
            "2J");  // CSI in one character
  EXPECT_EQ(one_line("\xff\xe2\x82"), "\\xff\\xe2\\x82");
  EXPECT_EQ(one_line("\xe2\x80\xa8|\xe2\x80\xae|\xe2\x81\xa6"), "\\u2028|\\u202e|\\u2066");
  EXPECT_EQ(one_line("\xe2\x80\xa6\xe2\x81\xaa"), "\xe2\x80\xa6\xe2\x81\xaa");
  EXPECT_EQ(quote("\xe2\x80\xae"), "\"\\u202e\"");
  // The first and last code points of each length, and one beyond: no second form of a character,
  // no surrogate, nothing above U+10FFFF.
  for (const char* shown : {"\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                            "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(one_line(shown), shown);
  EXPECT_EQ(one_line("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(one_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(one_line("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
  EXPECT_EQ(one_line("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Text, NumbersAndQuotes) {
  EXPECT_EQ(with_commas(90114), "90,114");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(readable_time(59.4), "59 s");
  EXPECT_EQ(readable_time(59.5), "1 min 0 s");
  EXPECT_EQ(readable_time(3599), "59 min 59 s");
  EXPECT_EQ(readable_time(3600), "1 h 0 min");
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(quote("a\"b\n\x01\xff\xc3\xa9"), "\"a\\\"b\\n\\x01\\xff\xc3\xa9\"");
  EXPECT_EQ(quote("abcdef", 3), "\"abc...\"");
  EXPECT_EQ(shell_word("--split=90,10/a_b.c"), "--split=90,10/a_b.c");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(readable_bytes(1536), "1.5 KiB");
  EXPECT_EQ(readable_time(250), "4 min 10 s");
}

}  // namespace
}  // namespace cli
