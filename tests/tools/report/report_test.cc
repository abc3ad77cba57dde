// SPDX-License-Identifier: MIT
// Runs and datasets as a page: what is read, and that nothing foreign leaves its place on the page.
#include <expat.h>

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libindexed/builder.h"
#include "tests/own.h"
#include "tests/tools/draw/contrast.h"
#include "tools/report/page.h"

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

class ReportTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  tests::OwnFolder folder_;
};

std::string line(int iteration, double loss, double time) {
  return "{\"iteration\": " + std::to_string(iteration) + ", \"lm_loss\": " + std::to_string(loss) +
         ", \"seconds_per_iteration\": 1, \"slowest_rank\": " + std::to_string(iteration % 2) +
         ", \"time\": " + std::to_string(time) + "}\n";
}

// The page as an XML document: text, and how often each element stands in it.
struct Parsed {
  std::string text;
  std::map<std::string, int> elements;
  std::vector<std::string> nameless;  // pictures, tables' regions and headings without a name
  std::string error;
};

std::string attribute(const char** attributes, std::string_view name) {
  for (; *attributes != nullptr; attributes += 2)
    if (name == attributes[0]) return attributes[1];
  return "";
}

// What a screen reader could only call "graphic", "region" or "column".
bool has_no_name(std::string_view element, const char** attributes) {
  const std::string role = attribute(attributes, "role");
  if (element == "svg" && attribute(attributes, "aria-hidden") == "true") return false;
  if (element == "svg" && role != "img") return true;
  return (!role.empty()) && attribute(attributes, "aria-label").empty();
}

Parsed parse(const std::string& page) {
  Parsed out;
  XML_Parser parser = XML_ParserCreate("UTF-8");
  XML_SetUserData(parser, &out);
  XML_SetElementHandler(
      parser,
      [](void* user, const char* name, const char** attributes) {
        Parsed& parsed = *static_cast<Parsed*>(user);
        ++parsed.elements[name];
        if (has_no_name(name, attributes)) parsed.nameless.push_back(name);
      },
      [](void*, const char*) {});
  XML_SetCharacterDataHandler(parser, [](void* user, const char* text, int length) {
    static_cast<Parsed*>(user)->text.append(text, static_cast<size_t>(length));
  });
  if (XML_Parse(parser, page.data(), static_cast<int>(page.size()), 1) != XML_STATUS_OK)
    out.error = std::string(XML_ErrorString(XML_GetErrorCode(parser))) + " in line " +
                std::to_string(XML_GetCurrentLineNumber(parser));
  XML_ParserFree(parser);
  return out;
}

TEST_F(ReportTest, ALaterLineReplacesThoseThatItsRunTookBack) {
  const std::string path = write(
      "run/metrics.jsonl",
      line(10, 6, 9) + line(10, 5, 10) + line(20, 4, 20) +
          "{\"validation\": \"iteration 20\", \"iteration\": 20, \"lm_loss\": 4.5}\n" +
          line(30, 3, 30) + line(20, 4.25, 100) + "{\"iteration\": 30, \"lm_loss\": null}\n" +
          "{\"event\": \"checkpoint not written\", \"iteration\": 30, \"error\": \"full\"}\n" +
          "{\"validation\": \"iteration 30 on test set\", \"iteration\": 30, \"lm_loss\": 2}\n" +
          "{\"iteration\": 40, \"lm_lo");
  ASSERT_TRUE(report::is_run(folder_ / "run"));
  const report::Run run = report::read_run(folder_ / "run");
  EXPECT_EQ(run.path, path);
  EXPECT_THAT(run.points("iteration").y, ElementsAre(10, 20, 30));
  EXPECT_THAT(run.points("lm_loss").y, ElementsAre(5, 4.25, testing::IsNan()));
  EXPECT_EQ(run.last("lm_loss"), 4.25);
  EXPECT_EQ(run.passed_over, path + ": passed over 1 of 10 lines: line 10 (cut: no end of line)");
  ASSERT_THAT(run.validations, SizeIs(1));
  EXPECT_EQ(run.validations[0].set, "test set");
  ASSERT_THAT(run.events, SizeIs(1));
  EXPECT_EQ(run.events[0].text, "checkpoint not written, error full");
  const std::vector<report::Pause> pauses = run.pauses();
  ASSERT_THAT(pauses, SizeIs(1));
  EXPECT_EQ(pauses[0].iteration, 10);
  EXPECT_DOUBLE_EQ(pauses[0].seconds, 80);
}

