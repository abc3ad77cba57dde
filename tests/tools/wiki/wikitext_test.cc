// SPDX-License-Identifier: MIT
// Wikitext to text: each construct alone, constructs left open, and nesting without end.
// Expected texts follow docs/wiki-extract-differences.md.

#include "tools/wiki/wikitext.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sanitized.h"
#include "tools/wiki/entities.h"

namespace wiki {
namespace {

std::string cleaned(std::string_view page, const CleanOptions& options = {}) {
  Site site;
  site.media_names = {"file", "image", "category", fold_case("Файл")};
  site.namespaces = {{"help", 12}, {"wikipedia", 4}, {"file", 6}};
  return clean(page, site, options);
}

struct Case {
  std::string_view page, text;
};

TEST(Wikitext, ConstructsAlone) {
  const Case cases[] = {
      {"plain", "plain"},
      {"a [[b]] c", "a b c"},
      {"a [[b|the b]]s c", "a the bs c"},
      {"[[Help:Contents|]]", "Contents"},
      {"see [[Paris (Texas)|]] now", "see Paris now"},
      {"[[:Category:Cats]] and [[:File:x.png|that]]", "Category:Cats and that"},
      {"x [[File:a.png|thumb|A [[cat]] and [[dog|dogs]]]] y", "x y"},
      {"x [[Файл:a.png|thumb|A [[cat]]]] y [[файл:b.png]]", "x y"},
      {"Tom[[Category:Cats|*]]", "Tom"},
      {"Tom\n[[fr:Chat]]\n[[zh-min-nan:Niau]]", "Tom"},
      {"[[Star Trek: Voyager]] is on", "Star Trek: Voyager is on"},
      {"[[wikt:cat|cat]] is a word", "cat is a word"},
      // Another language's page: in a text only where it has a label, or a title that begins so.
      {"the [[fr:Chat|cat]] and [[de: Haus]] and [[fr:Chien]]", "the cat and de: Haus and"},
      {"[http://a.b/c the site] here", "the site here"},
      {"[http://a.b/c] here", "here"},
      {"[not a link] here", "[not a link] here"},
      {"http://a.b/c stays", "http://a.b/c stays"},
      {"''i'' '''b''' '''''bi''''' ''\"q\"''", "\"i\" b bi \"q\""},
      {"l'''amour''' d''un''", "lamour d\"un\""},
      {"a<ref>no</ref>b<ref name=x />c<ref name=\"y\">{{cite|a=b}}</ref>d", "abcd"},
      {"a{{t|b={{u}}|c}}d", "ad"},
      {"{{lang|grc|anarchia}} and {{convert|5|km|mi}} off", "anarchia and 5 kilometres off"},
      {"{{convert|5|to|8|km}}, {{cvt|5|-|8|km|mi}}, {{convert|2|x|3|x|4|m}} {{frac|3}}",
       "5 to 8 kilometres, 5–8 km, 2 × 3 × 4 metres 1/3"},
      {"the word \"''a''\" is", "the word \"a\" is"},
      {"{{nowrap|a [[b|c]]}}", "a c"},
      {"a {{{1|x}}} b", "a b"},
      {"a\n{|\n| b\n{|\n| c\n|}\n|}\nd", "a\nd"},
      {"a<!-- no\nno -->b", "ab"},
      {"a\n<!-- alone -->\nb", "a\nb"},
      {"<nowiki>[[x]] ''y'' {{z}} &amp;</nowiki>", "[[x]] ''y'' {{z}} &amp;"},
      {"a&nbsp;b &lt;b&gt; &#91;&#91;x]] &eacute;&#x4E2D;", "a\u00A0b <b> [[x é中"},
      {"&amp;lt; &unknown; & alone &", "&lt; &unknown; & alone &"},
      {"<math>x^2</math> and <math>y</math> and <math>x^2</math>",
       "formula_1 and formula_2 and formula_1"},
      {"<gallery>\nFile:a.png|A\n</gallery>after", "after"},
      {"<div class=\"x\">kept <b>bold</b><br/>line</div>", "kept bold line"},
      {"1 < 2 and 3 <4> 5", "1 < 2 and 3 <4> 5"},
      {"__NOTOC__ __БЕЗ_x a__b__c", "__БЕЗ_x a__b__c"},
      {"__БЕЗСЪДЪРЖАНИЕ__ текст", "текст"},
      {"-{zh-hans:计算机; zh-hant:電腦}- -{A}-", "计算机 A"},
      {"the ''Iliad'''s words", "the \"Iliad'\"s words"},
      {"l''''amour'''', '''''a'' b'''", "l'amour', a b"},
      {"a<ref>b</ref name=x> c</ref>d", "ad"},
      {"a<ref>b</ref\n>c", "ac"},
      {"a<ref>b</ref \t\r\n\n>c<math>x</math\n>d</ref\n>e", "acformula_1de"},
      {"well, . . . as said ... so", "well, . . . as said ... so"},
      {"from 0 .5 to 1 , a .45 in .NET .", "from 0 .5 to 1, a .45 in .NET."},
      {"{{convert|5|mi|30|ch|km}} {{convert|10|LT|5|cwt|2|qtr|kg}} {{convert|5|mi|0}}",
       "5 miles 30 ch 10 long tons 5 cwt 2 qtr 5 miles"},
      {"{{convert|52419|sqmi|km2}} {{convert|16|e6acre|ha|adj=on}} {{convert|6|ft|2|in|m}} "
       "{{convert|1|mi|1}} {{convert|-27|F}} {{convert|105|and(-)|130|cm|abbr=on}} "
       "{{convert|2.1|Moilbbl/d}} {{convert|3|furlong}}",
       "52,419 square miles 16-million acre 6 feet 2 inches 1 mile −27 °F 105 and 130 cm 2.1 "
       "million "
       "barrels per day 3 furlong"},
      {"-{H|zh:a;en:b}- -{T|x}-c", "c"},
      {"{{ill|de|Titel}} {{ill|Title|de|Titel}} 1{{ndash}}2{{'}}s {{langx|ru|мир}}",
       "Titel Title 1–2's мир"},
      {"He said:{{quote|All [[is]] well.}}and went", "He said:\nAll is well.\nand went"},
      {"<div>A</div><div>B</div> <center>C</center>D", "A\nB\nC\nD"},
      {"{{lc:ABC}} {{UC:x}} {{formatnum:1234}} {{ucfirst:ж}} {{#if:x|y}}", "abc X 1234 Ж"},
      {", after a template", "after a template"},
      {"== Empty ==\n== Full ==\ntext\n=== Sub ===\nmore", "Full.\ntext\nSub.\nmore"},
      {"== A ==\n=== B ===\ntext", "A.\nB.\ntext"},
      {"* one\n* two\ntext\n: indented\n----\n", "text\nindented"},
      {"Albedo ({{lang-la|}}) or ( ; ) x (, \"b\") , c", "Albedo or x (\"b\"), c"},
      {"| debris\n! debris\n(template gone)\n...\ntext", "text"},
  };
  for (const Case& c : cases) EXPECT_EQ(cleaned(c.page), c.text) << c.page;
}

// What stands between apostrophes when MediaWiki reads emphasis parts them, even if nothing of it
// is shown; what is gone before does not.
TEST(Wikitext, ApostrophesOnBothSidesOfMarkupAreTwoMarks) {
  const Case cases[] = {
      {"''A''<ref>x</ref>''B'' ''A''<ref name=a />''B'' ''A''{{x}}''B''",
       "\"A\"\"B\" \"A\"\"B\" \"A\"\"B\""},
      {"'''A'''<ref>x</ref>'''B''' '''A'''<ref>x</ref>''B''", "AB A\"B\""},
      {"''A''<ref>x</ref><ref>y</ref>''B'' ''A''<ref>x</ref>{{y}}<!-- z -->''B''",
       "\"A\"\"B\" \"A\"\"B\""},
      {"''A''<gallery>x</gallery>''B'' ''A''[[File:x.png]]''B'' ''A''{{{1}}}''B''",
       "\"A\"\"B\" \"A\"\"B\" \"A\"\"B\""},
      {"== ''A''<ref>x</ref>''B'' ==\nc", "\"A\"\"B\".\nc"},
      {"''A''<nowiki/>''B'' ''A''<nowiki></nowiki>''B'' l'<nowiki/>''amour''",
       "\"A\"\"B\" \"A\"\"B\" l'\"amour\""},
      {"''A''<nowiki/><!-- x -->''B'' ''A''<nowiki/><b>''B''</b> ''A''<nowiki>''B''",
       "\"A\"\"B\" \"A\"\"B\" \"A\"\"B\""},
      {"''A''<section begin=a />''B'' ''<nowiki/>''", "\"A\"\"B\""},
      {"'a'<nowiki/>'b'", "'a''b'"},
      {"l'<nowiki/>''amour''", "l'\"amour\""},
      {"''A''<b>''B''</b>''C'' ''A''<x>''B''", "\"A\"\"B\"\"C\" \"A\"\"B\""},
      {"''A''[[x|''B'']] [[x|''A'']]''B'' '''[[x|''A'']]''' ''[[x|'''A''']]''",
       "\"A\"\"B\" \"A\"\"B\" \"A\" \"A\""},
      {"''[[x|''A'']]''", "A"},
      {"''A''[http://x ''B'']''C'' ''A''[http://x]''B''", "\"A\"\"B\"\"C\" \"A\"\"B\""},
      {"''A''-{''B''}-''C'' ''A''-{H|x}-''B''", "\"A\"\"B\"\"C\" \"A\"\"B\""},
      {"''A''{{lang|la|''B''}}''C'' '''{{lang|la|''A''}}''' {{nowrap|''A''}}<b>''B''</b>",
       "\"A\"\"B\"\"C\" \"A\" \"A\"\"B\""},
      {"''A''{{'}}s ''A''{{'s}} {{nowrap|''A''<ref>x</ref>''B''}}", "\"A\"'s \"A\"'s \"A\"\"B\""},
      {"''5''<sup>''m''</sup> 2<sup>''n''<ref>b</ref>''x''</sup>", "\"5\"m 2^(nx)"},
      // Comments and the tags of transclusion are gone before.
      {"''A''<!-- x -->''B''", "\"A'B\""},
      {"''A''<noinclude>''B''</noinclude>", "\"A'B\""},
      {"''A''<includeonly>x</includeonly>''B''", "\"A'B\""},
      {"''A''__NOTOC__''B''", "\"A'B\""},
      // Digits are parted by what is dropped, and by nothing else.
      {"5''<nowiki/>''7 5''<nowiki/><ref>x</ref>''7 5<includeonly>x</includeonly>7 5~~~~7 "
       "5<ref>x</ref>''<nowiki/>''7",
       "57 5 7 57 5 7 5 7"},
  };
  for (const Case& c : cases) EXPECT_EQ(cleaned(c.page), c.text) << c.page;
}

TEST(Wikitext, WhatIsLeftOpenLosesItsMarksOrItsParagraph) {
  EXPECT_EQ(cleaned("a [[b c\n\nd"), "a b c\nd");
  EXPECT_EQ(cleaned("a {{b c\n\nd"), "a\nd");
  EXPECT_EQ(cleaned("a }} b ]] c |} d"), "a b c d");
  EXPECT_EQ(cleaned("a <ref>b c\n\nd"), "a b c\nd");
  EXPECT_EQ(cleaned("a <!-- b"), "a");
  EXPECT_EQ(cleaned("[[File:x|a\n\n== S ==\ntext"), "S.\ntext");
  EXPECT_EQ(cleaned("{|\n| a\n\nb"), "b");
  EXPECT_EQ(cleaned("a |}} b {{x|}} {{{1|}}}c"), "a b c");
  EXPECT_EQ(cleaned("{| class=x\n| a || b |}\nc\n\nd"), "c\nd");
  EXPECT_EQ(cleaned("a <gallery>\nFile:a.png|A\nFile:b.png|B\n\nFile:c.png|C\n\nb"), "a\nb");
  EXPECT_EQ(cleaned("<gallery>\na.png|A\n== S ==\nb"), "S.\nb");
  EXPECT_EQ(cleaned("b <gallery>"), "b");
}

TEST(Wikitext, VariantsInVariants) {
  EXPECT_EQ(cleaned("-{zh-hans:甲-{zh-hans:乙;zh-hant:丙}-;zh-hant:丁}-戊"), "甲乙戊");
  EXPECT_EQ(cleaned("-{zh-hans:[[a|b]];zh-hant:c}- [[x|-{A|y}-]] -{[[a|b]]}-"), "b y b");
  EXPECT_EQ(cleaned("-{zh-hans|a}- -{-|zh:b}--{D|zh:c}- x-{y"), "a c x-{y");
  std::string deep = "x";
  for (int i = 0; i < 100; ++i) deep = "-{" + deep + "}-";
  EXPECT_EQ(cleaned("a " + deep + " b"), "a b");
}

TEST(Wikitext, SignaturesGo) {
  EXPECT_EQ(cleaned("said ~~~~ and ~~~ ~~~~~ ~~ ~~~~~~ <nowiki>~~~~</nowiki>"),
            "said and ~~ ~~~~~~ ~~~~");
}

// Lines are tidied sixteen bytes at a time where that changes nothing: the position of a line does
// not matter.
TEST(Wikitext, LinesAreTidiedAlikeAtEveryPlace) {
  constexpr std::string_view kLetters = "aab      (),.;)\t\r";
  constexpr size_t kMostShift = 33;
  std::mt19937 random(5);
  for (int i = 0; i < rounds(500); ++i) {
    std::string line = "b";
    for (size_t size = random() % 80; size > 0; --size) {
      line += kLetters[random() % kLetters.size()];
      if (random() % 4 == 0) line.append(random() % 20, 'a');
    }
    line += "b";
    const std::string expected = compact_lines("a" + line, {});
    for (size_t shift = 2; shift < kMostShift; ++shift) {
      const std::string before(shift - 1, 'a');
      ASSERT_EQ(compact_lines(before + "a" + line, {}), before + expected) << line;
    }
  }
}

TEST(Wikitext, Options) {
  CleanOptions lists{.lists = true};
  EXPECT_EQ(cleaned("* one\n** two\ntext", lists), "- one\n- two\ntext");
  EXPECT_EQ(cleaned("<ul><li>one</li><li>two</li></ul>", lists), "- one\n- two");
  EXPECT_EQ(cleaned("<ul><li>*x</li><li>:y</li></ul>", lists), "- *x\n- :y");
  CleanOptions links{.links = true};
  EXPECT_EQ(cleaned("[[a b|c]] [http://x y]", links),
            "<a href=\"a%20b\">c</a> <a href=\"http://x\">y</a>");
  EXPECT_EQ(cleaned("[http://x a<sup>]2[[c</sup>", links), "<a href=\"http://x\">a</a>2c");
  CleanOptions safe{.html_safe = true};
  EXPECT_EQ(cleaned("a &lt; b & c", safe), "a &lt; b &amp; c");
  CleanOptions plain{.sections = false};
  EXPECT_EQ(cleaned("== A ==\ntext", plain), "text");
  CleanOptions math{.math = Math::source};
  EXPECT_EQ(cleaned("<math>\\frac{a}{b}_2</math>", math), "\\frac{a}{b}_2");
}

// Each of these has ended in a crash, a recursion or a quadratic search somewhere; here they only
// have to end.
TEST(Wikitext, NestingWithoutEnd) {
  const size_t kMany = 100000;
  for (const std::string_view opening : {"{{",
                                         "{{{",
                                         "[[",
                                         "[[a|",
                                         "{|\n",
                                         "<ref>",
                                         "<div>",
                                         "''",
                                         "'''",
                                         "[http://x ",
                                         "<!--",
                                         "<nowiki>",
                                         "&",
                                         "__",
                                         "-{",
                                         "==",
                                         "|",
                                         "}}",
                                         "]]",
                                         "{{lang|",
                                         "<sup>",
                                         "9<sub>",
                                         "<gallery>\nFile:",
                                         "<gallery>\n\n",
                                         "<gallery>a\n",
                                         "-{a|",
                                         "|}"}) {
    std::string page;
    for (size_t i = 0; i < kMany; ++i) page += opening;
    const std::string text = cleaned(page);
    EXPECT_LE(text.size(), page.size()) << opening;
  }
  std::string balanced;
  for (size_t i = 0; i < kMany; ++i) balanced += "{{a|";
  for (size_t i = 0; i < kMany; ++i) balanced += "}}";
  EXPECT_EQ(cleaned("x " + balanced + " y"), "x y");
}

TEST(Entities, NumbersAndNames) {
  EXPECT_EQ(decode_entities("&#65;&#x42;&apos;&thetasym;"), "AB'\u03D1");
  EXPECT_EQ(decode_entities("&#150;"), "\u2013");
  EXPECT_EQ(decode_entities("&#xD800;&#0;&#99999999999;"), "\uFFFD\uFFFD&#99999999999;");
  EXPECT_EQ(decode_entities("&#x110000; &amp &; &#; &#x;"), "\uFFFD &amp &; &#; &#x;");
}

TEST(Shield, RoundTrip) {
  const std::string markup = "&<>[]{}|'=*#:;_-!~plain \u00E9";
  EXPECT_EQ(unshield(shield(markup)), markup);
  EXPECT_EQ(shield(markup).find_first_of("&<>[]{}|'=*#:;_-!~"), std::string::npos);
}

}  // namespace
}  // namespace wiki
