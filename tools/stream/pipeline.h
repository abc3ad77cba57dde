// SPDX-License-Identifier: MIT
// Room: tools/stream. The ordered pipeline: one source, work in parallel, one sink that sees items
// in the order of the source. Bounded: 2 items a worker exist, and they are used again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace stream {

/// Threads for `workers` asked: one a processor of this process for 0, and never more than four,
/// since more only take memory.
int64_t threads_for(int64_t workers);

/// part(0) to part(count - 1), on at most `threads` threads, the calling one among them. All end;
/// then of what parts threw, that of the first one is thrown again.
void run_parts(int64_t threads, size_t count, const std::function<void(size_t)>& part);

/// The three stages on items known by number. `source(item)` fills an item, false at the end;
/// `work(item, thread)` with thread in 0..threads-1, no two at once with the same one;
/// `sink(item)`. An exception of any stage ends the run and is thrown again here; of several,
/// always the one of the earliest item, so that the message does not depend on timing. What comes
/// after that item is not sunk.
void run_ordered(int64_t threads, int64_t items, const std::function<bool(int64_t)>& source,
                 const std::function<void(int64_t, int64_t)>& work,
                 const std::function<void(int64_t)>& sink);

/// The same on items of a type: `threads` times 2 of them are made once.
template <class Item>
void run_ordered(int64_t threads, const std::function<bool(Item&)>& source,
                 const std::function<void(Item&, int64_t thread)>& work,
                 const std::function<void(Item&)>& sink) {
  std::vector<Item> items(static_cast<size_t>(threads == 1 ? 1 : 2 * threads));
  const auto at = [&](int64_t i) -> Item& { return items[static_cast<size_t>(i)]; };
  run_ordered(
      threads, static_cast<int64_t>(items.size()), [&](int64_t i) { return source(at(i)); },
      [&](int64_t i, int64_t thread) { work(at(i), thread); }, [&](int64_t i) { sink(at(i)); });
}

}  // namespace stream
