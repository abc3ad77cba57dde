// SPDX-License-Identifier: MIT
// Wikitext to plain text, in three passes over one page: strip_blocks (comments, templates, tables,
// tags whose content is not prose), strip_inline (links, HTML tags, emphasis, references to
// characters), compact_lines (headings, lists, empty sections). Every pass is linear in the page,
// except for nesting, which is capped, so that the cost of a page is proportional to its size. No
// I/O, no state: any thread. Not here: XML (dump.h), template expansion (templates.h), which comes
// before the first pass. Conventions of the output follow WikiExtractor
// (docs/wiki-extract-differences.md says where not).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/wiki/byte_set.h"

namespace wiki {

/// The dump's description of its site, and what follows from it.
struct Site {
  std::string base;  ///< address of a page, up to and including the last '/'
  std::string name;  ///< {{SITENAME}}
  std::string template_namespace = "Template";
  bool first_letter_upper = true;  ///< of every title
  /// A namespace's name, by fold_case, its number, and the name as it is written.
  struct Namespace {
    std::string name;
    int64_t number = 0;
    std::string shown = {};
  };
  std::vector<Namespace> namespaces;
  std::vector<std::string>
      media_names;  ///< names whose links show no text: File, Image, Category, local ones
  /// `prefix`, by fold_case, names a namespace whose links show nothing (files, categories).
  bool is_media(std::string_view prefix) const;
  /// `prefix`, by fold_case, is any namespace's name.
  bool is_namespace(std::string_view prefix) const { return number_of(prefix).has_value(); }
  /// Number of the namespace `prefix`, by fold_case.
  std::optional<int64_t> number_of(std::string_view prefix) const;
};

/// How formulas are shown.
enum class Math { placeholder, source, drop };

/// The user's options for the text.
struct CleanOptions {
  bool lists = false;      ///< keep list items, one a line, behind "- "
  bool sections = true;    ///< keep titles of sections that have text
  bool links = false;      ///< keep links as <a href="...">
  bool html_safe = false;  ///< escape & < > in the result
  Math math = Math::placeholder;
};

/// Plain text of one page.
/// Units: `page` is UTF-8 wikitext of any size; the result is lines separated by '\n', none empty.
/// Errors: none; unbalanced markup loses its brackets, or the paragraph that it would have
/// swallowed.
std::string clean(std::string_view page, const Site& site, const CleanOptions& options);

/// First pass. Nested templates, tables and parameters are removed with their content; an opening
/// without its end removes the rest of its paragraph. Protected text (<nowiki>) is shielded: see
/// unshield.
std::string strip_blocks(std::string_view page, const CleanOptions& options);

/// Second pass: the remaining markup inside lines.
std::string strip_inline(std::string_view text, const Site& site, const CleanOptions& options);

/// Third pass: lines to paragraphs.
std::string compact_lines(std::string_view text, const CleanOptions& options);

/// The text for <sup> or <sub> with `content`, between the text `before` and the wikitext `after`
/// it: "^6", "st".
std::string shown_superscript(std::string_view before, std::string_view content,
                              std::string_view after);
std::string shown_subscript(std::string_view before, std::string_view content,
                            std::string_view after);

/// Hides markup from later passes: each ASCII byte that markup uses becomes two bytes that UTF-8
/// never contains. unshield restores it.
std::string shield(std::string_view text);
std::string unshield(std::string_view text);

/// ASCII letters in lower case; other bytes unchanged.
std::string ascii_lower(std::string_view text);

/// Letters of every script in one case, for names of namespaces.
std::string fold_case(std::string_view text);

/// Letters of every script in upper or lower case.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);

/// `text` whose first letter, of any script, is in upper or lower case.
std::string upper_first(std::string_view text);
std::string lower_first(std::string_view text);

/// `text` without leading and trailing white space (space, tab, newline).
std::string_view trim(std::string_view text);

/// Length of the tag at text[at] ('<'), 0 if there is none; its name in lower case goes to `name`.
struct Tag {
  std::string name;
  size_t length = 0;
  bool closing = false;
  bool self_closing = false;
};
Tag parse_tag(std::string_view text, size_t at);

/// Elements whose content is no wikitext, by their names in lower case: nowiki; formulas; those
/// that are dropped, as references; all others.
enum class ElementKind { nowiki, formula, dropped, other };
ElementKind element_kind(std::string_view name);

/// Where the element that begins at text[at] ('<') ends, its content being no wikitext; `at` if
/// there is none; npos if its closing tag never comes.
size_t element_end(std::string_view text, size_t at);

}  // namespace wiki
