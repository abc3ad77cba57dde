// SPDX-License-Identifier: MIT
// targets_text.h: where two implementations must agree (chunks of any size, libbz2 and our decoder,
// expat and the fast page reader), the target compares them.
#include "tests/fuzz/targets_text.h"

#include <algorithm>
#include <cstdlib>

#include "tools/stream/bzip2_blocks.h"
#include "tools/stream/bzip2_decoder.h"
#include "tools/stream/chunks.h"
#include "tools/stream/input.h"
#include "tools/stream/records.h"
#include "tools/wiki/dump.h"
#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace fuzz {
namespace {

std::string_view view_of(Bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

void require(bool holds) {
  if (!holds) std::abort();
}

std::string read_lines(const std::string& path, stream::Format format, int64_t chunk_bytes) {
  stream::ChunkReader reader({path}, {.framing = stream::framing_of(format),
                                      .chunk_bytes = chunk_bytes,
                                      .max_record_bytes = 1 << 20});
  stream::DocumentReader documents(format, {"text", "id"});
  stream::Chunk chunk;
  stream::ChunkReport report;
  std::string out;
  while (reader.next(chunk)) {
    report.clear();
    documents.read(chunk, report, [&](const stream::Document& document) {
      for (const std::vector<std::string_view>& texts : document.texts)
        for (const std::string_view text : texts) out += std::string(text) + "\x1f";
      out += '\x1e';
    });
    for (const stream::Refusal& refusal : report.refusals) out += refusal.complaint.what + "\x1d";
  }
  return out;
}

}  // namespace

void json_lines(Bytes input) {
  if (input.empty()) return;
  const stream::Format format = static_cast<stream::Format>(input[0] % 4);
  const Folder folder({{"f", std::string(view_of(input.subspan(1)))}});
  read_lines(folder.path() + "/f", format, 1 << 16);
}

void packed(Bytes input) {
  const Folder folder({{"f", std::string(view_of(input))}});
  stream::Input file(folder.path() + "/f", {.ratio = 50, .allowance = 1 << 22});
  std::string room(1 << 16, '\0');
  while (file.read(room) > 0) {
  }
}

void bzip2_blocks(Bytes input) {
  stream::Bzip2Splitter splitter;
  stream::Bzip2Joiner joiner;
  stream::Bzip2Decoder decoder;
  std::vector<stream::Bzip2Block> blocks;
  std::string out;
  const auto drain = [&] {
    for (const stream::Bzip2Block& block : blocks) {
      const stream::DecodedBlock law = stream::decode_block(block, 1 << 22);
      const stream::DecodedBlock fast = stream::decode_block(block, 1 << 22, decoder);
      require(law.ok == fast.ok && law.over_limit == fast.over_limit);
      require(!law.ok || law.over_limit || law.bytes == fast.bytes);
      joiner.add(law, out);
    }
    blocks.clear();
  };
  for (size_t at = 0; at < input.size(); at += 997) {
    splitter.feed(view_of(input).substr(at, 997), blocks);
    drain();
  }
  splitter.finish(blocks);
  drain();
  joiner.finish();
}

void wiki_dump(Bytes input) {
  wiki::Transcoder transcoder;
  wiki::PageSplitter splitter(1 << 16);
  std::vector<wiki::PageXml> pages;
  std::string text;
  transcoder.feed(view_of(input), text);
  for (size_t at = 0; at < text.size(); at += 331) splitter.feed(text.substr(at, 331), pages);
  const wiki::Site site = wiki::read_site(splitter.head());
  for (const wiki::PageXml& xml : pages) {
    if (!xml.defect.empty()) continue;
    try {
      const wiki::Page page = wiki::read_page(xml);
      wiki::namespace_of(page, site);
      wiki::json_line(page, site, wiki::clean(page.text, site, {}));
    } catch (const std::runtime_error&) {
    }
  }
  splitter.finish(pages);
  transcoder.finish();
}

void wikitext(Bytes input) {
  if (input.empty()) return;
  wiki::TemplateStore store;
  const std::string_view text = view_of(input.subspan(1));
  // Bodies of templates, then the page, apart by NUL.
  const size_t first = std::min(text.find('\0'), text.size());
  store.add("Template:A", text.substr(0, first));
  store.add("Template:B", "{{a|{{{1|x}}}}}");
  const std::string_view page = text.substr(std::min(first + 1, text.size()));
  const std::string expanded = wiki::expand_templates(page, store, {"Title", "Site"});
  wiki::CleanOptions options;
  options.lists = (input[0] & 1) != 0;
  options.links = (input[0] & 2) != 0;
  options.html_safe = (input[0] & 4) != 0;
  options.math = static_cast<wiki::Math>((input[0] >> 3) % 3);
  wiki::clean(expanded, wiki::read_site(""), options);
  try {
    wiki::evaluate_expression(page);
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace fuzz