TEST_F(ReportTest, AFileWithoutALineOfMetricsIsNamed) {
  write("a.jsonl", "\n[1]\n{}\n");
  EXPECT_THAT([&] { report::read_run(folder_ / "a.jsonl"); },
              ThrowsMessage<std::runtime_error>(AllOf(
                  HasSubstr("a.jsonl:2: \"[1]\" is not a line of trainer's metrics: not a JSON "
                            "object, nor is any other of its 3 lines"))));
  write("a.jsonl", "{\"iteration\": 1");
  EXPECT_THROW(report::read_run(folder_ / "a.jsonl"), std::runtime_error);
  write("a.jsonl", "");
  EXPECT_THAT(report::read_run(folder_ / "a.jsonl").points("iteration").y, testing::IsEmpty());
  EXPECT_FALSE(report::is_run(folder_ / "b"));
}

// What a killed run, a full disk or a crashed machine leaves, and what a later release may write.
TEST_F(ReportTest, LinesThatCannotBeReadArePassedOver) {
  const std::string zeros(3, '\0'), half = "{\"iteration\": 3, \"lm";
  const std::string path =
      write("a.jsonl", line(1, 9, 1) + half + line(4, 6, 4) + "[1]\n" + "{\"version\": 2}\n" +
                           "{\"iteration\": \"5\"}\n" +
                           "{\"iteration\": 6, \"lm_loss\": {\"mean\": 4}}\n" + "\n" + zeros +
                           "\n" + "{\"iteration\": " + zeros + "}\n" + zeros + line(7, 3, 7) +
                           "\xff\n" + line(8, 2, 8) + half);
  const report::Run run = report::read_run(path);
  EXPECT_THAT(run.points("iteration").y, ElementsAre(1, 6, 7, 8));
  EXPECT_THAT(run.points("lm_loss").y, ElementsAre(9, testing::IsNan(), 3, 2));
  EXPECT_EQ(run.passed_over,
            path +
                ": passed over 9 of 13 lines: line 2 (not JSON), line 3 (not a JSON object), "
                "line 4 (no \"iteration\"), line 5 (\"iteration\" is not a number), "
                "lines 8 to 9 (zero bytes), "
                "line 10 (zero bytes, all before a whole line, which was read), "
                "line 11 (not JSON), line 13 (cut: no end of line)");
  const std::string page = report::page("t", {run}, {});
  EXPECT_THAT(page, HasSubstr("passed over 9 of 13 lines"));
  EXPECT_EQ(parse(page).error, "");
}

TEST_F(ReportTest, AWholeLineWithoutItsEndIsRead) {
  std::string text = line(1, 9, 1) + line(2, 8, 2);
  text.pop_back();
  const report::Run run = report::read_run(write("a.jsonl", text));
  EXPECT_THAT(run.points("iteration").y, ElementsAre(1, 2));
  EXPECT_EQ(run.passed_over, "");
}

TEST_F(ReportTest, ManyPlacesAreCounted) {
  std::string text = line(1, 9, 1);
  for (int i = 0; i < 10; ++i) text += "x\n" + line(2 + i, 8, 2);
  EXPECT_THAT(report::read_run(write("a.jsonl", text)).passed_over,
              AllOf(HasSubstr("passed over 10 of 21 lines: line 2 (not JSON), "),
                    testing::EndsWith("line 16 (not JSON), 2 more places")));
}

