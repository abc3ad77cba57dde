// SPDX-License-Identifier: MIT
// Replaces template calls by the bodies of template_store.h, as MediaWiki does:
// arguments, defaults, parser functions, magic words. Lua modules (#invoke) are not run; a template
// that needs one shows its text in common_templates.h, or nothing. Work is bounded by depth, calls
// and bytes per page; past a bound the rest of the page's calls show nothing.
// Source: mediawiki.org, Help:Templates, Help:Extension:ParserFunctions, Help:Magic words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/wiki/template_store.h"

namespace wiki {

struct Site;

/// What magic words show.
struct PageNames {
  std::string_view title;            ///< {{PAGENAME}}
  std::string_view site;             ///< {{SITENAME}}
  const Site* namespaces = nullptr;  ///< of titles; null: none are known
};

/// Limits for the calls of one page. MediaWiki refuses pages of more than a million nodes (each
/// part of a call makes several) or to which calls add more than 2 MiB.
struct ExpansionLimits {
  size_t calls = 100000;
  size_t parts_of_call = 1 << 15;  ///< that are split
  size_t parts = 1 << 20;          ///< of all calls
  size_t read_bytes = 64 << 20;    ///< of template bodies, on all levels
  size_t made_bytes = 16 << 20;    ///< on all levels
  size_t shown_bytes = 2 << 20;    ///< that calls add to the page
};

/// `text` with its template calls replaced, at most 40 levels deep. A call that cannot be expanded
/// stays, and strip_blocks removes it.
std::string expand_templates(std::string_view text, const TemplateStore& store,
                             const PageNames& page, const ExpansionLimits& limits = {});

/// {{#titleparts: title | count | first}}: of the parts between the title's slashes, of which there
/// are at most 25 (the last has the rest), `count` from part `first` on. Numbers are read as PHP
/// reads them: `first` is from 1, 0 is 1, a negative one is from the end; 0 for `count` is all, a
/// negative one leaves out so many at the end. What cannot be a title is unchanged; any other is in
/// its normal form.
/// Source: titleparts() of the extension ParserFunctions, MediaWikiTitleCodec::splitTitleString.
std::string title_parts(std::string_view title, std::string_view count, std::string_view first,
                        const Site& site);

/// Value of an arithmetic expression ({{#expr: 1 + 2 * 3}}) as MediaWiki prints it.
/// Errors: std::invalid_argument naming what is wrong.
std::string evaluate_expression(std::string_view expression);

}  // namespace wiki
