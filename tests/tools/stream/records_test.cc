// SPDX-License-Identifier: MIT
// Tests of records: the fast reader and the reference agree, refusals name their place, and the
// policy counts.
#include "tools/stream/records.h"

#include <algorithm>
#include <array>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>

#include "tests/tools/stream/packing.h"
#include "tools/cli/text.h"
#include "tools/stream/policy.h"

namespace stream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// All that a text holds, chunk by chunk: "key texts joined" for good records, "!line:offset what"
/// for the others, in order of kind.
std::vector<std::string> read_text(Format format, const std::vector<std::string>& keys,
                                   std::string_view text, int64_t chunk_bytes = 512 << 10) {
  const TestFile file(text);
  ChunkReader reader({file.path}, {.framing = framing_of(format), .chunk_bytes = chunk_bytes});
  DocumentReader documents(format, keys);
  Chunk chunk;
  ChunkReport report;
  std::vector<std::string> out;
  int64_t lines = 0;
  while (reader.next(chunk)) {
    report.clear();
    documents.read(chunk, report, [&](const Document& document) {
      std::string line;
      for (const std::vector<std::string_view>& texts : document.texts) {
        for (const std::string_view one : texts) line += std::string(one) + "|";
        line += "/";
      }
      out.push_back(line);
    });
    for (const Refusal& refusal : report.refusals) {
      out.push_back(
          "!" + std::to_string(lines + refusal.line + 1) + ":" +
          std::to_string(chunk.offset + static_cast<int64_t>(refusal.complaint.offset) + 1) + " " +
          refusal.complaint.what);
    }
    lines += report.lines;
  }
  return out;
}

std::vector<std::string> read_json(std::string_view text) {
  return read_text(Format::json, {"text"}, text);
}

TEST(Json, WhatPythonTakes) {
  EXPECT_THAT(read_json("{\"text\":\"a\\u00e9\\n\\ud83d\\ude00\"}\n"),
              ElementsAre("a\xc3\xa9\n\xf0\x9f\x98\x80|/"));
  EXPECT_THAT(read_json("{\"text\":\"a\"}\r\n\n  \t\n {\"text\":\"b\"} "),
              ElementsAre("a|/", "b|/"));
  EXPECT_THAT(read_json("{\"text\":\"a\"}\r{\"text\":\"b\"}"), ElementsAre("a|/", "b|/"));
  EXPECT_THAT(read_json("{\"text\":[\"a\", \"b\",\"\"]}"), ElementsAre("a|b||/"));
  EXPECT_THAT(read_json("{\"text\":[]}"), ElementsAre("/"));
  EXPECT_THAT(read_json("{\"text\":1,\"x\":{\"text\":\"no\"},\"text\":\"last\"}"),
              ElementsAre("last|/"));
  EXPECT_THAT(read_json("{\"te\\u0078t\":\"a\"}"), ElementsAre("a|/"));
  for (const char* other :
       {"NaN", "-Infinity", "Infinity", "1e999", "123456789012345678901234567890", "\"\\ud800\"",
        "[[],{},[{\"a\":[1,2,{}]}]]", "-0.5E+7", "true"}) {
    EXPECT_THAT(read_json(std::string("{\"x\": ") + other + " ,\"text\":\"a\"}"),
                ElementsAre("a|/"))
        << other;
  }
}