TEST_F(ReportTest, TheConfigurationSaysWhereTheMetricsAre) {
  const std::string metrics = write("elsewhere/m.jsonl", line(1, 2, 3));
  write("run/config.toml", "[Log]\nlr = 0.001\nmetrics-file = \"" + metrics + "\"\n");
  ASSERT_TRUE(report::is_run(folder_ / "run"));
  const report::Run run = report::read_run(folder_ / "run");
  EXPECT_EQ(run.path, metrics);
  ASSERT_THAT(run.settings, SizeIs(2));
  EXPECT_EQ(run.settings[0].name, "lr");
  EXPECT_EQ(run.settings[0].value, "0.001");
}

TEST_F(ReportTest, RunsHaveShortNamesThatDiffer) {
  std::vector<report::Run> runs(3);
  runs[0].path = "a/x/metrics.jsonl";
  runs[1].path = "b/x/metrics.jsonl";
  runs[2].path = "b/y.jsonl";
  report::name_runs(runs);
  EXPECT_EQ(runs[0].name, "a/x");
  EXPECT_EQ(runs[1].name, "b/x");
  EXPECT_EQ(runs[2].name, "b/y.jsonl");
  std::vector<report::Run> same(2);
  same[0].path = same[1].path = "x/metrics.jsonl";
  report::name_runs(same);
  EXPECT_NE(same[0].name, same[1].name);
}

std::string make_dataset(const std::string& prefix,
                         const std::vector<std::vector<int32_t>>& documents) {
  indexed::IndexedDatasetBuilder builder(prefix, {.dtype = indexed::DType::uint16});
  for (const std::vector<int32_t>& document : documents) builder.add_document(document);
  builder.finish();
  return prefix;
}

TEST_F(ReportTest, RepeatedDocumentsAreCounted) {
  const std::string prefix = make_dataset(
      folder_ / "d", {{1, 2, 3}, {3, 2, 1}, {1, 2, 3}, {}, {}, {1, 2}, {1, 2, 3}, {7}});
  const report::DatasetFacts facts = report::read_facts(prefix, {.samples = 2, .sample_tokens = 2});
  EXPECT_EQ(facts.documents, 8);
  EXPECT_EQ(facts.tokens, 15);
  EXPECT_EQ(facts.repeated, 2);
  EXPECT_EQ(facts.empty_documents, 2);
  ASSERT_THAT(facts.samples, SizeIs(2));
  EXPECT_EQ(facts.samples[0].document, 2);
  EXPECT_EQ(facts.samples[0].text, "1 2 ...");
  EXPECT_EQ(facts.samples[1].document, 6);
  EXPECT_EQ(report::read_facts(prefix, {.count_repeated = false}).repeated, -1);
}

