// SPDX-License-Identifier: MIT
// Numbers in wikitext: templates show a number completely or not at all, and no superscript,
// subscript or dropped template turns a number into another. Expected texts: what the English
// Wikipedia shows, as docs/wiki-extract-differences.md writes it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>

#include "tools/wiki/template_store.h"
#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

struct Case {
  std::string_view page, text;
};

void expect_all(std::initializer_list<Case> cases) {
  Site site;
  site.media_names = {"file"};
  for (const Case& c : cases) {
    EXPECT_EQ(clean(c.page, site, {}), c.text) << c.page;
  }
}

TEST(Numbers, MeasuredValues) {
  expect_all({
      {"{{val|1.5|e=3|u=km}}", "1.5×10^3 km"},
      {"{{val|9.109|(40)|e=-31|ul=kg}}", "9.109(40)×10^−31 kg"},
      {"{{Val|-5}} {{val|1.5e3|s=x}}", "−5 1.5×10^3x"},
      {"{{val|1.23|0.04}} {{val|1.23|0.04|e=3|u=m/s2}}", "1.23±0.04 (1.23±0.04)×10^3 m/s^2"},
      {"{{val|1.23|+0.04|-0.05|u=km|up=s}}", "1.23 +0.04/−0.05 km/s"},
      {"{{val|12345.6|u=cm-3|fmt=commas}}", "12,345.6 cm^−3"},
      {"{{val|5|to|7|u=km}} {{val|2|x|3|u=m}} {{val|5|-|7|e=3}}",
       "5 to 7 km 2 × 3 m 5×10^3–7×10^3"},
      {"{{val|p=~|5|u=%}} {{val|e=6}} {{val|3|end=+|ul=um}}", "~5% 10^6 3+ μm"},
      {"x{{val|1|2|3|4}} {{val|1|newparameter=2}} {{val|n}} {{val|1|up=s}}", "x"},
      {"{{gaps|1.602|176|487|(40)|e=-19|u=C}} {{gaps|64|base=2|e=20}} {{gaps|lhs=π|3.14159|26535|"
       "89793|23846|26433|83279}}",
       "1.602176487(40)×10^−19 C 64×2^20 π = 3.141592653589793238462643383279"},
      {"1.5{{e|6}} m, {{10^|-6}} m, 3{{e|-5}}", "1.5×10^6 m, 10^−6 m, 3×10^−5"},
      {"5{{x10^|6}} 5{{×10^|6}} 5{{×10|6}} 5{{X10|6}} 5{{esp|6}} 5{{E-sp|-6}}",
       "5×10^6 5×10^6 5×10^6 5×10^6 5×10^6 5×10^−6"},
      {"5.3{{su|p=+0.1|b=-0.2}} x{{su|p=2|b=1}} 5{{±|2}} 5{{±|2|3}}",
       "5.3 +0.1/−0.2 x1^2 5±2 5 +2/−3"},
      {"{{ordinal|21}} {{ordinal|12}} {{nts|12345}} {{duration|m=62|s=3}} {{duration|1|2|3}} "
       "{{height|ft=6|in=2}} {{numero|5}}",
       "21st 12th 12,345 62:03 1:02:03 6 ft 2 in No. 5"},
      {"{{USS|Enterprise|CVN-65}} {{HMS|Hood|51|6}} {{HMS|Hood|51|2}} {{SS|Norge}}",
       "USS Enterprise (CVN-65) HMS Hood Hood SS Norge"},
  });
}

TEST(Numbers, FractionsAndRoots) {
  expect_all({
      {"5{{frac|1|2}} {{frac|5|1|2}} {{frac|3}} {{sfrac|2|3}}", "5 1/2 5 1/2 1/3 2/3"},
      {"5{{1/2}} {{half}} 5{{Quarter}} 7{{3/4}}", "5 1/2 1/2 5 1/4 7 3/4"},
      {"{{convert|1//2|mi}} {{convert|5+1//2|mi}}", "1/2 mile 5 1/2 miles"},
      {"{{sfrac|x+1|2}} {{sfrac|1|2π}} {{frac|1|2|3|4}}", "(x+1)/2 1/(2π)"},
      {"x{{nowrap|12{{fraction|7|8}}}} in", "x12 7/8 in"},
      {"{{sqrt|2}} {{sqrt|10}} {{sqrt|x+1}} {{sqrt|2|3}} {{radic|7|5}}",
       "√2 √10 √(x+1) ∛2 7^(1/5)"},
      {"0.{{overline|3}} {{overline|AB}}", "0.3\u0305 AB"},
      {"{{chem|H|2|O}} {{chem|SO|4|2-}} {{chem|14|6|C}} {{chem|Na|+}}", "H2O SO4^2− 14_6C Na+"},
      {"{{convert|5+1/2|in}} {{convert|1/2|mi}} {{convert|5|{{frac|1|2}}|x}}",
       "5 1/2 inches 1/2 mile 5 1/2"},
  });
}

