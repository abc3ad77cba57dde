// SPDX-License-Identifier: MIT
// Template expansion: each rule alone, real-looking templates, and definitions that would never
// end.

#include "tools/wiki/templates.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tools/wiki/wikitext.h"

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
  made.add("Template:Bomb3", std::string(1000, 'x'));
  made.add("Template:Hidden", "{{#if:|" + std::string(1000, 'x') + "}}");
  made.add("Template:Lang", "{{#invoke:lang|x}}");
  return made;
}

std::string expanded(std::string_view text, const ExpansionLimits& limits = {}) {
  static const TemplateStore kStore = store();
  return expand_templates(text, kStore, {"Title", "Site"}, limits);
}

std::string times(int count, std::string_view text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
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
  EXPECT_EQ(expanded("a<!-- x -->b<!---->{{greet|<!-- {{ -->c}} d<!-- e"), "abHello c! d");
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

// Each limit alone: what is within it is shown, what is beyond it gives nothing.
TEST(Templates, WorkIsBounded) {
  EXPECT_EQ(expanded(times(20, "{{greet}}"), {.calls = 7}), times(7, "Hello nobody!"));
  EXPECT_EQ(expanded("{{loop}}{{greet}}", {.calls = 5000}).find("Hello"), std::string::npos);
  EXPECT_EQ(expanded(times(20, "{{bomb3}}."), {.shown_bytes = 5000}),
            times(5, std::string(1000, 'x') + ".") + times(15, "."));
  const std::string made = expanded(times(20, "{{#if:{{bomb3}}|a}}"), {.made_bytes = 10000});
  EXPECT_GE(made.size(), 2U);
  EXPECT_LE(made.size(), 10U);
  EXPECT_LE(expanded("{{bomb}}", {.made_bytes = 10000}).size(), 20000U);
  EXPECT_EQ(expanded(times(9, "{{hidden}}") + "{{greet}}", {.read_bytes = 10000}), "Hello nobody!");
  EXPECT_EQ(expanded(times(10, "{{hidden}}") + "{{greet}}", {.read_bytes = 10000}), "");
  EXPECT_EQ(expanded("{{greet|a|b|mark=c}}{{greet|a|mark=d}}", {.parts_of_call = 3}),
            "Hello a!Hello ad");
  EXPECT_EQ(expanded(times(5, "{{greet|||}}") + "{{greet}}", {.parts = 21}),
            times(5, "Hello !") + "Hello nobody!");
  EXPECT_EQ(expanded(times(5, "{{greet|||}}") + "{{greet}}", {.parts = 20}), times(5, "Hello !"));
}

TEST(Templates, WorkIsBoundedByDefault) {
  EXPECT_EQ(expanded("{{greet" + std::string(40000, '|') + "}}{{greet}}"),
            "Hello !Hello nobody!");  // more parts than are distinguished
  const std::string open = times(100000, "{{greet ");
  EXPECT_EQ(expanded(open), open);
  const std::string nested = times(100000, "{{greet|") + times(100000, "}}");
  EXPECT_LE(expanded(nested).size(), nested.size() * 2);
  EXPECT_LE(expanded(times(3000, "{{bomb3}}.")).size(), (2U << 20) + 1000 + 3000);
}

// Forty calls inside one another are expanded, and the calls below stay as they stand.
TEST(Templates, DepthIsExact) {
  const auto chain = [](int calls) {
    TemplateStore made;
    for (int i = 1; i < calls; ++i)
      made.add("Template:D" + std::to_string(i), "{{d" + std::to_string(i + 1) + "}}");
    made.add("Template:D" + std::to_string(calls), "end");
    return expand_templates("{{d1}}", made, {"Title", "Site"}, {});
  };
  EXPECT_EQ(chain(39), "end");
  EXPECT_EQ(chain(40), "end");
  EXPECT_EQ(chain(41), "{{d41}}");
  EXPECT_EQ(chain(42), "{{d41}}");
}

// Three redirects behind one another are followed, a fourth is not.
TEST(TemplateStore, ChainsOfRedirectsAreFollowedExactlySoFar) {
  TemplateStore made;
  made.add("Template:R0", "end");
  for (int i = 1; i <= 5; ++i)
    made.add_redirect("Template:R" + std::to_string(i), "Template:R" + std::to_string(i - 1));
  for (int i = 0; i <= 5; ++i)
    EXPECT_EQ(made.find("r" + std::to_string(i)).has_value(), i <= 3) << i;
  made.add_redirect("Template:Ring", "Template:Ring");
  EXPECT_FALSE(made.find("ring").has_value());
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

// What a call cannot show here may be any text: nothing is computed or chosen from the rest.
TEST(Templates, NothingIsComputedOrChosenFromWhatIsIncomplete) {
  TemplateStore made;
  made.add("Template:Sum", "{{#expr: {{{1|0}}} + 5}}");
  made.add("Template:Inner", "{{sum|{{{1}}}}}");
  made.add("Template:Many", "{{#ifexpr: {{{n}}} > 1000 | many | few}}");
  made.add("Template:Unused", "{{#expr: {{{2}}} + 5}}");
  made.add("Template:Shown", "<!-- -->{{#invoke:lang|x}}");
  const auto made_of = [&](std::string_view text) {
    return expand_templates(text, made, {"Title", "Site"});
  };
  for (const std::string_view missing :
       {"{{unknown}}", "{{#time:Y}}", "{{#invoke:m|f}}", "{{#property:P1}}", "{{fullurl:x}}",
        "{{pagesincategory:x}}", "{{ns:1}}", "{{padleft:7|3|0}}", "{{sum|{{unknown}}}}"}) {
    const auto with = [&](std::string text) {
      return made_of(text.replace(text.find('~'), 1, missing));
    };
    for (const char* text : {"{{#ifexpr: ~ > 5 | big | small}}",
                             "{{#ifexpr: ~ + 9 | a}}",
                             "{{#expr: ~ - 1990}}",
                             "{{#ifeq: ~ | 3 | 3 | 4}}",
                             "{{#ifeq: 3 | ~ | 3 | 4}}",
                             "{{#if: ~ | a | b}}",
                             "{{#switch: ~ | 1 = one | other}}",
                             "{{#switch: 1 | ~ = one | other}}",
                             "{{#switch: 1 | ~ | 2 = two | other}}",
                             "{{#iferror: {{#expr: ~ + 1}} | bad | ok}}",
                             "{{#ifexist: ~ | a | b}}",
                             "{{formatnum: ~500}}",
                             "{{sum|~}}",
                             "{{inner|~}}",
                             "{{many|n=~}}",
                             "1{{#ifexpr: ~>1|000|5}}",
                             "1{{#if:~|000|5}}",
                             "1{{#switch:~|1=000|5}}",
                             "1{{#ifeq:~|1|000|5}}",
                             "1{{formatnum:~}}",
                             "1{{#iferror:~|000|5}}"})
      EXPECT_EQ(with(text), "") << text << " with " << missing;
    EXPECT_EQ(with("{{#if: x~ | a | b}}"), "a") << missing;
    EXPECT_EQ(with("{{#switch: 1 | 1 = one | ~ = two}}"), "one") << missing;
    EXPECT_EQ(with("{{#switch: 1 | 1 | ~ = two}}"), "two") << missing;
    EXPECT_EQ(with("{{unused|~|2}} {{#expr: 1+1}}"), "7 2") << missing;
  }
  EXPECT_EQ(made_of("{{#if: {{shown|5}} | a | b}}{{#time:Y}}"), "");
  EXPECT_EQ(made_of("{{#if: {{DISPLAYTITLE:x}} | a | b}} 5{{#related:x}}"), "b 5");
  EXPECT_EQ(made_of("5{{padleft:7|3|0}} 5{{#time:Y}} 5{{#invoke:m|f}}7"), "  5 7");
}

TEST(Templates, ConditionsAreMediaWikis) {
  for (const auto& [text, value] :
       {std::pair{"{{#ifexpr: 1 &lt; 2 and 2 &gt; 1 | y | n}}", "y"},
        {"{{#expr: &minus;5 + 2}}", "-3"},
        {"{{#iferror: {{#ifexpr: 1/0 | y | n}} | bad | ok}}", "bad"},
        {"{{#iferror: {{#ifexpr: 1 | y | n}} | bad | ok}}", "ok"},
        {"{{#ifexpr: | y | n}} {{#ifexpr: 0 | y}}", "n "},
        {"{{#switch: last | a = 1 | last}}", "last"},
        {"{{#switch: q | #default | x = value | y = other}}", "value"},
        {"{{#switch: y | #default | x = value | y = other}}", "other"},
        {"{{#switch: a | {{lc:A}} = yes | no}}", "yes"},
        {"{{#switch: a | b = {{lc:A=}} | [[x=]] = c | d}}", "d"},
        {"{{#switch: {{NAMESPACE}} | {{ns:0}} = article | x}}", "article"},
        {"{{#ifeq:{{NAMESPACENUMBER}}|0|a|b}} {{#ifeq:{{ns:}}|{{ns: 0 }}|a|b}}", "a a"},
        {"{{greet|{{lc:A}}b|mark={{uc:a}}=}}", "Hello abA="},
        {"{{greet|{{lc:MARK}}=.|you}}", "Hello you."}})
    EXPECT_EQ(expanded(text), value) << text;
  // An error is dropped as a whole, with the number that it continues, and parts two others.
  const std::string error = expanded("{{#ifexpr: abc | y | n}}");
  EXPECT_EQ(error.find("y"), std::string::npos);
  EXPECT_EQ(expanded("5{{#ifexpr: 1/0|1|2}}"), error);
  EXPECT_EQ(expanded("{{#expr: {{#expr: 1/0}} + 5}}"), error);
}

TEST(Templates, PartsOfTitlesAreMediaWikis) {
  Site site;
  site.namespaces = {{"talk", 1, "Talk"}, {"file", 6, "File"}, {"image", 6, "Image"}};
  const auto titles = [&](std::string_view arguments) {
    const std::string call = "{{#titleparts:" + std::string(arguments) + "}}";
    return expand_templates(call, TemplateStore(), {"Title", "Site", &site});
  };
  for (const auto& [arguments, value] :
       {// The numbers of parts, then of the first.
        std::pair{"A/b/c/d", "A/b/c/d"},
        {"A/b/c/d|0", "A/b/c/d"},
        {"A/b/c/d|1", "A"},
        {"A/b/c/d|3", "A/b/c"},
        {"A/b/c/d|9", "A/b/c/d"},
        {"A/b/c/d|-1", "A/b/c"},
        {"A/b/c/d|-3", "A"},
        {"A/b/c/d|-4", ""},
        {"A/b/c/d|-9", ""},
        {"A/b/c/d|0|1", "A/b/c/d"},
        {"A/b/c/d||2", "b/c/d"},
        {"A/b/c/d|2|2", "b/c"},
        {"A/b/c/d|9|2", "b/c/d"},
        {"A/b/c/d|1|0", "A"},
        {"A/b/c/d|1|4", "d"},
        {"A/b/c/d|1|5", ""},
        {"A/b/c/d|0|9", ""},
        {"A/b/c/d||-1", "d"},
        {"A/b/c/d||-2", "c/d"},
        {"A/b/c/d|1|-2", "c"},
        {"A/b/c/d|1|-4", "A"},
        {"A/b/c/d|1|-9", "A"},
        {"A/b/c/d|-1|2", "b/c"},
        {"A/b/c/d|-1|-3", "b/c"},
        {"A/b/c/d|-2|3", ""},
        {"A/b/c/d|-3|4", ""},
        {"A|1", "A"},
        {"A|-1", ""},
        {"A//b|2", "A/"},
        {"/A/b|1", ""},
        {"/A/b|1|2", "A"},
        // Numbers as PHP reads them.
        {"A/b/c/d| +2 | 2x", "b/c"},
        {"A/b/c/d|x|y", "A/b/c/d"},
        {"A/b/c/d|1.9|2.9", "b"},
        {"A/b/c/d|-1.9", "A/b/c"},
        {"A/b/c/d|.2e1", "A/b"},
        {"A/b/c/d|0x2|- 2", "A/b/c/d"},
        {"A/b/c/d|1|inf", "A"},
        {"A/b/c/d|1|--2", "A"},
        {"A/b/c/d|1|", "A"},
        {"A/b/c/d|99999999999999999999", "A/b/c/d"},
        {"A/b/c/d||-99999999999999999999", "A/b/c/d"},
        // At most 25 parts.
        {"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27|1|25",
         "25/26/27"},
        {"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27|1|-1",
         "25/26/27"},
        {"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27||26", ""},
        // Titles in their normal form.
        {" a_b  c /_d_|1", "A b c "},
        {"ä/b|1", "Ä"},
        {"a&amp;b/c|1", "A&b"},
        {"a\u200E\u3000b/c|1", "A b"},
        {"a/b#c/d|9", "A/b"},
        {"a/b #c[[|9", "A/b"},
        {":a/b|1", "A"},
        {": talk : a/b|1", "Talk:A"},
        {"image:a/b|1", "File:A"},
        {"x:y/z|1", "X:y"},
        {"talk/b|1", "Talk"},
        {"#a/b|1", ""},
        // What cannot be a title.
        {"a/[[b]]/c|1", "a/[[b]]/c"},
        {"a/<b>/c|1", "a/<b>/c"},
        {"a/b<ref>c</ref>|1", "a/b<ref>c</ref>"},
        {"a/b}c/d|1", "a/b}c/d"},
        {"a/%41/b|1", "a/%41/b"},
        {"a/%4g/b|1", "A"},
        {"a/&amp;amp;/b|1", "a/&amp;amp;/b"},
        {"a/&x/b;|1", "A"},
        {"a/../b|1", "a/../b"},
        {"a/./b|1", "a/./b"},
        {"./a|1", "./a"},
        {"../a|1", "../a"},
        {"a/.|1", "a/."},
        {"a/..|1", "a/.."},
        {":.|1", ":."},
        {":..|1", ":.."},
        {"a{{'}}b/c|1",
         "a\xFE\xA7"
         "b/c"},
        {"a/...|1", "A"},
        {"a/~~~|1", "a/~~~"},
        {"talk:|1", "talk:"},
        {"talk:file:a/b|1", "talk:file:a/b"},
        {"talk::a/b|1", "talk::a/b"},
        {"::a/b|1", "::a/b"},
        {"file:talk:a/b|1", "File:Talk:a"},
        {":|1", ":"},
        {"a\nb/c|1", "a\nb/c"},
        {"|1", ""}})
    EXPECT_EQ(titles(arguments), value) << arguments;
  EXPECT_EQ(titles(std::string(200, 'A') + "/" + std::string(54, 'b') + "|1"),
            std::string(200, 'A'));
  const std::string longer = std::string(200, 'A') + "/" + std::string(55, 'b');
  EXPECT_EQ(titles(longer + "|1"), longer);
  // What a call cannot show may be any part, or any number.
  EXPECT_EQ(titles("a/{{unknown}}/c|1") + titles("a/b|{{unknown}}") + titles("a|1|{{x}}"), "");
  EXPECT_EQ(expand_templates("{{#titleparts:talk:a/b|1}}", TemplateStore(), {"Title", "Site"}),
            "Talk:a");
  site.first_letter_upper = false;
  EXPECT_EQ(titles("talk:a/b|1") + titles("a/b|1"), "Talk:aa");
}

TEST(Templates, ConditionsOfNumbersWithoutEndAndOfMinusZero) {
  EXPECT_EQ(expanded("{{#ifexpr: -0.4 round 0|yes|no}} {{#ifexpr: 1e400|yes|no}} {{#expr: 1e400}}"),
            "no yes INF");
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
                                    {"2.5E-1 + 1e+1", "10.25"},
                                    {"2 e (1+1) e -1", "20"},
                                    {"-2e3^2", "4000000"},
                                    {"sqrt 4e2 ^ 2", "400"},
                                    {"e", "2.718281828459"},
                                    {"2*pi", "6.2831853071796"},
                                    {"ln e + exp 0", "2"},
                                    {".5 + 1.", "1.5"},
                                    {"1.2.3", "1.2"},
                                    {".", "0"},
                                    {"010", "10"},
                                    {"asin 1 - acos 0 + atan 0", "0"},
                                    {"5.5 fmod 2", "1.5"},
                                    {"1/100000", "1.0E-5"},
                                    {"1.5e20", "1.5E+20"},
                                    {"99999999999999", "99999999999999"},
                                    {"10^14", "1.0E+14"},
                                    {"", ""},
                                    {"0 - 0", "0"},
                                    {"-0.4 round 0", "-0"},
                                    {"trunc -0.4", "0"},
                                    {"-4 mod 2", "0"},
                                    {"1e400", "INF"},
                                    {"10^400", "INF"},
                                    {"0 - exp 1000", "-INF"},
                                    {"1e400 - 1e400", "NAN"},
                                    {"(-8)^(1/3)", "NAN"},
                                    {"1e400 > 5", "1"},
                                    {"1/1e400", "0"},
                                    {"0^-1", "INF"},
                                    {"1e400 mod 5", "0"},
                                    {"sqrt 1e400", "INF"},
                                    {"1.005 round 2", "1.01"},
                                    {"-1.005 round 2", "-1.01"},
                                    {"5.055 round 2", "5.06"},
                                    {"1.955 round 2", "1.96"},
                                    {"9.995 round 2", "10"},
                                    {"0.285 round 2", "0.29"},
                                    {"1234567.891 round -3", "1235000"},
                                    {"1.45 round 1", "1.5"},
                                    {"4.35*100 round 0", "435"},
                                    {"2.5 round 400", "2.5"},
                                    {"2.5 round -400", "0"},
                                    {"1e400 round 2", "INF"}}) {
    EXPECT_EQ(evaluate_expression(text), value) << text;
  }
  for (const char* text :
       {"1/0",   "(1",   "x",     "1 1",     "* 2",      "1 mod 0", "1 fmod 0",
        "0x10",  "0b1",  "1p3",   "inf",     "infinity", "1 + nan", "nan(1)",
        "1e",    "1e x", "2e3.x", "e e",     "2 pi",     "1 sin 0", "1_000",
        "1,000", "ln 0", "ln -1", "sqrt -1", "asin 2",   "acos -2", "1 mod 1e400"}) {
    EXPECT_THROW(evaluate_expression(text), std::invalid_argument) << text;
  }
  EXPECT_THROW(evaluate_expression(std::string(2000, '(')), std::invalid_argument);
  EXPECT_THROW(evaluate_expression(std::string(9999, '1')), std::invalid_argument);
}

}  // namespace
}  // namespace wiki
