// SPDX-License-Identifier: MIT
// Stages of extraction.h on oneTBB's pipeline. An item is born as packed bytes, one bzip2 block or
// text, and carries what each stage makes of it to the last one.

#include "tools/wiki/extraction.h"

#include <fcntl.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <system_error>

#include "tools/cli/text.h"
#include "tools/stream/bzip2_blocks.h"
#include "tools/stream/input.h"
#include "tools/wiki/dump.h"

namespace wiki {
namespace {

constexpr size_t kReadBytes = 1 << 20;

// Blocks that unpack to more, which no honest dump has, are unpacked one at a time.
constexpr size_t kLargeBlock = 4 << 20;

// Blocks of an item: side by side they are unpacked faster.
constexpr size_t kBlocksTogether = 4;

struct Defect {
  std::string what;  // "byte N: reason"
};

struct Item {
  std::vector<stream::Bzip2Block> blocks;
  std::vector<stream::DecodedBlock> decoded;
  bool packed = false;
  std::string text;
  bool last = false;
  std::vector<PageXml> pages;
  std::vector<std::string> lines;
  std::vector<Defect> defects;
  std::vector<Portion> portions;
  PageCounts counts;
  int64_t input_bytes = 0;  // read from the file when the item was born
};
using ItemPointer = std::shared_ptr<Item>;

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

class Extraction {
 public:
  Extraction(const ExtractOptions& options, cli::Console& console)
      : options_(options),
        console_(console),
        input_(options.input, stream::UnpackLimit{}, stream::Packed::keep_bzip2),
        splitter_(options.max_page_bytes),
        files_(options.files) {
    if (!options.range.whole()) start_range();
  }

