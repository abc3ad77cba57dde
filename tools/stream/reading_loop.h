// SPDX-License-Identifier: MIT
// Room: tools/stream. The body of read_documents, a template on what a tool makes of a chunk.
// Included by reading.h alone; here so that the options can be read without it.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/stream/pipeline.h"

namespace stream {

/// What a tool does with chunks. begin, each and end run on any thread; `thread` is in
/// 0..threads-1, and no two calls run at once with the same one. sink runs in the order of the
/// input, one call at a time.
template <class Result>
struct ReadingSteps {
  /// Empties a result, whose memory is used again.
  std::function<void(Result&, int64_t thread)> begin;
  /// The same for a chunk of one long record (kAloneBytes), on the thread of the sink after all
  /// before it were sunk; may be absent.
  std::function<void(Result&)> begin_alone = nullptr;
  /// Takes one good document of the chunk.
  std::function<void(Result&, const Document&, int64_t thread)> each;
  /// After the last document of the chunk; may be absent.
  std::function<void(Result&, int64_t thread)> end = nullptr;
  /// Takes a chunk's result, after the policy took its refusals.
  std::function<void(const Work<Result>&, const std::string& input)> sink;
};

/// A chunk of more bytes, which holds one long record, is worked on with nothing beside it, so that
/// any number of long records takes the memory of one.
inline constexpr size_t kAloneBytes = size_t{4} << 20;

/// So many workers get their chunks read one after the other, by whichever of them is free; more
/// read their own, since one at a time would no longer do. Each chunk's end is then read twice.
inline constexpr int64_t kOrderedReading = 4;

/// Reads all documents of all inputs.
/// Errors: those of ChunkReader, Input and ErrorPolicy, and whatever the steps throw; always the
/// earliest in the order of the input.
template <class Result>
void read_documents(ReadingJob job, const ReadingSteps<Result>& steps) {
  const Format format = format_of(job.options);
  ChunkReader reader(std::move(job.inputs), {.framing = framing_of(format),
                                             .max_record_bytes = job.options.max_line,
                                             .unpack = {.ratio = job.options.max_ratio},
                                             .range = job.options.range,
                                             .array = job.options.format == "array",
                                             .defer = job.threads > kOrderedReading});
  std::vector<DocumentReader> documents;
  for (int64_t i = 0; i < job.threads; ++i) {
    documents.emplace_back(format, job.options.keys, job.spelling, job.condition);
  }
  std::atomic<int64_t> packed_bytes = 0;
  std::optional<Work<Result>> alone;
  const auto read = [&](Work<Result>& work) {
    const bool more = reader.next(work.chunk);
    packed_bytes = reader.packed_bytes();
    if (more && work.chunk.text().size() > kAloneBytes) {
      alone.emplace(std::move(work));  // the pipeline runs empty first
      return false;
    }
    return more;
  };
  const auto parse = [&](Work<Result>& work, int64_t thread) {
    reader.load(work.chunk);
    work.report.clear();
    if (!work.chunk.over_cap) {
      documents[static_cast<size_t>(thread)].read(
          work.chunk, work.report,
          [&](const Document& document) { steps.each(work.result, document, thread); });
    }
    if (steps.end) steps.end(work.result, thread);
  };
  const auto sink = [&](Work<Result>& work) {
    const std::string& input = reader.name(work.chunk.source);
    job.policy.take(work.chunk, input, work.report);
    steps.sink(work, input);
    job.console.progress(
        {packed_bytes, reader.total_bytes(), job.policy.documents(), job.item_noun});
  };
  do {
    alone.reset();
    run_ordered<Work<Result>>(
        job.threads, read,
        [&](Work<Result>& work, int64_t thread) {
          steps.begin(work.result, thread);
          parse(work, thread);
        },
        sink);
    if (alone) {
      steps.begin_alone ? steps.begin_alone(alone->result) : steps.begin(alone->result, 0);
      parse(*alone, 0);
      sink(*alone);
    }
  } while (alone);
  job.console.clear_progress();
  job.policy.finish();
}

}  // namespace stream