TEST(Numbers, MeasuresAreNotCut) {
  expect_all({
      {"{{convert|5|unknown word|6|km}}", "5 unknown word 6 kilometres"},
      {"{{convert|5|foo|6|bar}}", "5 foo 6 bar"},
      {"a {{convert|5m|ft}} {{convert|5ft6in|m}} {{convert|5e|m}} b", "a b"},
      {"{{convert|1.5e3|m}} {{convert|1.5E-3|m}} {{convert|15e+30|m}}",
       "1.5e3 metres 1.5E-3 metres 15e+30 metres"},
      {"{{convert|1|x|2|x|3|x|4|x|5|m}}", "1 × 2 × 3 × 4 × 5 metres"},
      {"a{{convert|5|mi|km|disp=number}} km", "a km"},
      {"a {{convert|5|km|disp=unit}} {{convert|5|km|disp=unit2}} {{convert|5|km|disp=x}} b", "a b"},
      {"a {{convert|5|km|disp=output number only}} b {{convert|5|km|disp=or}}", "a b 5 kilometres"},
      {"{{cvt|5|km2}}", "5 km^2"},
  });
}

TEST(Numbers, Money) {
  expect_all({
      {"{{US$|1.5 million}} {{£|5}} {{€|1,000}} {{INR|5 crore}} {{US$}}5",
       "US$1.5 million £5 €1,000 ₹5 crore US$5"},
      {"x{{currency|5|USD}} {{currency|7|XYZ}} {{A$|12|link=yes}}", "xUS$5 A$12"},
      {"{{US$|5|million}} {{£|1.5|bn|link=yes}} {{US$|5|2010}} {{currency|7|EUR|Million}} "
       "{{INRConvert|5|c}}",
       "US$5 million £1.5 billion US$5 €7 million ₹5 crore"},
      {"x{{US$|5|dozen}} {{US$|5|6|7}} {{US$|5|scale=million}} {{currency|5|USD|x}} "
       "{{currency|5|USD|mult=6}} {{INRConvert|5|x}}",
       "x"},
  });
}

TEST(Numbers, DatesAndAges) {
  expect_all({
      {"{{birth date and age|1950|1|2}}, {{birth date|1950|1|2|df=y}}, {{bda|1950|1|2|df=no}}",
       "January 2, 1950, 2 January 1950, January 2, 1950"},
      {"{{death date and age|2000|1|1|1950|1|2}} {{dda|2000|1|2|1950|1|2|df=yes}}",
       "January 1, 2000 (aged 49) 2 January 2000 (aged 50)"},
      {"{{death year and age|2000|1950}} {{birth year and age|1950}} "
       "{{death-date and age|4 March 2000|April 5, 1950}} {{birth-date|May 1950}}",
       "2000 (aged 49–50) 1950 4 March 2000 (aged 49) May 1950"},
      {"x{{birth date|1950|13|2}} {{birth date|MCML|1|2}} {{age|1950|1|2}} {{start "
       "date|2010|5|6|14|30}}",
       "x"},
      {"{{age|1950|1|2|2000|1|1}} {{start date|2010|5}} {{dts|2010|5|6}} {{dts|6 May 2010}}",
       "49 May 2010 May 6, 2010 6 May 2010"},
      {"{{as of|2010|5|6}} {{as of|2010|May|lc=y}} {{as of|2010|since=y}} {{as of|2010|alt=then}} "
       "{{as of|2010|5|6|df=US|bare=yes}}",
       "As of 6 May 2010 as of May 2010 Since 2010 then May 6, 2010"},
      {"{{circa|1500|1510}} {{c.|1500}} {{fl.|1500|1510}} {{reign|1509|1547}} {{r.|1509}} "
       "{{bc|44}} "
       "{{circa}} 1066",
       "c. 1500 – c. 1510 c. 1500 fl. 1500–1510 r. 1509–1547 r. 1509 44 BC c. 1066"},
      {"{{OldStyleDate|23 April|1564|13 April}}", "23 April [O.S. 13 April] 1564"},
  });
}