TEST(Json, RefusalsNameThePlace) {
  const auto refused = [](std::string_view line, const char* expected) {
    EXPECT_THAT(read_json("{\"text\":\"\"}\n" + std::string(line)), ElementsAre("|/", expected))
        << line;
  };
  refused("{\"text\":\"a\"", "!2:24 malformed JSON: the line ends, expected \",\" or \"}\"");
  refused("{\"text\":\"a}", "!2:21 malformed JSON: the string that opens here does not end");
  refused("{\"text\":\"a\"}}",
          "!2:25 malformed JSON: found \"}\", expected the end of the line after the object");
  refused("{\"text\":'a'}", "!2:21 malformed JSON: found \"'\", expected a value");
  refused("{text:1}", "!2:14 malformed JSON: found \"t\", expected a key in double quotes");
  refused("{\"text\":\"a\",}",
          "!2:25 malformed JSON: found \"}\", expected a key in double quotes");
  refused("{\"text\" \"a\"}", "!2:21 malformed JSON: found \"\\\"\", expected \":\" after the key");
  refused("{\"text\":\"\\x\"}", "!2:22 malformed JSON: unknown escape \"\\\\x\"");
  refused("{\"text\":\"\\u12G4\"}",
          "!2:22 malformed JSON: expected four hexadecimal digits after \\u");
  refused(std::string_view("{\"text\":\"a\0b\"}", 14),
          "!2:23 malformed JSON: control character \"\\x00\" inside a string, expected an escape");
  refused("{\"x\":01,\"text\":\"\"}", "!2:19 malformed JSON: found \"1\", expected \",\" or \"}\"");
  refused("{\"x\":tru,\"text\":\"\"}", "!2:18 malformed JSON: found \"t\", expected a value");
  refused("[1]",
          "!2:13 malformed JSON: found \"[\", expected a JSON object "
          "(a file that is one JSON array: --input-format array)");
  refused("{\"other\":\"a\"}", "!2:13 key \"text\" is missing: there is only \"other\"");
  refused("{}", "!2:13 key \"text\" is missing: the object is empty");
  refused("{\"a\\\"\":{\"text\":[1,{\"b\":2}]},\"c\":\"d, e\",\"e\":[\"f\"]}",
          "!2:13 key \"text\" is missing: there are \"a\\\\\\\"\", \"c\", \"e\"");
  refused("{\"text\":3}", "!2:21 key \"text\" is a number, expected a string or a list of strings");
  refused("{\"text\":null}", "!2:21 key \"text\" is null, expected a string or a list of strings");
  refused(
      "{\"text\":[\"a\",1]}",
      "!2:26 key \"text\" has an item that is no string, expected a string or a list of strings");
  refused("{\"text\":\"a\xff\"}", "!2:23 byte \"\\xff\" is not UTF-8");
  EXPECT_THAT(read_json("{\"text\":\"\\ud7ff\\ue000\\uffff\\ud800\\udc00\\udbff\\udfff\"}\n"),
              testing::Contains(testing::HasSubstr(
                  "\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf")));
  refused("{\"text\":\"a\\ud800b\"}",
          "!2:23 lone surrogate \\ud800 in key \"text\": no character, it has no UTF-8 form");
  refused("{\"text\":\"\\udc00\\ud83d\"}",
          "!2:22 lone surrogate \\udc00 in key \"text\": no character, it has no UTF-8 form");
}

TEST(Json, ByteOrderMarkAndDepth) {
  EXPECT_THAT(read_json("\xef\xbb\xbf{\"text\":\"a\"}\n{\"text\":\"b\"}"),
              ElementsAre("b|/",
                          "!1:1 the file opens with a byte order mark: expected JSON, remove its "
                          "first three bytes"));
  const std::string fine =
      "{\"text\":\"a\",\"x\":" + std::string(1000, '[') + std::string(1000, ']') + "}";
  EXPECT_THAT(read_json(fine), ElementsAre("a|/"));
  const std::string bomb = "{\"text\":\"a\",\"x\":" + std::string(1000000, '[');
  EXPECT_THAT(read_json(bomb),
              ElementsAre("!1:1040 malformed JSON: nested deeper than 1024 levels"));
}

TEST(Json, LongLinesAreReadAsShortOnes) {
  const std::string text(3 << 20, 'x');
  EXPECT_THAT(read_json("{\"a\":1.5,\"text\":\"" + text + "\\t\"}"), ElementsAre(text + "\t|/"));
}

