// SPDX-License-Identifier: MIT
// Template expansion: each rule alone, real-looking templates, and definitions that would never
// end.

#include "tools/wiki/templates.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace wiki {
namespace {

TemplateStore store() {
  TemplateStore made;
  made.set_namespace("Шаблон");
  made.add("Template:Greet", "Hello {{{1|nobody}}}{{{mark|!}}}");
  made.add("Template:Outer",
           "<noinclude>docs</noinclude>[{{greet|{{{1}}}|mark=?}}]<includeonly>in</includeonly>");
  made.add("Template:Only", "x<onlyinclude>a</onlyinclude>y<onlyinclude>b</onlyinclude>z");
  made.add("Template:Old name", "#REDIRECT [[Template:Greet]]");
  made.add("Шаблон:Местен", "тук");
  made.add("Template:Loop", "{{loop}}{{loop}}");
  made.add("Template:Bomb",
           "{{bomb2}}{{bomb2}}{{bomb2}}{{bomb2}}{{bomb2}}{{bomb2}}{{bomb2}}{{bomb2}}");
  made.add("Template:Bomb2",
           "{{bomb3}}{{bomb3}}{{bomb3}}{{bomb3}}{{bomb3}}{{bomb3}}{{bomb3}}{{bomb3}}");
  made.add("Template:Bomb3", std::string(2 << 20, 'x'));
  made.add("Template:Lang", "{{#invoke:lang|x}}");
  return made;
}

std::string expanded(std::string_view text) {
  static const TemplateStore kStore = store();
  return expand_templates(text, kStore, {"Title", "Site"});
}

TEST(Templates, Calls) {
  EXPECT_EQ(expanded("a {{greet}} b"), "a Hello nobody! b");
  EXPECT_EQ(expanded("{{Greet|you}}"), "Hello you!");
  EXPECT_EQ(expanded("{{greet|1= you |mark=.}}"), "Hello you.");
  EXPECT_EQ(expanded("{{Template:greet|[[a|b]]}}"), "Hello [[a|b]]!");
  EXPECT_EQ(expanded("{{outer|me}}"), "[Hello me?]in");
  EXPECT_EQ(expanded("{{only}}"), "ab");
  EXPECT_EQ(expanded("{{old_name|x}}"), "Hello x!");
  EXPECT_EQ(expanded("{{местен}}{{Шаблон:Местен}}{{шаблон: местен}}"), "туктуктук");
  EXPECT_EQ(expanded("{{unknown|x}}y"), "y");
  EXPECT_EQ(expanded("{{lang|grc|x}}"), "x");
  EXPECT_EQ(expanded("{{{1|default}}} {{PAGENAME}} {{SITENAME}}"), "default Title Site");
  EXPECT_EQ(expanded("{{greet|{{{{{1|PAGENAME}}}}}}}"), "Hello Title!");
  EXPECT_EQ(expanded("open {{greet and }} close }} {{"), "open  close }} {{");
}

TEST(Templates, ParserFunctions) {
  EXPECT_EQ(expanded("{{#if: x | yes | no }}{{#if: | yes | no }}"), "yesno");
  EXPECT_EQ(expanded("{{#ifeq: 01 | 1 | same | other }}{{#ifeq: a | A | same | other }}"),
            "sameother");
  EXPECT_EQ(expanded("{{#ifeq: 0x10 | 16 | same | other }}{{#ifeq: inf | INF | same | other }}"),
            "otherother");
  EXPECT_EQ(expanded("{{#switch: b | a = 1 | b | c = 2 | #default = 3 }}"), "2");
  EXPECT_EQ(expanded("{{#switch: z | a = 1 | #default = 3 }}{{#switch: z | a = 1 | last }}"),
            "3last");
  EXPECT_EQ(expanded("{{#expr: 1 + 2 * 3 }} {{#ifexpr: 2 > 1 | y | n }} {{#iferror: {{#expr: 1/0}} "
                     "| bad | ok }}"),
            "7 y bad");
  EXPECT_EQ(expanded("{{uc:ab}} {{ucfirst:ab}} {{lcfirst:AB}} {{lc:AB}} {{formatnum:-1234567.5}}"),
            "AB Ab aB ab -1,234,567.5");
  EXPECT_EQ(expanded("{{#ifexist: Template:Greet | y | n }}{{DEFAULTSORT:x}}{{#invoke:m|f}}{{!}}"),
            "y|");
}

TEST(Templates, WorkIsBounded) {
  EXPECT_LT(expanded("{{loop}}").size(), size_t{1} << 20);
  EXPECT_LT(expanded("{{bomb}}").size(), size_t{64} << 20);
  std::string open;
  for (int i = 0; i < 100000; ++i) open += "{{greet ";
  EXPECT_EQ(expanded(open), open);
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{{greet|";
  for (int i = 0; i < 100000; ++i) nested += "}}";
  EXPECT_LE(expanded(nested).size(), nested.size() * 2);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{{bomb3}}.";
  EXPECT_LE(expanded(many).size(), (5 << 20) + many.size());
  const std::string parts(40000, '|');  // more than are told apart
  EXPECT_EQ(expanded("{{greet" + parts + "}}{{greet}}"), "Hello !Hello nobody!");
  std::string calls;
  for (int i = 0; i < 200; ++i) calls += "{{greet" + parts + "}}";
  EXPECT_EQ(expanded(calls + "{{greet}}").find("nobody"), std::string::npos);
}

// Bodies that lie in the temporary file, and on both sides of its beginning, are found as those in
// memory.
TEST(TemplateStore, SpillsToAFile) {
  for (const size_t most_in_memory : {size_t{0}, size_t{500}, size_t{1} << 20}) {
    TemplateStore store(".", most_in_memory);
    for (int i = 0; i < 100; ++i) {
      store.add("Template:T" + std::to_string(i), "body of " + std::to_string(i));
      store.add_redirect("Template:R" + std::to_string(i), "Template:T" + std::to_string(i));
    }
    store.add("Template:T7", "another body");
    EXPECT_EQ(store.bytes_in_file() > 0, most_in_memory < 1000);
    const TemplateStore moved = std::move(store);
    for (int i = 0; i < 100; ++i) {
      const std::string body = i == 7 ? "another body" : "body of " + std::to_string(i);
      EXPECT_EQ(moved.find("t" + std::to_string(i)), body);
      EXPECT_EQ(moved.find("r" + std::to_string(i)), body);
    }
    EXPECT_TRUE(moved.has("r7"));
    EXPECT_FALSE(moved.has("T100"));
  }
  TemplateStore nowhere("/nonexistent/folder", 0);
  nowhere.add("T", "body");  // falls back to the folder for temporary files
  EXPECT_EQ(nowhere.find("T"), "body");
}

TEST(Templates, LettersOfEveryScript) {
  EXPECT_EQ(expanded("{{lc:ЖaÉ}} {{uc:жaß}} {{ucfirst:ёлка}} {{lcfirst:Ёлка}}"),
            "жaé ЖASS Ёлка ёлка");
  EXPECT_EQ(expanded("{{lcfirst:\u0130b}} {{lcfirst:\u212Ab}}"), "i\u0307b kb");
}

TEST(Expression, Values) {
  for (const auto& [text, value] : {std::pair{"1+2*3", "7"},
                                    {"2^3^2", "64"},
                                    {"-2^2", "4"},
                                    {"7 mod 4", "3"},
                                    {"1/4", "0.25"},
                                    {"2.567 round 1", "2.6"},
                                    {"1 = 1 and 2 <> 2 or not 0", "1"},
                                    {"floor 2.7", "2"},
                                    {"(1+2)*3", "9"},
                                    {"1e3", "1000"},
                                    {"10/3", "3.3333333333333"},
                                    {"", ""},
                                    {"0 - 0", "0"}}) {
    EXPECT_EQ(evaluate_expression(text), value) << text;
  }
  for (const char* text : {"1/0", "(1", "x", "1 1", "* 2", "1 mod 0"}) {
    EXPECT_THROW(evaluate_expression(text), std::invalid_argument) << text;
  }
  EXPECT_THROW(evaluate_expression(std::string(2000, '(')), std::invalid_argument);
  EXPECT_THROW(evaluate_expression(std::string(9999, '1')), std::invalid_argument);
}

}  // namespace
}  // namespace wiki