TEST(Numbers, Superscripts) {
  expect_all({
      {"10<sup>6</sup> and 10<sup>−3</sup> and 2<sup>n</sup> and 2<sup>n+1</sup>",
       "10^6 and 10^−3 and 2^n and 2^(n+1)"},
      {"5 km<sup>2</sup> and m<sup>-1</sup> and ''x''<sup>''n''</sup> e<sup>iπ</sup>",
       "5 km^2 and m^-1 and \"x\"^n e^(iπ)"},
      {"(a+b)<sup>2</sup> e<sup>x<sup>2</sup></sup> 10<sup>6</sup>5", "(a+b)^2 e^(x^2) 10^(6)5"},
      {"5<sup>1</sup>/<sub>2</sub> <sup>3</sup>⁄<sub>4</sub> 7<sup>1</sup>&frasl;<sub>8</sub>",
       "5 1/2 3⁄4 7 1⁄8"},
      {"1<sup>st</sup> 22<sup>nd</sup> XX<sup>e</sup> 2<sup>e</sup> M<sup>me</sup> D<sup>r</sup> "
       "n<sup>o</sup> 5<sup>h</sup>30<sup>m</sup> Acme<sup>TM</sup>",
       "1st 22nd XXe 2e Mme Dr no 5h30m AcmeTM"},
      {"<sup>14</sup>C in 1950 <sup>235</sup>U but 10 <sup>6</sup> m",
       "14C in 1950 235U but 10 ^6 m"},
      {"Na<sup>+</sup> Ca<sup>2+</sup> SO<sub>4</sub><sup>2−</sup> NH<sub>4</sub><sup>+</sup>",
       "Na+ Ca^2+ SO4^2− NH4+"},
      {"cost 1,500.<sup>2</sup> word<sup>[3]</sup>", "cost 1,500.^2 word[3]"},
      {"10<sup>6 m\nnext 5<sup>7<sup> m", "10^6 m\nnext 5^7 m"},
      {"10<sup>6\nnext 10<sub>2", "10^6\nnext 10_2"},
      {"a [[\n<sup>]][[", "a"},
      {"[[Square metre|m<sup>2</sup>]] [[x|10<sup>6]]</sup>", "m^2 106"},
      {"''x<sup>2''</sup> and 10&nbsp;<sup>6</sup>", "\"x^2\" and 10\u00A0^6"},
      {"2{{sup|10}} H{{sub|2}}O R<sup>n</sup> A<sup>T</sup>", "2^10 H2O R^n A^T"},
  });
}

// Every digit counts as one; brackets are added where the script's own do not enclose all of it.
TEST(Numbers, ScriptsOfEveryDigit) {
  for (char d = '0'; d <= '9'; ++d) {
    const auto filled = [d](std::string text) {
      std::replace(text.begin(), text.end(), 'D', d);
      return text;
    };
    const std::string page = filled(
        "10<sup>D</sup> 10<sup>DD.D</sup> 1D<sup>n</sup> 10<sup>2</sup>D 5 <sup>D</sup>, "
        "x<sub>D</sub> 5D<sub>2</sub> a<sub>2</sub>D <sup>D</sup>⁄<sub>D</sub> D<s>3</s>D");
    const std::string text = filled("10^D 10^DD.D 1D^n 10^(2)D 5 ^D, xD 5D_2 a_(2)D D⁄D D 3 D");
    expect_all({{page, text}});
  }
  expect_all({
      {"x<sup>(n+1)</sup> x<sup>(n+1)(n-1)</sup> x<sup>2n+1)</sup> x<sup>(2</sup>",
       "x^(n+1) x^((n+1)(n-1)) x^(2n+1)) x^((2)"},
      {"10<sup>1,000</sup> 10<sup>-1.5</sup> 10<sup>1.5+</sup> 10<sup>1a</sup>",
       "10^1,000 10^-1.5 10^1.5+ 10^(1a)"},
  });
}