/// The line of read_text() for a line of JSON by simdjson's reading; empty where it refuses it or a
/// key is missing or no text.
std::string read_by_simdjson(simdjson::dom::parser& parser, const std::vector<std::string>& keys,
                             const std::string& line) {
  simdjson::dom::object object;
  if (parser.parse(simdjson::padded_string(line)).get(object) != simdjson::SUCCESS) return "";
  std::vector<std::string> texts(keys.size());
  for (const simdjson::dom::key_value_pair member : object) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (member.key != keys[i]) continue;
      texts[i].clear();  // of equal keys the last one counts
      std::string_view text;
      if (member.value.get(text) == simdjson::SUCCESS) {
        texts[i] = std::string(text) + "|/";
        continue;
      }
      simdjson::dom::array list;
      if (member.value.get(list) != simdjson::SUCCESS) continue;
      for (const simdjson::dom::element item : list) {
        if (item.get(text) != simdjson::SUCCESS) return "";
        texts[i] += std::string(text) + "|";
      }
      texts[i] += "/";
    }
  }
  std::string out;
  for (const std::string& one : texts) {
    if (one.empty()) return "";
    out += one;
  }
  return out;
}

/// A string of a JSON line: plain runs of any length between escapes, some of them wrong.
std::string random_string(std::mt19937& random) {
  static constexpr std::array<std::string_view, 16> kParts = {
      "\\n",     "\\\"", "\\\\", "\\u00e9", "\\ud83d\\ude00", "\\/", "\\b", "\xc3\xa9",
      "\\u0041", "\t",   "\\x",  "\\u12",   "\xe3\x81\x82",   "{",   "\\t", "\\uD83D\\uDE00"};
  std::string out = "\"";
  for (size_t i = random() % 4; i > 0; --i) {
    out += std::string(random() % 40, static_cast<char>('a' + random() % 26));
    const size_t part = random() % 64;
    if (part < kParts.size()) out += kParts[part];
  }
  return out + "\"";
}

/// Random lines through this reader and through simdjson's: what simdjson accepts is accepted, with
/// the same texts. Only numbers beyond 64 bits could be accepted in addition, and no line has them.
TEST(Json, ReaderAndSimdjsonAgreeOnRandomLines) {
  std::mt19937 random(11);
  const std::vector<std::string> keys = {"a", "b"};
  const std::vector<std::string_view> parts = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               ":",
                                               ",",
                                               "\"a\"",
                                               "\"b\"",
                                               "\"\\u0061\"",
                                               "1",
                                               "-2.5e3",
                                               "null",
                                               "true",
                                               "\"x y\"",
                                               "\"\\\\\"",
                                               "\"\\ud83d\\ude00\"",
                                               " ",
                                               "\"a\":\"q\"",
                                               "\"b\":[\"r\",\"s\"]",
                                               "{\"a\":",
                                               ",\"b\":",
                                               "\"\xc3\xa9\""};
  std::vector<std::string> lines;
  std::string text;
  for (int round = 0; round < 100000; ++round) {
    std::string line = random() % 2 == 0 ? "{\"a\":" + random_string(random) + ",\"b\":" : "{";
    const size_t count = random() % 7;
    for (size_t i = 0; i < count; ++i) {
      line += random() % 4 == 0 ? random_string(random) : parts[random() % parts.size()];
    }
    lines.push_back(line + "}");
    text += lines.back() + "\n";
  }
  std::vector<std::string> good = read_text(Format::json, keys, text);
  std::erase_if(good, [](const std::string& one) { return one.starts_with("!"); });
  std::vector<std::string> expected;
  simdjson::dom::parser parser;
  for (const std::string& line : lines) {
    std::string one = read_by_simdjson(parser, keys, line);
    if (!one.empty()) expected.push_back(std::move(one));
  }
  EXPECT_EQ(good, expected);
  EXPECT_GT(good.size(), 2000u);
}

std::vector<std::string> good_then_bad(const std::vector<std::string>& read) {
  std::vector<std::string> sorted;
  for (const bool bad : {false, true})
    for (const std::string& one : read)
      if (one.starts_with("!") == bad) sorted.push_back(one);
  return sorted;
}

/// Good records and then errors, read with a blank before each line, so that no line takes the fast
/// start; places are given as without the blanks.
std::vector<std::string> read_without_heads(std::string_view text) {
  std::string blanks;
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size(); ++at) {
    const char before = at == 0 ? '\n' : text[at - 1];
    if (before == '\n' || (before == '\r' && text[at] != '\n')) {
      begins.push_back(at);
      blanks += ' ';
    }
    blanks += text[at];
  }
  std::vector<std::string> out = good_then_bad(read_json(blanks));
  for (std::string& one : out) {
    if (!one.starts_with("!")) continue;
    const size_t line = std::stoul(one.substr(1));
    const size_t colon = one.find(':');
    const size_t place = std::stoul(one.substr(colon + 1)) - line;
    // For errors of the whole record the place was that of the blank.
    one = "!" + std::to_string(line) + ":" + std::to_string(std::max(place, begins[line - 1] + 1)) +
          one.substr(one.find(' '));
  }
  return out;
}

