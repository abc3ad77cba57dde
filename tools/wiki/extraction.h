// SPDX-License-Identifier: MIT
// The pipeline of wiki-extract: read, unpack, cut into pages, clean, write. bzip2 unpacks block by
// block and pages are cleaned chunk by chunk, both on all workers; cutting and writing keep the
// order of the dump.
// Memory: two items in flight for each worker, each a parcel of the dump or a batch of pages with
// its results; dump_stream.h bounds their size whatever the dump contains.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/console.h"
#include "tools/stream/range.h"
#include "tools/wiki/page_files.h"
#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {

/// How pages are processed.
struct ExtractOptions {
  std::string input = "-";
  stream::Range range = {};  ///< pages that begin in this part of the file; not whole: plain or bz2
  CleanOptions clean;
  PageFilesOptions files;
  std::vector<int64_t> namespaces = {0};     ///< pages of other namespaces are dropped
  std::vector<std::string> namespace_names;  ///< kept too, by the names in the dump's header
  bool redirects = false;                    ///< keep redirects, with empty texts
  int64_t min_text_length = 0;               ///< characters; shorter texts are filtered
  int64_t max_page_bytes = 16 << 20;         ///< of XML; longer pages are rejected
  bool skip_defects = false;                 ///< skip pages that cannot be read
  int64_t workers = 1;
  const TemplateStore* templates = nullptr;  ///< null: calls are not expanded
  bool collect_templates = false;  ///< write the XML of the template pages instead of texts
};

/// Every page is in exactly one of these.
struct PageCounts {
  int64_t written = 0, redirects = 0, other_namespaces = 0, filtered = 0, rejected = 0;
  int64_t in = 0;
  int64_t sum() const { return written + redirects + other_namespaces + filtered + rejected; }
};

/// Runs the whole extraction and returns the counts, after checking in == sum(). Errors:
/// std::runtime_error `path: byte N: reason` for a dump that cannot be read further, or for the
/// first page that cannot be used unless skip_defects; std::system_error for files.
PageCounts extract(const ExtractOptions& options, cli::Console& console);

/// Makes a template file at `path` from the dump of `options`: an export with only its template
/// pages.
void collect_templates(ExtractOptions options, const std::string& path, cli::Console& console);

/// Reads a template file, ours or WikiExtractor's (pages without a root element).
/// Errors: std::runtime_error `path: byte N: reason`.
TemplateStore load_templates(const std::string& path);

}  // namespace wiki