TEST(Numbers, Subscripts) {
  expect_all({
      {"H<sub>2</sub>O CO<sub>2</sub> C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>", "H2O CO2 C6H12O6"},
      {"101<sub>2</sub> log<sub>10</sub>2 x<sub>n+1</sub> x<sub>i</sub> 12<sub>ten</sub>",
       "101_2 log_(10)2 x_(n+1) xi 12_(ten)"},
  });
}

TEST(Numbers, WhatIsDroppedBetweenDigitsLeavesASpace) {
  expect_all({
      {"5{{unknown|6}}7", "5 7"},
      {"5{{unknown}} 7 a{{unknown}}7", "5 7 a7"},
      {"5[[File:x.png]]6 <s>5</s>6 <b>5</b>6", "5 6 5 6 56"},
      {"a<s>5</s>b <s>5</s>", "a5b 5"},
      {"{{font color|red|7}} {{fontcolor|red}}b", "7 b"},
      {"x {{unknown}} .05 {{unknown}} .95 {{unknown}}.", "x .05 .95."},
      {"x{{convert|{{unknown}}|km}} {{convert|5|to|{{unknown}}|km}} {{frac|{{unknown}}|2}} "
       "{{US$|{{unknown}}}}",
       "x"},
      {"1990<ref>a</ref>5 1990<!-- no -->5", "1990 5 19905"},
  });
}

TEST(Numbers, WhatIsDroppedBetweenDigitsLeavesASpaceBehindMarkup) {
  expect_all({
      {"1999<ref name=\"a\"/>2000 12<references group=a />34 5<ref>7 5</ref>7",
       "1999 2000 12 34 5 7"},
      {"[[1914]]<ref>a</ref>[[1918]] [[5]]<ref>a</ref>7 5<ref>a</ref>[[A b|7]]",
       "1914 1918 5 7 5 7"},
      {"[[A|5]]{{x}}[[B|7]] [[5]]{{x}}6 [[A|5{{x}}]]7 5[[A|{{x}}7]] [[A|{{x}}]]",
       "5 7 5 6 5 7 5 7 A"},
      {"5<ref>a</ref>'''7''' '''5'''<ref>a</ref>7 ''5''{{x}}''7''", "5 7 5 7 \"5\" \"7\""},
      {"5<b>{{x}}7</b> 3<small>{{x}}</small>5 <b>5{{x}}</b><i>7</i> 5<b>7</b>", "5 7 3 5 5 7 57"},
      {"{{nowrap|5}}{{x}}{{nowrap|7}} {{nowrap|5<ref>a</ref>}}7 {{nowrap|5<ref>a</ref>}}b",
       "5 7 5 7 5b"},
      {"5<ref>a</ref>&#55; &#53;<ref>a</ref>7 5<ref>a</ref>{{x}}<ref>b</ref>7 5{{x}}{{y}}[[7]]",
       "5 7 5 7 5 7 5 7"},
      {"٥<ref>a</ref>٧ ५{{x}}७ [[५]]{{x}}[[७]] 年<ref>a</ref>年{{x}}[[年]]", "٥ ٧ ५ ७ ५ ७ 年年年"},
      {"5<n>7 10<abc>20 is 5<x and y>3 here <td>5</td><td>7</td>", "5 7 10 20 is 5 3 here 5 7"},
      {"5[http://a.b]7 [http://a.b 5]7 5-{H|zh:a}-7 5-{-{H|a}-7}- 5({{x}})7 5{{x}}&nbsp;7",
       "5 7 57 5 7 5 7 5 7 5\u00a07"},
      {"10<ref>a</ref><sup>6</sup> m<sup>2{{x}}'''7'''</sup> <math>x</math>'''7'''",
       "10^6 m^(2 7) formula_1 7"},
      {"5<section begin=a />7 5{{wbr}}7 5<nowiki/>7 5'{{x}}7", "57 57 57 5'7"},
      {"{{uc:[[5]]<ref>a</ref>[[6]]a}} {{lc:[[5]]{{x}}[[6]]A}} 5{{lc:<ref>a</ref>6A}} "
       "{{ucfirst:{{x}}a}}",
       "5 6A 5 6a 5 6a A"},
      {"{{uc:a<nowiki>[b]</nowiki>}} {{ucfirst:<nowiki>[</nowiki>b}}", "A[B] [b"},
      {"{{formatnum:1,234<ref>a</ref>5,678|R}} 5{{formatnum:<ref>a</ref>6}}", "1234 5678 5 6"},
      {"5{{nowrap|1=<ref>a</ref>7}} {{abbr|5<ref>a</ref>|five}}7 {{abbr|5<ref>a</ref>|b}}c",
       "5 7 5 7 5c"},
  });
}