/// Lines that open with the wanted key, whole or cut off anywhere, are read like all others,
/// wherever chunks end.
TEST(Json, HeadsChangeNothing) {
  std::mt19937 random(17);
  const std::vector<std::string> openings = {
      "{\"text\":",  "{\"text\": ", "{\"text\":  ", "{\"text\" :",
      "{ \"text\":", "{\"texts\":", "{\"Text\": ",  "{\"x\":1,\"text\": "};
  const std::vector<std::string> ends = {"}",
                                         "}",
                                         "}",
                                         "} ",
                                         " }",
                                         "}}",
                                         ",\"text\":\"again\"}",
                                         ", \"x\": [1, {\"text\": 2}]}",
                                         ",\"text\":3}",
                                         ",\"y\":\"z\\u00e9\"}",
                                         "",
                                         ",}",
                                         "}\r",
                                         ",\"x\":\"\\ud800\"}"};
  std::string text;
  for (int round = 0; round < 20000; ++round) {
    std::string line = openings[random() % 4 > 0 ? random() % 2 : random() % openings.size()];
    line += random_string(random);
    if (random() % 32 == 0) line.insert(line.size() - 1, "\\ud800");
    if (random() % 32 == 0) line.insert(line.size() - 1, 1, '\0');
    line += ends[random() % ends.size()];
    size_t size = random() % 32 == 0 ? random() % line.size() : line.size();
    while (size < line.size() && (line[size] & 0xC0) == 0x80) ++size;
    text += line.substr(0, size) + (round % 5 == 0 ? "\r\n" : "\n");
  }
  text += "{\"text\": \"the last line does not end\"}";
  const std::vector<std::string> expected = read_without_heads(text);
  EXPECT_THAT(expected, testing::Contains("the last line does not end|/"));
  EXPECT_GT(std::ranges::count_if(expected, [](const auto& one) { return one[0] == '!'; }), 2000);
  EXPECT_GT(std::ranges::count_if(expected, [](const auto& one) { return one[0] != '!'; }), 10000);
  for (const int64_t chunk_bytes : {64, 1000, 512 << 10, 64 << 20}) {
    EXPECT_EQ(good_then_bad(read_text(Format::json, {"text"}, text, chunk_bytes)), expected);
  }
}

/// Bytes that are not UTF-8 anywhere in a line, among good ones.
TEST(Json, BadUtf8Anywhere) {
  const std::string text(60, 'x');
  const std::string good = "{\"text\": \"" + text + "\"}";
  for (const std::string bad : {"\xff", "\xc3", "\xe3\x81", "\xf0\x9f\x98", "\x80"}) {
    for (size_t at = 0; at <= good.size(); ++at) {
      std::string line = good;
      line.insert(at, bad);
      EXPECT_THAT(read_json(good + "\n" + line + "\n" + good + "\n"),
                  ElementsAre(text + "|/", text + "|/",
                              "!2:" + std::to_string(good.size() + 2 + at) + " byte " +
                                  cli::quote(bad.substr(0, 1)) + " is not UTF-8"))
          << at;
    }
  }
}

/// A key that JSON cannot contain without escapes is found, too.
TEST(Json, KeysWithEscapes) {
  EXPECT_THAT(read_text(Format::json, {"a\"\n"}, "{\"a\\\"\\n\": \"b\"}\n"), ElementsAre("b|/"));
  EXPECT_THAT(read_text(Format::json, {"a\\n"}, "{\"a\\n\": \"b\"}\n"),
              ElementsAre("!1:1 key \"a\\\\n\" is missing: there is only \"a\\\\n\""));
  EXPECT_THAT(read_text(Format::json, {""}, "{\"\": \"b\"}\n"), ElementsAre("b|/"));
}

