// SPDX-License-Identifier: MIT
// Stages of extraction.h on oneTBB's pipeline. An item begins with a parcel of the dump, then has a
// batch of pages, and carries each stage's result to the last one.

#include "tools/wiki/extraction.h"

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>

#include "libindexed/workers.h"
#include "tools/cli/text.h"
#include "tools/stream/input.h"
#include "tools/wiki/dump_stream.h"

namespace wiki {
namespace {

// Allowance for what expansion may add to a page, when batches are measured.
constexpr size_t kTemplatesAdd = 256 << 10;

struct Defect {
  std::string what;  // "byte N: reason"
};

struct Item {
  Parcel parcel;
  std::vector<PageXml> pages;
  std::vector<std::string> lines;
  std::vector<Defect> defects;
  std::vector<Portion> portions;
  PageCounts counts;
  int64_t read_to = 0;  // packed bytes read when the item was created
};
using ItemPointer = std::shared_ptr<Item>;

/// Whether `text` has fewer characters.
bool is_shorter(std::string_view text, int64_t characters) {
  constexpr int64_t kLongestCharacter = 4;
  if (static_cast<int64_t>(text.size()) >= characters * kLongestCharacter) return false;
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }) <
         characters;
}

class Extraction {
 public:
  Extraction(const ExtractOptions& options, cli::Console& console)
      : options_(options),
        console_(console),
        name_(options.input == "-" ? "standard input" : options.input),
        cutter_(options.max_page_bytes, options.templates != nullptr ? kTemplatesAdd : 0),
        files_(options.files) {
    with_place([&] { reader_.emplace(options.input, options.range, cutter_); });
  }

  PageCounts run() {
    namespace tbb = oneapi::tbb;
    const auto in_order = tbb::filter_mode::serial_in_order;
    const auto any_order = tbb::filter_mode::parallel;
    // TBB ends the process where the system refuses it a thread.
    const int workers = indexed::allowed_threads(static_cast<int>(options_.workers));
    // The serial stage needs a thread too if there is only one worker.
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                              static_cast<size_t>(workers));
    tbb::task_arena arena(workers);
    arena.execute([&] {
      tbb::parallel_pipeline(
          static_cast<size_t>(2 * workers),
          tbb::make_filter<void, ItemPointer>(in_order, [this](tbb::flow_control& flow) {
            return read(flow);
          }) & tbb::make_filter<ItemPointer, ItemPointer>(any_order, [this](ItemPointer i) {
            unpack(i->parcel, decoders_.local());
            return i;
          }) & tbb::make_filter<ItemPointer, ItemPointer>(in_order, [this](ItemPointer i) {
            with_place([&] { i->pages = cutter_.cut(std::move(i->parcel)); });
            if (!i->pages.empty() && wanted_.empty()) choose_namespaces();
            return i;
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
    throw std::runtime_error(cli::concat(name_, ": ", what));
  }

  template <class Work>
  void with_place(const Work& work) const {
    try {
      work();
    } catch (const stream::Bzip2Error& error) {
      fail(error.what());
    } catch (const DumpError& error) {
      fail(error.what());
    }
  }

  // Names are known from the dump's header, before the first page.
  void choose_namespaces() {
    wanted_ = options_.namespaces;
    for (const std::string& name : options_.namespace_names) {
      const std::optional<int64_t> number = cutter_.site().number_of(fold_case(name));
      if (!number) fail(cli::concat("no namespace ", cli::quote(name)));
      wanted_.push_back(*number);
    }
  }

  ItemPointer read(oneapi::tbb::flow_control& flow) {
    auto item = std::make_shared<Item>();
    bool more = false;
    with_place([&] { more = reader_->next(item->parcel); });
    if (!more) flow.stop();
    item->read_to = item->parcel.read_to;
    return item;
  }

  // The site is known, and no longer written, once the cutter has returned pages.
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
        const int64_t name_space = namespace_of(page, cutter_.site());
        if (std::find(wanted_.begin(), wanted_.end(), name_space) == wanted_.end()) {
          ++counts.other_namespaces;
          continue;
        }
        if (page.redirect && !options_.redirects) {
          ++counts.redirects;
          continue;
        }
        const std::string text = page.redirect ? std::string() : text_of(page);
        if (is_shorter(text, options_.min_text_length)) {
          ++counts.filtered;
          continue;
        }
        item->lines.push_back(json_line(page, cutter_.site(), text));
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
    const Site& site = cutter_.site();
    if (options_.templates == nullptr) return clean(page.text, site, options_.clean);
    const PageNames names = {page.title, site.name, &site};
    return clean(expand_templates(page.text, *options_.templates, names), site, options_.clean);
  }

  void collect(const Page& page, const PageXml& xml, Item& item) const {
    constexpr int64_t kTemplateNamespace = 10;
    if (namespace_of(page, cutter_.site()) != kTemplateNamespace) {
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
      if (++defects_shown_ <= kMostShown) console_.note(cli::concat(name_, ": ", defect.what));
      if (defects_shown_ == kMostShown) console_.note("further rejected pages are only counted");
    }
    files_.write(item.portions);
    total_.in += item.counts.in;
    total_.written += item.counts.written;
    total_.redirects += item.counts.redirects;
    total_.other_namespaces += item.counts.other_namespaces;
    total_.filtered += item.counts.filtered;
    total_.rejected += item.counts.rejected;
    console_.progress({.done = item.read_to,
                       .total = reader_->file_bytes(),
                       .items = total_.in,
                       .item_noun = "page"});
  }

  const ExtractOptions& options_;
  cli::Console& console_;
  const std::string name_;  // of the dump, for messages
  PageCutter cutter_;
  std::optional<DumpReader> reader_;
  std::vector<int64_t> wanted_;  // namespaces
  oneapi::tbb::enumerable_thread_specific<stream::Bzip2Decoder> decoders_;
  // Used by the planning and the writing stage.
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
  constexpr size_t kReadBytes = 1 << 20;
  stream::Input input(path);
  PageSplitter splitter(kLongestTemplate);
  // The temporary file is beside the template file, where there is room for that much.
  TemplateStore store(std::filesystem::absolute(path).parent_path().string());
  std::vector<PageXml> pages;
  const auto take = [&] {
    for (const PageXml& xml : pages) {
      if (!xml.defect.empty())
        continue;  // too long to be used; the extraction itself reports defects
      const Page page = read_page(xml);
      // The prefix is the template namespace in the wiki's own language.
      const size_t colon = page.title.find(':');
      if (store.size() == 0 && colon != std::string::npos)
        store.set_namespace(std::string_view(page.title).substr(0, colon));
      const std::string_view title = std::string_view(page.title).substr(colon + 1);
      if (page.redirect && !page.redirect_target.empty()) {
        store.add_redirect(title, page.redirect_target);
      } else {
        store.add(title, page.text);
      }
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