  PageCounts run() {
    namespace tbb = oneapi::tbb;
    const auto in_order = tbb::filter_mode::serial_in_order;
    const auto any_order = tbb::filter_mode::parallel;
    const int workers = static_cast<int>(options_.workers);
    // The stage that runs alone needs a thread too where there is but one worker.
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                              static_cast<size_t>(workers));
    tbb::task_arena arena(workers);
    arena.execute([&] {
      tbb::parallel_pipeline(
          static_cast<size_t>(2 * workers),
          tbb::make_filter<void, ItemPointer>(in_order, [this](tbb::flow_control& flow) {
            return read(flow);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(any_order, [this](ItemPointer i) {
            return unpack(i);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(in_order, [this](ItemPointer i) {
            return split(i);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(any_order, [this](ItemPointer i) {
            return clean_pages(i);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(in_order, [this](ItemPointer i) {
            return plan(i);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(any_order, [this](ItemPointer i) {
            return pack(i);
          }) & tbb::make_filter<ItemPointer, void>(in_order, [this](ItemPointer i) { write(*i); }));
    });
    files_.finish();
    console_.clear_progress();
    if (total_.in != total_.sum())
      throw std::logic_error("pages were lost: " + std::to_string(total_.in - total_.sum()));
    return total_;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw std::runtime_error(cli::concat(input_.name(), ": ", what));
  }

  ItemPointer read(oneapi::tbb::flow_control& flow) {
    if (range_done_ || (ended_ && blocks_.empty())) {
      if (!said_last_ && !range_done_) {
        said_last_ = true;
        auto item = std::make_shared<Item>();
        item->last = true;
        return item;
      }
      flow.stop();
      return nullptr;
    }
    auto item = std::make_shared<Item>();
    if (input_.kind() != stream::Kind::bzip2) {
      item->text.resize(kReadBytes);
      item->text.resize(input_.read(item->text));
      ended_ = item->text.empty();
    } else {
      fill_blocks();
      while (!blocks_.empty() && item->blocks.size() < kBlocksTogether) {
        item->blocks.push_back(std::move(blocks_.front()));
        item->packed = true;
        blocks_.pop_front();
        fill_blocks();
      }
    }
    item->input_bytes = input_.packed_bytes();
    return item;
  }

  /// Goes to the part of the file that is wanted. The head is read for all parts, from the front.
  void start_range() {
    if (options_.input == "-") fail("is read from its front: no --range");
    const int64_t begin = options_.range.begin(input_.file_bytes());
    range_end_ = options_.range.end(input_.file_bytes());
    input_.start_at(begin);
    try {
      const bool marked = read_head();
      if (begin > 0) {
        transcoder_.start_inside();
        joiner_.start_inside();
      }
      if (input_.kind() == stream::Kind::bzip2) {
        if (begin > 0) {
          cutter_.start_inside(begin);
          splitter_.start_inside(0);
        }
      } else {
        constexpr int64_t kMarkBytes = 3;  // the splitter counts from behind the mark
        const int64_t shift = marked ? kMarkBytes : 0;
        if (begin > 0) splitter_.start_inside(begin - shift);
        if (range_end_ < input_.file_bytes()) splitter_.end_at(range_end_ - shift);
      }
    } catch (const DumpError& error) {
      fail(error.what());
    }
  }

  /// Reads the site from the front of the file. True when a UTF-8 byte order mark opens it.
  bool read_head() {
    stream::Input input(options_.input);
    PageSplitter splitter(options_.max_page_bytes);
    Transcoder transcoder;
    std::vector<PageXml> pages;
    std::string portion, text, opening;
    while (pages.empty()) {
      portion.resize(kReadBytes);
      portion.resize(input.read(portion));
      if (opening.empty()) opening = portion.substr(0, 3);
      text.clear();
      transcoder.feed(portion, text);
      splitter.feed(text, pages);
      if (portion.empty() || !splitter.head().empty()) break;
    }
    if (opening.starts_with("\xFF\xFE") || opening.starts_with("\xFE\xFF")) {
      throw DumpError("UTF-16 can only be read from its front: no --range");
    }
    site_ = read_site(splitter.head());
    site_known_ = true;
    return opening == "\xEF\xBB\xBF";
  }

  void fill_blocks() {
    std::vector<stream::Bzip2Block> found;
    std::string portion;
    try {
      while (blocks_.empty() && !ended_) {
        portion.resize(kReadBytes);
        portion.resize(input_.read(portion));
        ended_ = portion.empty();
        if (ended_) {
          cutter_.finish(found);
        } else {
          cutter_.feed(portion, found);
        }
        std::move(found.begin(), found.end(), std::back_inserter(blocks_));
        found.clear();
      }
    } catch (const stream::Bzip2Error& error) {
      fail(error.what());
    }
  }

  ItemPointer unpack(ItemPointer item) {
    item->decoded = stream::decode_blocks(std::move(item->blocks), kLargeBlock);
    return item;
  }

  ItemPointer split(ItemPointer item) {
    try {
      if (item->packed) {
        for (stream::DecodedBlock& decoded : item->decoded) split_block(std::move(decoded), *item);
        item->decoded = {};
      } else {
        split_text(std::move(item->text), *item);
      }
      if (item->last) {
        joiner_.finish();
        transcoder_.finish();
        splitter_.finish(item->pages);
      }
      if (!site_known_ && (!item->pages.empty() || item->last)) {
        site_ = read_site(splitter_.head());
        site_known_ = true;
      }
    } catch (const stream::Bzip2Error& error) {
      fail(error.what());
    } catch (const DumpError& error) {
      fail(error.what());
    }
    return item;
  }

  void split_block(stream::DecodedBlock decoded, Item& item) {
    if (!range_ended_ && range_end_ >= 0 && decoded.block.byte_offset >= range_end_) {
      splitter_.end_here();
      range_ended_ = true;
    }
    if (decoded.over_limit) decoded = stream::decode_block(std::move(decoded.block));
    std::string bytes;
    joiner_.add(std::move(decoded), bytes);
    split_text(std::move(bytes), item);
  }

  // In portions, so that the splitter holds a page and not all that a hostile block unpacks to.
  void split_text(std::string bytes, Item& item) {
    std::string text;
    if (transcoder_.passes()) {
      text = std::move(bytes);
    } else {
      transcoder_.feed(bytes, text);
    }
    for (size_t i = 0; i < text.size(); i += kReadBytes) {
      splitter_.feed(std::string_view(text).substr(i, kReadBytes), item.pages);
    }
    range_done_ = splitter_.done();
  }

  // site_ is not written any more once an item with pages has left split().
  ItemPointer clean_pages(ItemPointer item) {
    PageCounts& counts = item->counts;
    for (PageXml& held : item->pages) {
      const PageXml xml = std::move(held);
      ++counts.in;
      try {
        if (!xml.defect.empty())
          throw DumpError(cli::concat("byte ", xml.offset, ": page rejected: ", xml.defect));
        const Page page = read_page(xml);
        if (options_.collect_templates) {
          collect(page, xml, *item);
          continue;
        }
        const auto& wanted = options_.namespaces;
        if (std::find(wanted.begin(), wanted.end(), page.name_space) == wanted.end()) {
          ++counts.other_namespaces;
          continue;
        }
        if (page.redirect && !options_.redirects) {
          ++counts.redirects;
          continue;
        }
        const std::string text = page.redirect ? std::string() : text_of(page);
        if (count_characters(text) < options_.min_text_length) {
          ++counts.filtered;
          continue;
        }
        item->lines.push_back(json_line(page, site_, text));
        ++counts.written;
      } catch (const DumpError& error) {
        ++counts.rejected;
        item->defects.push_back({error.what()});
      }
    }
    item->pages = {};
    return item;
  }

  std::string text_of(const Page& page) const {
    if (options_.templates == nullptr) return clean(page.text, site_, options_.clean);
    return clean(expand_templates(page.text, *options_.templates, {page.title, site_.name}), site_,
                 options_.clean);
  }

  static void collect(const Page& page, const PageXml& xml, Item& item) {
    constexpr int64_t kTemplateNamespace = 10;
    if (page.name_space != kTemplateNamespace) {
      ++item.counts.other_namespaces;
      return;
    }
    item.lines.push_back(xml.xml + "\n");
    ++item.counts.written;
  }

  ItemPointer plan(ItemPointer item) {
    if (!item->defects.empty() && !options_.skip_defects) fail(item->defects.front().what);
    item->portions = files_.plan(item->lines);
    item->lines = {};
    return item;
  }

  ItemPointer pack(ItemPointer item) {
    if (!options_.files.compress) return item;
    for (Portion& portion : item->portions) portion.bytes = bzip2_packed(portion.bytes);
    return item;
  }

  void write(const Item& item) {
    constexpr int64_t kMostShown = 20;
    for (const Defect& defect : item.defects) {
      if (++defects_shown_ <= kMostShown)
        console_.note(cli::concat(input_.name(), ": ", defect.what));
      if (defects_shown_ == kMostShown) console_.note("further rejected pages are only counted");
    }
    files_.write(item.portions);
    total_.in += item.counts.in;
    total_.written += item.counts.written;
    total_.redirects += item.counts.redirects;
    total_.other_namespaces += item.counts.other_namespaces;
    total_.filtered += item.counts.filtered;
    total_.rejected += item.counts.rejected;
    console_.progress({.done = item.input_bytes,
                       .total = input_.file_bytes(),
                       .items = total_.in,
                       .item_noun = "page"});
  }

  const ExtractOptions& options_;
  cli::Console& console_;
  // The reader's.
  stream::Input input_;
  stream::Bzip2Splitter cutter_;
  std::deque<stream::Bzip2Block> blocks_;
  bool ended_ = false;
  bool said_last_ = false;
  int64_t range_end_ = -1;                // in the file; -1: all is wanted
  std::atomic<bool> range_done_ = false;  // the splitter says that nothing more is wanted
  // The splitter's.
  stream::Bzip2Joiner joiner_;
  Transcoder transcoder_;
  PageSplitter splitter_;
  Site site_;
  bool site_known_ = false;
  bool range_ended_ = false;  // blocks of the next part are being read, for the last page
  // The planner's and the writer's.
  PageFiles files_;
  PageCounts total_;
  int64_t defects_shown_ = 0;
};

}  // namespace

void collect_templates(ExtractOptions options, const std::string& path, cli::Console& console) {
  options.collect_templates = true;
  options.range = {};
  options.skip_defects = true;
  options.files.single_file = path;
  options.files.compress = false;
  options.files.head = "<mediawiki>\n";
  options.files.tail = "</mediawiki>\n";
  const PageCounts counts = extract(options, console);
  console.note(
      cli::concat(path, ": ", cli::counted(counts.written, "template"), " of ", options.input));
}

TemplateStore load_templates(const std::string& path) {
  constexpr int64_t kLongestTemplate = 16 << 20;
  stream::Input input(path);
  PageSplitter splitter(kLongestTemplate);
  TemplateStore store;
  std::vector<PageXml> pages;
  const auto take = [&] {
    for (const PageXml& xml : pages) {
      if (!xml.defect.empty())
        continue;  // too long to be of use; the extraction itself reports defects
      const Page page = read_page(xml);
      // The prefix is the template namespace in the wiki's own language.
      store.add(std::string_view(page.title).substr(page.title.find(':') + 1), page.text);
    }
    pages.clear();
  };
  try {
    std::string portion(kReadBytes, '\0');
    size_t length = input.read(portion);
    const bool bare = trim(std::string_view(portion).substr(0, std::min<size_t>(length, 64)))
                          .starts_with("<page>");
    if (bare) splitter.feed("<mediawiki>", pages);
    for (; length > 0; length = input.read(portion)) {
      splitter.feed(std::string_view(portion).substr(0, length), pages);
      take();
    }
    if (bare) splitter.feed("</mediawiki>", pages);
    splitter.finish(pages);
    take();
  } catch (const DumpError& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return store;
}

PageCounts extract(const ExtractOptions& options, cli::Console& console) {
  return Extraction(options, console).run();
}

}  // namespace wiki