// The same where templates are expanded, in the arguments of functions and in bodies.
TEST(Numbers, WhatIsDroppedInACallLeavesASpace) {
  TemplateStore store;
  store.add("Template:Same", "{{{1}}}");
  store.add("Template:Five", "5{{unknown}}");
  store.add("Template:Seven", "{{unknown}}7");
  const auto cleaned = [&](std::string_view page) {
    return clean(expand_templates(page, store, {"", ""}), {}, {});
  };
  for (const Case& c : std::initializer_list<Case>{
           {"{{uc:[[5]]<ref>a</ref>[[6]]a}} {{uc:[[5]]{{x}}[[6]]a}} {{lc:[[5]]{{x}}[[6]]A}}",
            "5 6A 5 6A 5 6a"},
           {"{{ucfirst:5<ref>a</ref>[[6]]}} {{#if:x|[[5]]{{x}}[[6]]}} {{same|[[5]]{{x}}[[6]]}}",
            "5 6 5 6 5 6"},
           {"{{uc:5{{x}}}}6 {{#if:x| 5{{x}} }}6 {{#switch:a|a=5{{x}}}}6 {{same|5{{x}}}}6",
            "5 6 5 6 5 6 5 6"},
           {"5{{uc:{{x}}6}} 5{{#if:x| {{x}}6}} 5{{same|{{x}}[[6]]}} {{same|[[5]]{{x}}}}6",
            "5 6 5 6 5 6 5 6"},
           {"{{five}}6 6{{seven}} {{five}}{{seven}} {{five}}a a{{seven}}", "5 6 6 7 5 7 5a a7"},
           {"5{{#tag:ref|a}}6 [[5]]{{#tag:ref|a<ref>b</ref>c|name=d}}[[6]] 5{{#tag:gallery|a}}6",
            "5 6 5 6 5 6"},
           {"{{#if:{{#tag:ref|a}}|b|c}} {{#tag:math|x^2}} {{#tag:nowiki|[[a]]}} a{{#tag:div|b}}c",
            "b formula_1 [[a]] abc"},
           // MediaWiki's functions see neither references nor protected text.
           {"{{uc:a<ref>b</ref>c}} {{uc:a<nowiki>b</nowiki>c}} {{lc:A<nowiki>B</nowiki><b>C</b>}}",
            "AC AbC aBc"},
           {"{{uc:a<b>c</b><nowiki>b</nowiki>}} {{uc:a<b>c</b><nowiki>b}} {{uc:<nowiki/>a<ref>}}",
            "ACb ACB A"},
           {"{{formatnum:1234<ref>a</ref>}} {{formatnum:1234<ref>a</ref>5678}}",
            "1,234 1,234 5,678"},
           {"{{val|1234<ref>a</ref>|u=km}} {{nowrap|5{{#tag:ref|a}}}}6 {{nowrap|<b>5</b>a<n>}}",
            "1234 km 5 6 5a"},
           {"{{convert|5<ref>a</ref>|km}} 5{{frac|1{{#tag:ref|a}}|2<ref name=a />}}6",
            "5 kilometres 5 1/2 6"},
           {"''A''{{lang|la|''B''}}''C'' ''A''{{x}}''B'' ''A''{{#tag:ref|a}}''B''",
            "\"A\"\"B\"\"C\" \"A\"\"B\" \"A\"\"B\""},
           {"{{#if:{{x}}|b|c}}{{#if: {{x}} |b|c}} 5{{#if:|x}}7", "57"}})
    EXPECT_EQ(cleaned(c.page), c.text) << c.page;
}