TEST(Plain, LinesNulAndWholeFiles) {
  EXPECT_THAT(read_text(Format::lines, {}, "a\r\n\nb"), ElementsAre("a|/", "|/", "b|/"));
  EXPECT_THAT(read_text(Format::nul, {}, std::string_view("a\nb\0\0c", 6)),
              ElementsAre("a\nb|/", "|/", "c|/"));
  EXPECT_THAT(read_text(Format::file, {}, "a\nb\r\n"), ElementsAre("a\nb\r\n|/"));
  EXPECT_THAT(read_text(Format::file, {}, ""), ElementsAre("|/"));
  for (const int64_t chunk_bytes : {1, 4, 5, 6})
    EXPECT_THAT(read_text(Format::file, {}, "a\nb\r\n", chunk_bytes), ElementsAre("a\nb\r\n|/"));
  EXPECT_THAT(read_text(Format::lines, {}, "a\nb\xed\xa0\x80\n"),
              ElementsAre("a|/", "!2:4 byte \"\\xed\" is not UTF-8"));
}

/// Searching for the end of the chunk again from each line would take an hour here.
TEST(Plain, LinesThatEndInCarriageReturnsAlone) {
  constexpr int64_t kLines = int64_t{2} << 20;
  std::string text;
  for (int64_t i = 0; i < kLines; ++i) text += "fifteen letters\r";
  const TestFile file(text);
  ChunkReader reader({file.path}, {});
  DocumentReader documents(Format::lines, {});
  Chunk chunk;
  ChunkReport report;
  int64_t equal = 0;
  while (reader.next(chunk)) {
    documents.read(chunk, report, [&](const Document& document) {
      equal += document.texts[0][0] == "fifteen letters";
    });
  }
  EXPECT_EQ(equal, kLines);
  EXPECT_EQ(report.lines, kLines);
}

TEST(Utf8, FirstBadByte) {
  EXPECT_EQ(find_bad_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), std::string_view::npos);
  for (const char* bad :
       {"ab\x80", "ab\xc0\x80", "ab\xe0\x80\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80",
        "ab\xf0\x80\x80\x80", "ab\xe2\x82", "ab\xc3", "ab\xff"}) {
    EXPECT_EQ(find_bad_utf8(bad), 2u) << bad;
  }
}

class Policy : public testing::Test {
 protected:
  /// Feeds a text through a policy; returns what was printed and kept, or the error.
  std::string run(PolicyOptions options, std::string_view text, int64_t cap = 1 << 20) {
    const TestFile file(text);
    cli::Console console("tool");
    kept_.clear();
    ErrorPolicy policy(options, console, [&](std::string_view piece, bool ends) {
      kept_ += std::string(piece) + (ends ? "$" : "");
    });
    testing::internal::CaptureStderr();
    std::string error;
    try {
      ChunkReader reader({file.path}, {.chunk_bytes = 64, .max_record_bytes = cap});
      DocumentReader documents(Format::json, {"text"});
      Chunk chunk;
      ChunkReport report;
      while (reader.next(chunk)) {
        report.clear();
        if (!chunk.over_cap) documents.read(chunk, report, [](const Document&) {});
        policy.take(chunk, "in", report);
      }
      policy.finish();
    } catch (const RecordError& caught) {
      error = caught.what();
    }
    return testing::internal::GetCapturedStderr() + error;
  }
  std::string kept_;
  const std::string bad_ = "{\"text\":\"good\"}\n{\"text\":1}\n\n{\"x\":2}\n" +
                           std::string(200, ' ') + "{\"text\":\"far\"}\n{\"text\":\n";
};

// A hundred places of each kind, then one line that says that no more are printed.
TEST_F(Policy, PrintsAHundredPlacesOfEachKind) {
  for (const int count : {99, 100, 101, 150}) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "{\"text\":1}\n";
    text += "{\"x\":2}\n";
    const std::string said = run({.on_error = "skip"}, text);
    const auto lines = [&](std::string_view what) {
      int found = 0;
      for (size_t at = said.find(what); at != std::string::npos; at = said.find(what, at + 1))
        ++found;
      return found;
    };
    EXPECT_EQ(lines("key \"text\" is a number"), std::min(count, 100)) << said;
    EXPECT_EQ(lines("counted, not printed"), count > 100 ? 1 : 0) << count;
    EXPECT_EQ(lines("\n") > std::min(count, 100), true) << "the other kind is printed";
  }
}

