// SPDX-License-Identifier: MIT
// How template calls are replaced by the bodies of template_store.h, as MediaWiki does it:
// arguments, defaults, parser functions, magic words. Lua modules (#invoke) are not run; a template
// that needs one shows what common_templates.h knows of it, or nothing. Work is bounded: depth,
// calls and bytes a page; past a bound the rest of the page's calls show nothing.
// Source: mediawiki.org, Help:Templates, Help:Extension:ParserFunctions, Help:Magic words.
#pragma once

#include <string>
#include <string_view>

#include "tools/wiki/template_store.h"

namespace wiki {

/// What magic words show.
struct PageNames {
  std::string_view title;  ///< {{PAGENAME}}
  std::string_view site;   ///< {{SITENAME}}
};

/// `text` with its template calls replaced. What cannot be expanded stays a call, for strip_blocks
/// to remove. Bounds: 40 levels; 100,000 calls of 32,768 parts, 4 million together; 256 MiB read
/// and 16 MiB made on all levels, 2 MiB shown.
std::string expand_templates(std::string_view text, const TemplateStore& store,
                             const PageNames& page);

/// Value of an arithmetic expression ({{#expr: 1 + 2 * 3}}) as MediaWiki prints it.
/// Errors: std::invalid_argument naming what is wrong.
std::string evaluate_expression(std::string_view expression);

}  // namespace wiki
