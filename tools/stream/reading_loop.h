// SPDX-License-Identifier: MIT
// Room: tools/stream. The body of read_documents, a template on what a tool makes of a chunk.
// Included by reading.h alone; here so that the options can be read without it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tools/stream/pipeline.h"

namespace stream {

/// Reads all documents of all inputs. For each chunk: `begin(result)`, then `each(result, document,
/// thread)` for its good documents, both on any thread; then, in the order of the input, the policy
/// takes the refusals and `sink(work)` the result. `thread` is in 0..threads-1, and no two calls
/// run at once with the same one. Results are used again: `begin` empties them.
/// Errors: those of ChunkReader, Input and ErrorPolicy, and whatever the functions throw; always
/// the earliest of the input.
template <class Result>
void read_documents(
    ReadingJob job, const std::function<void(Result&)>& begin,
    const std::function<void(Result&, const Document&, int64_t)>& each,
    const std::function<void(const Work<Result>&, const std::string& input)>& sink) {
  const Format format = format_of(job.options);
  ChunkReader reader(std::move(job.inputs), {.framing = framing_of(format),
                                             .max_record_bytes = job.options.max_line,
                                             .unpack = {.ratio = job.options.max_ratio}});
  std::vector<DocumentReader> documents;
  for (int64_t i = 0; i < job.threads; ++i) documents.emplace_back(format, job.options.keys);
  std::atomic<int64_t> packed_bytes = 0;
  run_ordered<Work<Result>>(
      job.threads,
      [&](Work<Result>& work) {
        const bool more = reader.next(work.chunk);
        packed_bytes = reader.packed_bytes();
        return more;
      },
      [&](Work<Result>& work, int64_t thread) {
        work.report.clear();
        begin(work.result);
        if (work.chunk.over_cap) return;
        documents[static_cast<size_t>(thread)].read(
            work.chunk, work.report,
            [&](const Document& document) { each(work.result, document, thread); });
      },
      [&](Work<Result>& work) {
        const std::string& input = reader.name(work.chunk.source);
        job.policy.take(work.chunk, input, work.report);
        sink(work, input);
        job.console.progress(
            {packed_bytes, reader.total_bytes(), job.policy.documents(), job.item_noun});
      });
  job.console.clear_progress();
  job.policy.finish();
}

}  // namespace stream
