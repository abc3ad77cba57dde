// SPDX-License-Identifier: MIT
// Exports split into pages at every position, and invalid exports.

#include "tools/wiki/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace wiki {
namespace {

using testing::HasSubstr;

constexpr std::string_view kHead =
    "<mediawiki "
    "xml:lang=\"en\">\n<siteinfo><base>https://en.wikipedia.org/wiki/Main_Page</base><namespaces>"
    "<namespace key=\"0\" /><namespace key=\"6\">Файл</namespace><namespace "
    "key=\"12\">Help</namespace>"
    "</namespaces></siteinfo>\n";

std::string page(std::string_view title, std::string_view text) {
  return "<page><title>" + std::string(title) +
         "</title><ns>0</ns><id>7</id><revision><id>70</id><contributor><id>9</id>"
         "</contributor><text>" +
         std::string(text) + "</text></revision></page>\n";
}

std::vector<PageXml> split(std::string_view dump, size_t portion, int64_t limit = 1 << 20) {
  PageSplitter splitter(limit);
  std::vector<PageXml> pages;
  for (size_t i = 0; i < dump.size(); i += portion) splitter.feed(dump.substr(i, portion), pages);
  splitter.finish(pages);
  return pages;
}

std::string failure(std::string_view dump) {
  try {
    for (const PageXml& xml : split(dump, 64)) {
      if (xml.defect.empty()) read_page(xml);
    }
    read_site(dump.substr(0, dump.find("<page>")));
  } catch (const DumpError& error) {
    return error.what();
  }
  return "none";
}

TEST(Dump, AnyPortionGivesTheSamePages) {
  const std::string dump =
      std::string(kHead) + page("A", "a &lt;page&gt; b") + page("B", "") + "</mediawiki>\n";
  for (size_t portion = 1; portion <= dump.size(); ++portion) {
    const std::vector<PageXml> pages = split(dump, portion);
    ASSERT_EQ(pages.size(), 2U) << portion;
    EXPECT_EQ(pages[1].offset, static_cast<int64_t>(dump.find("<page>", dump.find("</page>"))));
    const Page first = read_page(pages[0]);
    EXPECT_EQ(first.title, "A");
    EXPECT_EQ(first.text, "a <page> b");
    EXPECT_EQ(first.id, 7);
    EXPECT_EQ(first.revision_id, 70);
    EXPECT_FALSE(first.redirect);
    EXPECT_EQ(read_page(pages[1]).text, "");
  }
}

// The fast reader and expat give the same result.
TEST(Dump, TextsOfEveryKind) {
  const auto page = [](const std::string& text) {
    return PageXml{"<page><title>T</title><ns>0</ns><id>1</id><revision><id>2</id>" + text +
                       "</revision></page>",
                   100,
                   {}};
  };
  for (const auto& [xml, text] :
       {std::pair<const char*, const char*>{"<text>a &lt;b&gt; &amp;amp; &quot;c&apos;</text>",
                                            "a <b> &amp; \"c'"},
        {"<text bytes=\"3\" xml:space=\"preserve\">\n x\ty </text>", "\n x\ty "},
        {"<text>a&#65;&#x42;</text>", "aAB"},
        {"<text><![CDATA[<b>&]]>c</text>", "<b>&c"},
        {"<text>a\r\nb</text>", "a\nb"},
        {"<text/>", ""},
        {"<text></text>", ""},
        {"<text a=\"x>y\">z</text>", "z"},
        {"<text>old</text></revision><revision><id>3</id><text>new</text>", "new"},
        {"<text>\xD0\x96\xE4\xB8\xAD\xF0\x9F\x98\x80\xEF\xBF\xBD</text>",
         "\xD0\x96\xE4\xB8\xAD\xF0\x9F\x98\x80\xEF\xBF\xBD"}}) {
    EXPECT_EQ(read_page(page(xml)).text, text) << xml;
  }
  for (const char* xml :
       {"<text>a & b</text>", "<text>&unknown;</text>", "<text>a\x01</text>", "<text>]]></text>",
        "<text>\xC3</text>", "<text>\xED\xA0\x80</text>", "<text>\xEF\xBF\xBF</text>",
        "<text>a<b></text>", "<text>a</txet>", "<note>a</note>", "<text>a</text></page>"}) {
    EXPECT_THROW(read_page(page(xml)), DumpError) << xml;
  }
}

// All fields of a page, or why it is not one.
std::string told(Page (*read)(const PageXml&), const PageXml& xml) {
  try {
    const Page page = read(xml);
    return std::to_string(page.id) + "|" + std::to_string(page.revision_id) + "|" +
           std::to_string(page.name_space.value_or(-99)) + (page.redirect ? "|to " : "|") +
           page.redirect_target + "|" + page.title + "|" + page.text;
  } catch (const DumpError& error) {
    return error.what();
  }
}

// Wherever a text has a character that XML writes otherwise, from its first byte to its last.
TEST(Dump, EntitiesAtEveryPlace) {
  const std::pair<std::string_view, char> entities[] = {
      {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
  for (size_t size = 0; size < 40; ++size)
    for (size_t at = 0; at <= size; ++at)
      for (const auto& [written, meant] : entities) {
        const std::string before(at, 'a'), after(size - at, 'b');
        const std::vector<PageXml> pages = split(
            std::string(kHead) + page("T", before + std::string(written) + after) + "</mediawiki>",
            4096);
        ASSERT_EQ(pages.size(), 1u);
        ASSERT_EQ(read_page(pages[0]).text, before + meant + after) << size << " " << at;
      }
}

TEST(Dump, WhatNoExportHoldsIsBounded) {
  const auto page = [](const std::string& opening, const std::string& text) {
    return PageXml{
        "<page><title>T</title><revision>" + opening + text + "</revision></page>", 0, {}};
  };
  const auto deep = [&](int levels) {
    std::string opening, closing;
    for (int i = 0; i < levels; ++i) opening += "<a>", closing += "</a>";
    return page("<text>x</text>", opening + closing);
  };
  EXPECT_EQ(read_page(deep(62)).text, "x");
  for (const int levels : {62, 63, 100000}) {
    EXPECT_EQ(told(read_page, deep(levels)), told(read_page_with_expat, deep(levels))) << levels;
  }
  EXPECT_THAT(told(read_page, deep(63)), HasSubstr("more than 64 deep"));
  std::string attributes = "<text";
  for (int i = 0; i < 300000; ++i) attributes += " a" + std::to_string(i) + "=\"\"";
  EXPECT_EQ(read_page(page(attributes + ">", "x</text>")).text, "x");
  EXPECT_THROW(read_page(page(attributes + " a7=\"\">", "x</text>")), DumpError);
}

TEST(Dump, PlainPagesAreReadAsExpatReadsThem) {
  const std::vector<std::string> pages = {
      "<page>\n  <title>A &amp; B</title>\n  <ns>0</ns><id>7</id><redirect title=\"C "
      "&quot;D&quot;\" "
      "/>\n<revision><id>70</id><contributor><username>x</username><id>9</id></contributor><minor/>"
      "<comment>/* c */ &lt;b&gt;</comment><text bytes=\"12\" xml:space=\"preserve\">a &lt;ref&gt; "
      "[[b]]\n\xD0\x96\xEF\xBC\x81</text><sha1>s</sha1></revision></page>",
      "<page><title>T</title><revision><text>one</text></revision><revision><id>2</id><text "
      "/></revision></page>",
      "<page><title>T</title><revision><text>]] &gt; x\ty]]</text></revision>\n</page>"};
  const std::vector<std::string> inserted = {"<",
                                             ">",
                                             "&",
                                             "\"",
                                             "'",
                                             "/",
                                             "]]>",
                                             "\r",
                                             "\t",
                                             "\x01",
                                             "\xEF\xBF\xBE",
                                             "\xEF\xBF\xBD",
                                             "\xC3",
                                             "&#65;",
                                             "&lt;",
                                             "&lt",
                                             "<!-- c -->",
                                             "<![CDATA[x]]>",
                                             "<?p?>",
                                             "<b/>",
                                             "<b a='1'>",
                                             "</b>",
                                             " ",
                                             "<b a=\"1\" a=\"2\"/>",
                                             "<b a=\"1\"c=\"2\"/>",
                                             "<!DOCTYPE x>",
                                             "<text>u</text>",
                                             "\n",
                                             "=",
                                             ":"};
  std::mt19937 random(17);
  for (const std::string& page : pages) {
    const PageXml whole{page, 5, {}};
    EXPECT_EQ(told(read_page, whole), told(read_page_with_expat, whole));
    for (size_t at = 0; at <= page.size(); ++at) {
      for (const std::string& what : inserted) {
        PageXml xml = whole;
        xml.xml.insert(at, what);
        ASSERT_EQ(told(read_page, xml), told(read_page_with_expat, xml)) << xml.xml;
      }
    }
    for (int i = 0; i < 20000; ++i) {
      PageXml xml = whole;
      for (size_t hits = 1 + random() % 3; hits > 0; --hits) {
        const size_t at = random() % xml.xml.size();
        switch (random() % 3) {
          case 0:
            xml.xml[at] = static_cast<char>(random());
            break;
          case 1:
            xml.xml.erase(at, 1 + random() % 4);
            break;
          default:
            xml.xml.insert(at, inserted[random() % inserted.size()]);
            break;
        }
      }
      ASSERT_EQ(told(read_page, xml), told(read_page_with_expat, xml)) << xml.xml;
    }
  }
}

TEST(Dump, SitesSayHowTitlesAreWritten) {
  EXPECT_TRUE(read_site(kHead).first_letter_upper);
  for (const auto& [how, upper] : {std::pair{"first-letter", true}, {"case-sensitive", false}}) {
    const Site site =
        read_site("<mediawiki><siteinfo><case>" + std::string(how) + "</case></siteinfo>");
    EXPECT_EQ(site.first_letter_upper, upper) << how;
  }
  const Site site = read_site(kHead);
  for (const auto& [name, shown] : {std::pair{"help", "Help"},
                                    {"файл", "Файл"},
                                    {"image", "Image"},
                                    {"category", "Category"}}) {
    const auto found = std::find_if(site.namespaces.begin(), site.namespaces.end(),
                                    [&](const Site::Namespace& n) { return n.name == name; });
    ASSERT_NE(found, site.namespaces.end()) << name;
    EXPECT_EQ(found->shown, shown);
  }
}

// Schemas before 0.6 have neither <ns> nor <redirect>.
TEST(Dump, OldSchemasByTitleAndText) {
  const Site site = read_site(kHead);
  const auto page = [](const std::string& title, const std::string& text) {
    return read_page({"<page><title>" + title + "</title><id>1</id><revision><id>2</id><text>" +
                          text + "</text></revision></page>",
                      0,
                      {}});
  };
  EXPECT_EQ(namespace_of(page("Help:X", "a"), site), *site.number_of("help"));
  EXPECT_EQ(namespace_of(page("Template:X", "a"), site), 10);
  EXPECT_EQ(namespace_of(page("Star Trek: Voyager", "a"), site), 0);
  EXPECT_TRUE(page("X", " #REDIRECT [[Y]]").redirect);
  EXPECT_FALSE(page("X", "a #REDIRECT [[Y]]").redirect);
}

// Where a dump has no <redirect>, the text tells, in every language of MediaWiki.
TEST(Dump, RedirectsByKeyword) {
  for (const std::string keyword : {"#REDIRECT",
                                    "#Redirect",
                                    "#WEITERLEITUNG",
                                    "#REDIRECCIÓN",
                                    "#REDIRECTION",
                                    "#RINVIA",
                                    "#перенаправление",
                                    "#ПЕРЕНАПРАВЛЕННЯ",
                                    "#виж",
                                    "#ПРЕУСМЕРИ",
                                    "#転送",
                                    "＃リダイレクト",
                                    "#重定向",
                                    "#重新導向",
                                    "#넘겨주기",
                                    "#تحويل",
                                    "#تغییر_مسیر",
                                    "#تغییر مسیر",
                                    "#הפניה",
                                    "#YÖNLENDİRME",
                                    "#İSTİQAMƏTLƏNDİRMƏ",
                                    "#ΑΝΑΚΑΤΕΥΘΥΝΣΗ",
                                    "#PŘESMĚRUJ",
                                    "#PATRZ",
                                    "#TAM",
                                    "#OHJAUS",
                                    "#ÁTIRÁNYÍTÁS",
                                    "#đổi",
                                    "#Đổi",
                                    "#เปลี่ยนทาง",
                                    "#पुनर्प्रेषित",
                                    "#வழிமாற்று",
                                    "#ALIH",
                                    "#LENCONG",
                                    "#DOORVERWIJZING",
                                    "#OMDIRIGERING",
                                    "#REDIRECIONAMENTO",
                                    "#YOʻNALTIRISH",
                                    "#ՎԵՐԱՀՂՈՒՄ",
                                    "#გადამისამართება",
                                    "#ÖMLEIDE_OP",
                                    "#TILVÍSUN",
                                    "#suuna",
                                    "#ALIDIREKTU"}) {
    for (const std::string& text :
         {keyword + " [[A b#c|d]]", " \n" + keyword + ":[[:A b]] {{R}}"}) {
      EXPECT_EQ(redirect_target(text), "A b") << text;
      const Page page =
          read_page({"<page><title>X</title><ns>0</ns><id>1</id><revision><id>2</id>"
                     "<text>" +
                         text + "</text></revision></page>",
                     0,
                     {}});
      EXPECT_TRUE(page.redirect && page.redirect_target == "A b") << text;
    }
  }
  for (const std::string text : {"#REDIRECT", "#REDIRECT A", "# [[A]]", "#REDIRECTED [[A]]",
                                 "#REDIRECT [[A", "x #REDIRECT [[A]]", "#", ""})
    EXPECT_EQ(redirect_target(text), std::nullopt) << text;
}

TEST(Dump, SiteNamesAndAddress) {
  const Site site = read_site(kHead);
  EXPECT_EQ(site.base, "https://en.wikipedia.org/wiki/");
  EXPECT_TRUE(site.is_media(fold_case("Файл")));
  EXPECT_TRUE(site.is_media("category"));
  EXPECT_TRUE(site.is_namespace("help"));
  Page made;
  made.id = 7;
  made.revision_id = 70;
  made.title = "Q \"x\"";
  EXPECT_EQ(
      json_line(made, site, "a\n\\\x01"),
      "{\"id\": \"7\", \"revid\": \"70\", \"url\": \"https://en.wikipedia.org/wiki?curid=7\", "
      "\"title\": \"Q \\\"x\\\"\", \"text\": \"a\\n\\\\\\u0001\"}\n");
}

TEST(Dump, WrongExportsAreNamed) {
  const std::string head(kHead);
  EXPECT_THAT(failure(head + page("A", "a")), HasSubstr("cut off: no </mediawiki>"));
  EXPECT_THAT(failure(""), HasSubstr("empty input"));
  EXPECT_THAT(failure("hello world, not xml"), HasSubstr("not XML"));
  EXPECT_THAT(failure(head + page("A", "a") + "junk</mediawiki>"), HasSubstr("expected <page>"));
  EXPECT_THAT(failure(head + page("A", "a") + "</mediawiki>junk"), HasSubstr("content follows"));
  EXPECT_EQ(failure(head + page("A", "a") + "</mediawiki>" + std::string(1000, '\n')), "none");
  EXPECT_THAT(failure(head + "<page a=\"1\"><title>A</title></page></mediawiki>"),
              HasSubstr("does not begin with <page>"));
  EXPECT_THAT(failure(head + page("A", "a & b") + "</mediawiki>"), HasSubstr("not well-formed"));
  EXPECT_THAT(failure(head + page("A", "&lol;") + "</mediawiki>"), HasSubstr("undefined entity"));
  EXPECT_THAT(
      failure("<!DOCTYPE x [<!ENTITY a \"b\">]><mediawiki>" + page("A", "&a;") + "</mediawiki>"),
      HasSubstr("entity"));
  EXPECT_THAT(
      failure("<!DOCTYPE x [<!ENTITY a \"b\">]><mediawiki>" + page("A", "a") + "</mediawiki>"),
      HasSubstr("document type declarations"));
  EXPECT_THAT(failure(head + page("A", "\xC3(") + "</mediawiki>"), HasSubstr("invalid token"));
  EXPECT_THAT(failure(head + "<page><id>1</id></page></mediawiki>"), HasSubstr("without a title"));
}

TEST(Dump, DefectivePagesAreCountedNotLost) {
  const std::string open = "<page><title>Open</title><text>never ends";
  const std::string dump = std::string(kHead) + open + page("B", "b") +
                           page("C", std::string(5000, 'x')) + page("D", "d") + "</mediawiki>";
  for (const size_t portion : {size_t{1}, size_t{7}, size_t{64}, dump.size()}) {
    const std::vector<PageXml> pages = split(dump, portion, 1000);
    ASSERT_EQ(pages.size(), 4U) << portion;
    EXPECT_THAT(pages[0].defect, HasSubstr("no </page>"));
    EXPECT_EQ(pages[1].defect, "");
    EXPECT_THAT(pages[2].defect, HasSubstr("longer than 1000 bytes"));
    EXPECT_EQ(read_page(pages[3]).title, "D");
  }
}

TEST(Dump, Utf16) {
  const std::string dump = std::string(kHead) + page("\u0413\U0001F600", "x") + "</mediawiki>";
  std::string utf16 = "\xFF\xFE";
  for (const char32_t c : std::u32string(U"<\u0413\U0001F600>")) {
    const auto put = [&](char32_t unit) {
      utf16.push_back(static_cast<char>(unit & 0xFF));
      utf16.push_back(static_cast<char>(unit >> 8));
    };
    if (c < 0x10000) put(c);
    if (c >= 0x10000) put(0xD800 + ((c - 0x10000) >> 10)), put(0xDC00 + ((c - 0x10000) & 0x3FF));
  }
  for (size_t portion = 1; portion < 8; ++portion) {
    Transcoder transcoder;
    std::string out;
    for (size_t i = 0; i < utf16.size(); i += portion)
      transcoder.feed(std::string_view(utf16).substr(i, portion), out);
    transcoder.finish();
    EXPECT_EQ(out, "<\u0413\U0001F600>");
  }
  Transcoder two;
  std::string none;
  two.feed("ab", none);
  EXPECT_THROW(two.finish(), DumpError);
  Transcoder broken;
  std::string out;
  EXPECT_THROW(broken.feed(std::string_view("\xFF\xFE\x00\xDC", 4), out), DumpError);
}

}  // namespace
}  // namespace wiki