TEST_F(Policy, Stop) {
  EXPECT_EQ(run({}, bad_),
            "in:2:25: key \"text\" is a number, expected a string or a list of strings");
}

TEST_F(Policy, SkipAndQuarantine) {
  const std::string expected =
      "tool: in:2:25: key \"text\" is a number, expected a string or a list of strings\n"
      "tool: in:4:29: key \"text\" is missing: there is only \"x\"\n"
      "tool: in:6:260: malformed JSON: the line ends, expected a value\n"
      "tool: skipped 3 of 5 documents: 1 malformed JSON, 1 missing key, 1 wrong type\n";
  EXPECT_EQ(run({.on_error = "skip"}, bad_), expected);
  EXPECT_EQ(kept_, "");
  EXPECT_EQ(run({.on_error = "quarantine"}, bad_), expected);
  EXPECT_EQ(kept_, "{\"text\":1}${\"x\":2}${\"text\":$");
}

TEST_F(Policy, LongRecords) {
  EXPECT_EQ(run({.on_error = "quarantine"}, bad_, 100),
            "tool: in:2:25: key \"text\" is a number, expected a string or a list of strings\n"
            "tool: in:4:29: key \"text\" is missing: there is only \"x\"\n"
            "tool: in:5:37: the record is longer than 100 bytes: shorten it or raise --max-line\n"
            "tool: in:6:260: malformed JSON: the line ends, expected a value\n"
            "tool: skipped 4 of 5 documents: 1 malformed JSON, 1 missing key, 1 wrong type, 1 too "
            "long\n");
  EXPECT_EQ(kept_,
            "{\"text\":1}${\"x\":2}$" + std::string(200, ' ') + "{\"text\":\"far\"}\n${\"text\":$");
}

TEST_F(Policy, Limits) {
  EXPECT_THAT(run({.on_error = "skip", .max_errors = "2"}, bad_),
              testing::HasSubstr("3 of 5 documents are bad: more than --max-errors allows"));
  EXPECT_THAT(run({.on_error = "skip", .max_errors = "3"}, bad_),
              testing::HasSubstr("skipped 3 of 5"));
  EXPECT_THAT(run({.on_error = "skip", .max_errors = "50%"}, bad_),
              testing::HasSubstr("3 of 5 documents are bad"));
  EXPECT_THAT(run({.on_error = "skip", .max_errors = "60%"}, bad_),
              testing::HasSubstr("skipped 3 of 5"));
  EXPECT_THROW(run({.quarantine = "x"}, bad_), cli::UsageError);
}

// A share is exact: 3 of 5 documents are 60%. It is judged before the end once 10,000 are known.
TEST_F(Policy, SharesAreExact) {
  const auto ends_well = [&](const std::string& share) {
    return run({.on_error = "skip", .max_errors = share}, bad_).find("more than") ==
           std::string::npos;
  };
  EXPECT_FALSE(ends_well("59.999%"));
  EXPECT_TRUE(ends_well("60%"));
  EXPECT_TRUE(ends_well("60.001%"));
  EXPECT_TRUE(ends_well("100%"));
  EXPECT_FALSE(ends_well("0%"));
  const std::string good = "{\"text\":\"\"}\n", bad = "1\n";
  const auto stops_at = [&](int good_ones) {
    std::string input;
    for (int i = 0; i < good_ones; ++i) input += good;
    for (int i = 0; i < 200; ++i) input += bad;
    const std::string said = run({.on_error = "skip", .max_errors = "1%"}, input);
    const size_t at = said.rfind(" of ");
    return said.substr(at, said.find(" documents", at) - at);
  };
  EXPECT_LT(stops_at(9900), " of 10,100") << "100 of 10,000 are one percent";
  EXPECT_EQ(stops_at(9000), " of 9,200") << "below 10,000 documents the end judges";
}

}  // namespace
}  // namespace stream
