// SPDX-License-Identifier: MIT
// Room: tools/stream. The ordered pipeline: one source, work in parallel, one sink that sees items
// in the order of the source. Bounded: 2 items for each worker exist, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace stream {

/// The number of threads for `workers` as given: for 0 one for each processor of this process, but
/// at most four, since more only take memory.
int64_t threads_for(int64_t workers);

/// Runs part(0) to part(count - 1) on at most `threads` threads, including the calling one. All
/// end; then the exception of the first part that threw is rethrown.
void run_parts(int64_t threads, size_t count, const std::function<void(size_t)>& part);

/// Runs the three stages on numbered items. `source(item)` fills an item, and returns false at the
/// end; `work(item, thread)` with thread in 0..threads-1, never two at once with the same one;
/// `sink(item)`. An exception of any stage ends the run and is rethrown here; of several, always
/// that of the earliest item, so that the message does not depend on timing. Items after it are not
/// sunk.
void run_ordered(int64_t threads, int64_t items, const std::function<bool(int64_t)>& source,
                 const std::function<void(int64_t, int64_t)>& work,
                 const std::function<void(int64_t)>& sink);

/// The same with items of type Item, of which `threads` times 2 are made once.
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
