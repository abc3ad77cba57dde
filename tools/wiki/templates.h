// SPDX-License-Identifier: MIT
// Templates: where their bodies are found (TemplateStore) and how calls are replaced by them
// (expand_templates), as MediaWiki does it: arguments, defaults, parser functions, magic words. Lua
// modules (#invoke) are not run; a template that needs one shows what common_templates.h knows of
// it, or nothing. Work is bounded: depth, calls and bytes a page; past a bound the rest of the
// page's calls show nothing.
// Source: mediawiki.org, Help:Templates, Help:Extension:ParserFunctions, Help:Magic words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace wiki {

/// Bodies of templates by title. Built by one thread, then read by any number.
class TemplateStore {
 public:
  /// Keeps what transclusion shows of `text`: <includeonly> and <onlyinclude> in, <noinclude> out,
  /// comments gone. `title` has its namespace ("Template:Lang"). A redirect's body is "#REDIRECT
  /// [[...]]".
  void add(std::string_view title, std::string_view text);

  /// Body of the template that `name` calls, redirects followed; null if there is none. `name`
  /// without namespace means the template namespace.
  const std::string* find(std::string_view name) const;

  size_t size() const { return bodies_.size(); }
  int64_t bytes() const { return bytes_; }

  /// Name of the template namespace in this wiki ("Шаблон"); English "Template" always works too.
  void set_namespace(std::string_view local_name) { local_prefix_ = std::string(local_name) + ":"; }

 private:
  std::string normalized(std::string_view name) const;

  std::unordered_map<std::string, std::string> bodies_;
  std::unordered_map<std::string, std::string> redirects_;
  std::string local_prefix_ = "Template:";
  int64_t bytes_ = 0;
};

/// What magic words show.
struct PageNames {
  std::string_view title;  ///< {{PAGENAME}}
  std::string_view site;   ///< {{SITENAME}}
};

/// The part of a template's source that its callers see.
std::string transcluded_part(std::string_view text);

/// `text` with its template calls replaced. What cannot be expanded stays a call, for strip_blocks
/// to remove. Bounds: 40 levels, 100,000 calls, 16 MiB of text made.
std::string expand_templates(std::string_view text, const TemplateStore& store,
                             const PageNames& page);

/// Value of an arithmetic expression ({{#expr: 1 + 2 * 3}}) as MediaWiki prints it.
/// Errors: std::invalid_argument naming what is wrong.
std::string evaluate_expression(std::string_view expression);

}  // namespace wiki