TEST(Numbers, NoTwoBecomeOne) {
  constexpr std::array<std::array<std::string_view, 2>, 13> kAround = {
      {{"", ""},
       {"[[", "]]"},
       {"[[A|", "]]"},
       {"[[A b|'''", "''']]"},
       {"'''", "'''"},
       {"<b>", "</b>"},
       {"<small>[[", "]]</small>"},
       {"{{nowrap|", "}}"},
       {"{{small|{{lang|fr|", "}}}}"},
       {"<span class=\"a\">", "</span>"},
       {"[http://a.b ", "]"},
       {"<nowiki>", "</nowiki>"},
       {"[[A|{{nowrap|<i>", "</i>}}]]"}}};
  constexpr std::array<std::string_view, 4> kDigits = {"5", "&#55;", "٥", "५"};
  constexpr std::array<std::string_view, 4> kShown = {"5", "7", "٥", "५"};
  constexpr std::array<std::string_view, 12> kDropped = {"{{x}}",
                                                         "{{x|y{{z}}}}",
                                                         "<ref>a</ref>",
                                                         "<ref name=a />",
                                                         "[[File:x.png|a [[b]]]]",
                                                         "<x>",
                                                         "<references/>",
                                                         "{{{1}}}",
                                                         "</ref>",
                                                         "[http://a.b]",
                                                         "<gallery>a</gallery>",
                                                         "-{H|a}-"};
  Site site;
  site.media_names = {"file"};
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string page;
    for (int i = 0; i < 4; ++i) {
      const size_t digit = random() % 4;
      const auto& around = kAround[random() % kAround.size()];
      const std::string_view number = around[0] == "<nowiki>" ? kShown[digit] : kDigits[digit];
      const std::string_view dropped = kDropped[random() % kDropped.size()];
      const bool inside =
          i > 0 && random() % 3 == 0 && around[0] != "<nowiki>" && !around[0].ends_with(' ');
      if (i > 0 && !inside) page += dropped;
      if (i > 0 && random() % 4 == 0) page += kDropped[random() % kDropped.size()];
      page.append(around[0]).append(inside ? dropped : "").append(number).append(around[1]);
    }
    const std::string text = clean(page, site, {});
    for (const std::string_view one : kShown) {
      for (const std::string_view other : kShown)
        ASSERT_EQ(text.find(std::string(one).append(other)), std::string::npos) << page;
    }
  }
}

TEST(Numbers, NoGapStays) {
  // Words that end and begin in what may be beside a gap, in random order.
  constexpr std::array<std::string_view, 21> kWords = {
      "5",   "[[",   "]]",    "''",     "'''", "{{x}}",     "<ref>a</ref>",
      "<b>", "</b>", "<sup>", "</sup>", "|",   "&#55;",     "{{nowrap|",
      "}}",  "٥",    "<n>",   "\n",     "'",   "<nowiki/>", "<nowiki>'</nowiki>"};
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string page;
    for (size_t i = 0; i < 12; ++i) page += kWords[random() % kWords.size()];
    const std::string text = clean(page, {}, {});
    ASSERT_EQ(text.find_first_of("\xFE\xFF\x80"), std::string::npos) << page;
    ASSERT_EQ(text.find("\n\n"), std::string::npos) << page;
  }
}

TEST(Numbers, AFormulaEndsBeforeADigit) {
  expect_all({{"5<math>x</math>6 <math>x</math> <math>y</math>b 7<math>x</math>.",
               "5formula_1 6 formula_1 formula_3b 7formula_1."}});
  EXPECT_EQ(clean("5<math>x</math>6 <math>x</math>7", {}, {.math = Math::drop}), "5 6 7");
  EXPECT_EQ(clean("5<math>x</math>6", {}, {.math = Math::source}), "5x6");
}

TEST(Numbers, SignsOfTemplatesStay) {
  expect_all({
      {"{{−}}5 {{minus}}5 5{{×}}10<sup>3</sup>", "−5 −5 5×10^3"},
      {"1.5{{±|0.1|0.2}} {{±|+3|−4}} {{±|1}}", "1.5 +0.1/−0.2 +3/−4 ±1"},
      {"x1.5{{±|0.1|}} 1.5{{±|a|0.1}}", "x1.5±0.1"},
      {"x{{val|5||3}} {{val|5||3|to|4}} {{val|5|to|3||4}}{{val|5|to|3}}", "x 5 to 3"},
  });
}

