// SPDX-License-Identifier: MIT
// Room: tools/stream. The body of read_documents, a template on a tool's result for a chunk. Only
// reading.h includes it; it is separate so that the options can be read without it.
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
  /// Empties a result, whose memory is reused.
  std::function<void(Result&, int64_t thread)> begin;
  /// The same for a chunk of one long record (kAloneBytes), on the sink's thread after all earlier
  /// chunks were sunk; optional.
  std::function<void(Result&)> begin_alone = nullptr;
  /// Takes one good document of the chunk.
  std::function<void(Result&, const Document&, int64_t thread)> each;
  /// Called after the last document of the chunk; optional.
  std::function<void(Result&, int64_t thread)> end = nullptr;
  /// Takes a chunk's result, after the policy has taken its report.
  std::function<void(const Work<Result>&, const std::string& input)> sink;
};

/// A chunk with more bytes than this has one long record. It is processed alone, so that any number
/// of long records takes the memory of one.
inline constexpr size_t kAloneBytes = size_t{4} << 20;

/// With up to this many workers, chunks are read one after another by whichever worker is free.
/// With more, one reader would be too slow: each worker reads its own chunks, and each chunk's end
/// is read twice.
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
      alone.emplace(std::move(work));  // the pipeline is drained first
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
