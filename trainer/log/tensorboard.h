// TensorBoard event files, written without TensorFlow: the record framing and the few protobuf
// messages that a scalar and a text need, by hand. Not here: the tags (metrics.cc). Source:
// tensorflow/core/lib/io/record_writer (length, masked CRCs); tensorflow/core/util/event.proto and
// framework/summary.proto and tensor.proto
// (field numbers).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trainer/log/log_file.h"

namespace trainer {

/// One `events.out.tfevents.*` file that grows during the run. State: one thread at a time. What
/// was flushed survives the process.
class EventWriter {
 public:
  /// Creates `directory` if necessary and starts a new file in it, named by time, host and process.
  /// `first_step` > 0 tells TensorBoard to drop what earlier files of the folder have from that
  /// step on, so that a resumed run is one curve. `say` and `most_kept_bytes`: as in LogFile.
  /// Errors: as LogFile.
  EventWriter(const std::string& directory, double time, int64_t first_step,
              std::function<void(const std::string&)> say = {},
              size_t most_kept_bytes = LogFileOptions{}.most_kept_bytes);

  /// Appends one scalar. Buffered; see flush().
  void scalar(std::string_view tag, double value, int64_t step, double time);

  /// Appends a text, which TensorBoard shows as Markdown under TEXT.
  void text(std::string_view tag, std::string_view markdown, int64_t step, double time);

  /// Writes everything, or keeps it while writing fails.
  void flush() { file_.flush(); }

  /// The file's path.
  const std::string& path() const noexcept { return file_.path(); }

 private:
  void add(const std::string& value, int64_t step, double time);

  LogFile file_;
};

}  // namespace trainer
