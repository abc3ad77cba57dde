// See tensorboard.h. A protobuf field is its number times eight plus a wire type (0 varint, 1 eight
// bytes, 2 counted bytes, 5 four bytes), then the value.
//
// SPDX-License-Identifier: MIT
#include "trainer/log/tensorboard.h"

#include <bit>
#include <span>
#include <utility>

#include <unistd.h>

#include "libindexed/crc32c.h"

namespace trainer {
namespace {

// Field numbers of tensorflow.Event, Summary, Summary.Value and SessionLog.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimpleValue = 2;
constexpr int kValueTensor = 8, kValueMetadata = 9;
// Of SummaryMetadata, its PluginData, TensorProto, TensorShapeProto and its Dim.
constexpr int kMetadataPlugin = 1, kMetadataDataClass = 4, kPluginName = 1;
constexpr int kTensorDtype = 1, kTensorShape = 2, kTensorString = 8, kShapeDim = 2, kDimSize = 1;
constexpr uint64_t kDataClassTensor = 2, kDtypeString = 7;
constexpr int kSessionLogStatus = 1;
constexpr uint64_t kSessionLogStart = 1;

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_varint_field(std::string& out, int field, uint64_t value) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, value);
}

void put_double_field(std::string& out, int field, double value) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 1);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

void put_float_field(std::string& out, int field, float value) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}

void put_bytes_field(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// TensorFlow masks a CRC that is stored beside its data: rotated right by 15 bits, plus a constant.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = indexed::crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size())));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// A record in the file's form: length, CRC of the length, data, CRC of the data.
std::string framed(const std::string& event) {
  std::string out;
  put_little_endian(out, static_cast<uint64_t>(event.size()));
  put_little_endian(out, masked_crc(out));
  out += event;
  put_little_endian(out, masked_crc(event));
  return out;
}

std::string file_name(const std::string& directory, double time) {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return directory + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(time)) + "." +
         host + "." + std::to_string(getpid()) + ".0";
}

std::string first_records(double time, int64_t first_step) {
  std::string event;
  put_double_field(event, kEventWallTime, time);
  put_bytes_field(event, kEventFileVersion, "brain.Event:2");
  std::string out = framed(event);
  if (first_step <= 0) return out;
  std::string session;
  put_varint_field(session, kSessionLogStatus, kSessionLogStart);
  event.clear();
  put_double_field(event, kEventWallTime, time);
  put_varint_field(event, kEventStep, static_cast<uint64_t>(first_step));
  put_bytes_field(event, kEventSessionLog, session);
  return out + framed(event);
}

}  // namespace

EventWriter::EventWriter(const std::string& directory, double time, int64_t first_step,
                         std::function<void(const std::string&)> say, size_t most_kept_bytes)
    : file_({.path = file_name(directory, time),
             .noun = "point",
             .head = first_records(time, first_step),
             .say = std::move(say),
             .most_kept_bytes = most_kept_bytes}) {}

void EventWriter::scalar(std::string_view tag, double value, int64_t step, double time) {
  std::string one;
  put_bytes_field(one, kValueTag, tag);
  put_float_field(one, kValueSimpleValue, static_cast<float>(value));
  add(one, step, time);
}

void EventWriter::text(std::string_view tag, std::string_view markdown, int64_t step, double time) {
  std::string dim, shape, tensor, plugin, metadata, one;
  put_varint_field(dim, kDimSize, 1);
  put_bytes_field(shape, kShapeDim, dim);
  put_varint_field(tensor, kTensorDtype, kDtypeString);
  put_bytes_field(tensor, kTensorShape, shape);
  put_bytes_field(tensor, kTensorString, markdown);
  put_bytes_field(plugin, kPluginName, "text");
  put_bytes_field(metadata, kMetadataPlugin, plugin);
  put_varint_field(metadata, kMetadataDataClass, kDataClassTensor);
  put_bytes_field(one, kValueTag, tag);
  put_bytes_field(one, kValueTensor, tensor);
  put_bytes_field(one, kValueMetadata, metadata);
  add(one, step, time);
}

// One Summary.Value as an event.
void EventWriter::add(const std::string& value, int64_t step, double time) {
  std::string summary, event;
  put_bytes_field(summary, kSummaryValue, value);
  put_double_field(event, kEventWallTime, time);
  put_varint_field(event, kEventStep, static_cast<uint64_t>(step));
  put_bytes_field(event, kEventSummary, summary);
  file_.add(framed(event), step);
}

}  // namespace trainer