// 300,000 numbers of 32 bits would meet ten times, and of 48 bits hardly ever.
TEST_F(ReportTest, ManyDifferentDocumentsAreNotTakenForEqual) {
  const std::string prefix = folder_ / "many";
  indexed::IndexedDatasetBuilder builder(prefix, {.dtype = indexed::DType::int32});
  for (int32_t id = 0; id < 300'000; ++id) builder.add_document(std::vector<int32_t>{id});
  builder.finish();
  EXPECT_EQ(report::read_facts(prefix, {.samples = 0}).repeated, 0);
}

TEST_F(ReportTest, IdsOf64BitsAreWhole) {
  const std::string prefix = folder_ / "wide";
  indexed::IndexedDatasetBuilder builder(prefix, {.dtype = indexed::DType::int64});
  for (const int64_t id : {int64_t{7}, (int64_t{1} << 40) + 7, int64_t{1} << 31, int64_t{7}}) {
    const int32_t one = 1;
    builder.add_encoded(std::as_bytes(std::span(&id, 1)), {&one, 1}, {&one, 1});
  }
  builder.finish();
  const report::DatasetFacts facts = report::read_facts(prefix, {.samples = 4});
  EXPECT_EQ(facts.repeated, 1);
  ASSERT_THAT(facts.samples, SizeIs(4));
  EXPECT_EQ(facts.samples[1].text, "1099511627783");
  EXPECT_EQ(facts.samples[2].text, "2147483648");
}

TEST_F(ReportTest, NothingForeignLeavesItsPlace) {
  const std::string evil = "</td></pre><script>alert(\"1\")</script>&amp;'\x01\xff";
  std::vector<report::Run> runs(2);
  for (report::Run& run : runs) {
    run.name = evil;
    run.path = run.config_path = evil;
    run.columns = {{"iteration", {1, 2}}, {"lm_loss", {2, 1}}, {"grad_norm", {0, -1}}};
    run.validations = {{"", 1, 2}, {"test set", 2, 2}};
    run.events = {{1, evil}};
    run.settings = {{evil, evil + std::to_string(&run - runs.data())}};
  }
  report::DatasetFacts facts{
      .prefix = evil, .tokenizer = evil, .tool = evil, .sources = {{evil, 3}}};
  facts.lengths.add(5);
  facts.samples = {{0, 5, evil, "a\tb\n" + evil}};
  const std::string text = report::page(evil, runs, {facts});
  const Parsed page = parse(text);
  EXPECT_EQ(page.error, "");
  EXPECT_EQ(page.elements.at("script"), 1);
  EXPECT_EQ(page.elements.at("pre"), 3);
  EXPECT_THAT(page.text,
              HasSubstr("a\tb\n</td></pre><script>alert(\"1\")</script>&amp;'\\x01\\xff"));
  // Nothing is loaded from anywhere.
  EXPECT_THAT(text, AllOf(Not(HasSubstr("http")), Not(HasSubstr("src=")), Not(HasSubstr("url(")),
                          Not(HasSubstr("@import"))));
}

TEST(ReportTable, HasAHeadOnlyWhereThereIsOne) {
  const std::string around =
      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"a&amp;b\">";
  const std::string rows =
      "<tbody>\n<tr><th scope=\"row\">x</th><td>1</td><td>2</td></tr>\n"
      "<tr><th scope=\"row\">y</th></tr>\n</tbody></table></div>\n";
  const std::vector<std::vector<std::string>> cells = {{"x", "1", "2"}, {"y"}};
  EXPECT_EQ(report::table("a&b", {}, cells), around + "<table>" + rows);
  EXPECT_EQ(report::table("a&b", {"p", "r"}, cells),
            around +
                "<table><thead><tr><th scope=\"col\">p</th><th scope=\"col\">r</th></tr></thead>" +
                rows);
}

// Two runs of which each has what the other lacks.
std::vector<report::Run> two_runs() {
  std::vector<report::Run> runs(2);
  runs[0].name = "a", runs[1].name = "b";
  runs[0].columns = {{"iteration", {10, 20}},
                     {"lm_loss", {3, 2}},
                     {"seconds_per_iteration", {2, 3}},
                     {"slowest_rank", {1, 1}},
                     {"loss_scale", {1, 1}}};
  runs[1].columns = {{"iteration", {10}}, {"lm_loss", {4}}, {"nan_iterations", {2}}};
  runs[0].validations = {{"", 10, 3.5}, {"", 20, 2.5}, {"", 30, 2.75}};
  runs[0].settings = {{"lr", "0.1"}, {"seed", "1"}};
  runs[1].settings = {{"lr", "0.2"}, {"seed", "1"}};
  return runs;
}

report::DatasetFacts some_facts() {
  report::DatasetFacts facts{.prefix = "d", .tokenizer = "GPT2", .sources = {{"a.jsonl", 3}}};
  facts.lengths.add(5);
  facts.samples = {{0, 5, "a.jsonl", "text"}};
  return facts;
}

// The colours that one block of rules gives to variables: {"text", "#1b1f23"}, ...
std::map<std::string, std::string> variables(const std::string& rules) {
  std::map<std::string, std::string> out;
  static const std::regex kVariable("--([a-z0-9]+):(#[0-9a-f]{6})");
  for (std::sregex_iterator at(rules.begin(), rules.end(), kVariable), end; at != end; ++at)
    out[(*at)[1]] = (*at)[2];
  return out;
}

TEST_F(ReportTest, AllTextCanBeReadInLightInTheDarkAndOnPaper) {
  const std::string page = report::page("t", two_runs(), {some_facts()});
  const auto block = [&](const std::string& begin) {
    const size_t at = page.find(begin);
    EXPECT_NE(at, std::string::npos) << begin;
    return variables(page.substr(at, page.find('}', at) - at));
  };
  // Every variable that is the colour of some text: of HTML's, and of pictures'.
  std::set<std::string> names;
  for (const char* pattern :
       {"[;{\n]color:var\\(--([a-z0-9]+)\\)", "text\\{fill:var\\(--([a-z0-9]+)\\)"}) {
    const std::regex rule(pattern);
    for (std::sregex_iterator at(page.begin(), page.end(), rule), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  EXPECT_THAT(names, ElementsAre("faint", "text"));
  EXPECT_THAT(page, HasSubstr("background:var(--page);color:var(--text)"));
  for (const char* begin :
       {":root{color-scheme", "(prefers-color-scheme:dark)", "@media print{:root"}) {
    const std::map<std::string, std::string> colors = block(begin);
    for (const std::string& name : names)
      EXPECT_GE(tests::contrast(tests::rgb(colors.at(name)), tests::rgb(colors.at("page"))), 4.5)
          << begin << name;
  }
  // Paper has no dark page, and nothing to scroll.
  EXPECT_EQ(block("@media print{:root").at("page"), "#ffffff");
  const std::string paper = page.substr(page.rfind("@media print"));
  EXPECT_THAT(paper, AllOf(HasSubstr(".wide{overflow:visible}"), HasSubstr("pre{max-height:none}"),
                           HasSubstr("overflow-wrap:anywhere")));
}

TEST_F(ReportTest, ScreenReadersHaveANameForEveryPicture) {
  const Parsed page = parse(report::page("t", two_runs(), {some_facts()}));
  EXPECT_EQ(page.error, "");
  EXPECT_THAT(page.nameless, ElementsAre());
  EXPECT_GE(page.elements.at("svg"), 4);
  EXPECT_EQ(page.elements.at("h1"), 1);
  EXPECT_EQ(page.elements.at("main"), 1);
  // What the test itself would find.
  EXPECT_THAT(
      parse("<a><svg/><svg role=\"img\"/><div role=\"region\" aria-label=\"\"/></a>").nameless,
      ElementsAre("svg", "svg", "div"));
}

TEST_F(ReportTest, RunsStandSideBySide) {
  const std::string page = report::page("t", two_runs(), {});
  EXPECT_THAT(page, AllOf(HasSubstr("<th scope=\"row\">last loss</th><td>2</td><td>4</td>"),
                          HasSubstr("best validation loss</th><td>2.5 at 20</td><td>\u2013</td>"),
                          HasSubstr("time in steps</th><td>50 s</td>"),
                          HasSubstr("rank 1 in 2 of 2 intervals"),
                          HasSubstr("not finite</th><td>0</td><td>2</td>"),
                          HasSubstr("<th scope=\"row\">lr</th><td>0.1</td><td>0.2</td>")));
  EXPECT_THAT(page, Not(HasSubstr("Loss scale")));  // it never changes
  const size_t differ = page.find("Settings that differ"), all = page.find("All 2 settings");
  ASSERT_LT(differ, all);
  EXPECT_THAT(page.substr(differ, all - differ), Not(HasSubstr("seed")));
}

}  // namespace
