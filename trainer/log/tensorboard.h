// TensorBoard event files, written without TensorFlow: the record framing and the three protobuf
// messages that a scalar needs, by hand. Which tags exist is metrics.cc's business. Source:
// tensorflow/core/lib/io/record_writer (length, masked CRCs); tensorflow/core/util/event.proto and
// framework/summary.proto (field numbers).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace trainer {

/// One `events.out.tfevents.*` file that grows while the run goes on.
/// State: one thread at a time. What was flushed survives the process.
class EventWriter {
 public:
  /// Creates `directory` if need be and starts a new file in it, named by time, host and process.
  /// `first_step` > 0 tells TensorBoard to forget what earlier files of the folder say from that
  /// step on, so that a resumed run draws one line. Errors: std::system_error.
  EventWriter(const std::string& directory, double time, int64_t first_step);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  /// Appends one scalar. Buffered; see flush(). Errors: std::system_error.
  void scalar(std::string_view tag, double value, int64_t step, double time);

  /// Hands everything to the system. Errors: std::system_error.
  void flush();

  /// The file's path.
  const std::string& path() const noexcept { return path_; }

 private:
  void record(const std::string& event);

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace trainer