TEST(Numbers, WhatIsIncompleteIsDroppedWhole) {
  expect_all({
      {"x10{{e|{{unknown|2}}}} −1.5{{e|6|7}}{{e|{{unknown}}}} y", "x y"},
      {"x5{{x10^|{{unknown}}}} 5{{×10|{{unknown}}}} 5{{esp|{{unknown}}}} 5{{e-sp|6|7}} y", "x y"},
      {"x{{val|3|e={{unknown}}}} {{val|3|e={{nowrap|2{{#expr:1+2}}}}}}", "x"},
      {"x5{{frac|1{{unknown}}|2}} {{convert|5{{unknown}}|km}} {{US$|5{{unknown}}}}", "x"},
      {"x 1.5 × 10<sup>{{unknown|3}}</sup> y 1990<sup>{{unknown|3}}</sup>", "x y 1990"},
      {"a {{nowrap|5{{unknown}}}} {{hlist|a|{{unknown}}|c}}", "a a, c"},
      {"{{nowrap|5{{efn|x}}}} {{small|5 {{unknown}}}} {{nowrap|{{unknown}}5}} b", "5 5 b"},
      {"{{nowrap|a {{small|5{{unknown}}}} b}} {{hlist|5{{unknown}}|c}} {{nowrap|5{{{1}}}}} d",
       "a b d"},
      {"x{{convert|10e3km|mi}} {{convert|5ft6in|cm}} {{convert|1.5e3|km}}", "x 1.5e3 kilometres"},
  });
  TemplateStore store;
  store.add("Template:Same", "{{{1}}}");
  const std::string page = expand_templates(
      "x10{{e|{{same|{{unknown|2}}}}}} {{val|3|e={{unknown}}}} 10<sup>{{unknown}}</sup>", store,
      {"", ""});
  EXPECT_EQ(clean(page, {}, {}), "x");
}

TEST(Numbers, FormatNumKeepsThem) {
  expect_all({{"{{formatnum:1,234.5|R}} {{formatnum:1234.5|NOSEP}} {{formatnum: 1,234 |x}}",
               "1234.5 1234.5 1,234"}});
  const TemplateStore store;
  const auto expanded = [&](std::string_view page) {
    return clean(expand_templates(page, store, {"", ""}), {}, {});
  };
  EXPECT_EQ(expanded("{{formatnum:1,234.5|R}} {{formatnum:-1,234,567|R}} {{formatnum:1234|r}}"),
            "1234.5 -1234567 1,234");
  EXPECT_EQ(expanded("{{formatnum:1234.5|NOSEP}} {{formatnum:12345|nosep}} {{formatnum:1234}}"),
            "1234.5 12345 1,234");
  EXPECT_EQ(expanded("x{{formatnum:12{{unknown|3}}45}} {{formatnum:12{{unknown|3}}45|R}}"), "x");
  EXPECT_EQ(expanded("5{{unknown|6}}7 {{#expr:12{{unknown|3}}4+1}} 1{{#if:|x}}000"), "5 7 1000");
  EXPECT_EQ(expanded("x{{formatnum:12{{unknown}}}} {{nowrap|a {{#expr:{{unknown}}1+1}} b}}"),
            "x a b");
}

TEST(Numbers, LineBreaksDoNotPartThem) {
  expect_all(
      {{"1{{wbr}}000 1{{shy}}2 {{shy|syl|la|ble}} {{val|1{{wbr}}000}}", "1000 12 syllable 1000"}});
}

TEST(Numbers, WhatIsExpandedIsReadAlike) {
  TemplateStore store;
  store.add("Template:Frac", "<span class=\"frac\">{{{1}}}&frasl;{{{2}}}</span>");
  store.add("Template:Ten", "10<sup>{{{1}}}</sup>");
  const std::string page =
      expand_templates("5{{frac|1|2}} {{ten|6}} {{val|1.5|e=3}} 5{{sfrac|1|2}}", store, {"", ""});
  EXPECT_EQ(clean(page, {}, {}), "5 1⁄2 10^6 1.5×10^3 5 1/2");
}

TEST(Templates, OfTextInSentences) {
  expect_all({
      {"{{color|red|text}} {{font color|red|white|on white}} {{hlist|a|b|class=x}} "
       "{{ubl|c|[[d|e]]}}",
       "text on white a, b c, e"},
      {"{{nihongo|Tokyo|東京|Tōkyō}} {{nihongo||東京|Tōkyō}} {{nihongo|Tokyo}} "
       "{{nihongo3|east|東|higashi}}",
       "Tokyo (東京, Tōkyō) Tōkyō (東京) Tokyo higashi (東, east)"},
      {"a{{quote|text=All.|author=X}}b {{math|1=x = 5}}", "a\nAll.\nb x = 5"},
      {"5{{times}}6{{thinsp}}000{{·}}7", "5×6 000 · 7"},
  });
}

}  // namespace
}  // namespace wiki
