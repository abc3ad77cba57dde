// SPDX-License-Identifier: MIT
// safetensors.h: reading and writing the header's JSON, and the checks. The JSON is read as events,
// so a header of 100 MB builds no tree, a duplicate name is noticed, and only the four fields of
// the format are accepted. Source: huggingface/safetensors, "Format": u64 header size, JSON, one
// buffer that the tensors fill.
#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>

#include "libindexed/format.h"

namespace trainer {
namespace {

using indexed::FormatError;
using nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's own limit
constexpr int64_t kDataAlignment = 64;

struct DTypeRow {
  std::string_view name;
  int bits;
};
constexpr DTypeRow kDTypes[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"I16", 16},        {"U16", 16},
    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"F64", 64},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

// Receives the header's JSON as events. Every method returns false to stop; `why` then has the
// reason.
class HeaderEvents : public nlohmann::json_sax<json> {
 public:
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::string why;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_ || value > static_cast<uint64_t>(INT64_MAX))
      return refuse("number " + std::to_string(value));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_ && !in_array_) {
      if (!metadata.emplace(key_, value).second)
        return fail("\"__metadata__\" has key \"" + key_ + "\" twice");
      return true;
    }
    if (depth_ != 2 || in_array_ || key_ != "dtype") return refuse("a string");
    if (safetensors_dtype_bits(value) == 0)
      return fail(tensor() + "unknown dtype \"" + value + "\"");
    tensors.back().dtype = value;
    return true;
  }

  bool start_object(size_t) override {
    if (in_array_ || depth_ >= 2) return refuse("an object");
    if (++depth_ == 1) return true;
    in_metadata_ = key_ == "__metadata__";
    if (in_metadata_)
      return seen_metadata_ ? fail("\"__metadata__\" stands twice") : (seen_metadata_ = true);
    if (!names_.insert(key_).second) return fail("tensor \"" + key_ + "\" stands twice");
    tensors.emplace_back();
    tensors.back().name = key_;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    if (depth_ != 2 || in_metadata_) return true;
    bool& seen = value == "dtype" ? has_dtype_ : value == "shape" ? has_shape_ : has_offsets_;
    if (value != "dtype" && value != "shape" && value != "data_offsets")
      return fail(tensor() + "unknown field \"" + value + "\"");
    if (seen) return fail(tensor() + "field \"" + value + "\" stands twice");
    return seen = true;
  }

  bool end_object() override {
    if (--depth_ == 0 || in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    if (!has_dtype_ || !has_shape_ || !has_offsets_)
      return fail(tensor() + "one of dtype, shape, data_offsets is missing");
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || key_ == "dtype") return refuse("an array");
    numbers_.clear();
    return in_array_ = true;
  }

  bool end_array() override {
    in_array_ = false;
    if (key_ == "shape") {
      tensors.back().shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) return fail(tensor() + "data_offsets are not two numbers");
    tensors.back().begin = numbers_[0];
    tensors.back().end = numbers_[1];
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("header is not JSON at byte " + std::to_string(position + 8));
  }

 private:
  std::string tensor() const { return "tensor \"" + tensors.back().name + "\": "; }
  bool fail(std::string reason) {
    why = std::move(reason);
    return false;
  }
  bool refuse(const std::string& what) {
    return fail("header holds " + what + " at \"" + key_ + "\"");
  }

  int depth_ = 0;
  bool in_metadata_ = false, in_array_ = false, seen_metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string key_;
  std::vector<int64_t> numbers_;
  std::unordered_set<std::string> names_;
};

// Sorts by position and checks that the tensors fill `buffer_bytes` exactly.
void check_tiling(std::vector<TensorEntry>& tensors, int64_t buffer_bytes,
                  const std::string& path) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t next = 0;
  for (const TensorEntry& t : tensors) {
    const std::string place = path + ": tensor \"" + t.name + "\": ";
    if (t.begin != next || t.end < t.begin)
      throw FormatError(place + "bytes " + std::to_string(t.begin) + ".." + std::to_string(t.end) +
                        " do not follow byte " + std::to_string(next) + ": hole or overlap");
    int64_t expected = 0;
    try {
      expected = safetensors_bytes(t.dtype, t.shape);
    } catch (const FormatError& e) {
      throw FormatError(place + e.what());
    }
    if (t.bytes() != expected)
      throw FormatError(place + std::to_string(t.bytes()) + " bytes, expected " +
                        std::to_string(expected) + " for its dtype and shape");
    next = t.end;
  }
  if (next != buffer_bytes)
    throw FormatError(path + ": " + std::to_string(buffer_bytes) +
                      " bytes after the header, expected " + std::to_string(next) +
                      ": unfinished or foreign file");
}

// The whole header: size, JSON, spaces up to the alignment of the data. Sets begin and end of each
// tensor.
std::string make_header(std::vector<TensorEntry>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string_view> names;
  std::string text = "{";
  if (!metadata.empty())
    text += "\"__metadata__\":" + json(metadata).dump() + (tensors.empty() ? "" : ",");
  int64_t next = 0;
  for (TensorEntry& t : tensors) {
    if (t.name == "__metadata__" || !names.insert(t.name).second)
      throw FormatError("tensor name \"" + t.name + "\" is reserved or given twice");
    t.begin = next;
    if (__builtin_add_overflow(next, safetensors_bytes(t.dtype, t.shape), &t.end))
      throw FormatError("tensor \"" + t.name + "\": file size overflows");
    next = t.end;
    if (text.back() == '}') text += ',';
    text += json(t.name).dump() + ":{\"dtype\":\"" + t.dtype +
            "\",\"shape\":" + json(t.shape).dump() + ",\"data_offsets\":[" +
            std::to_string(t.begin) + "," + std::to_string(t.end) + "]}";
  }
  text += '}';
  const int64_t used = static_cast<int64_t>(text.size()) + 8;
  text.append(static_cast<size_t>((kDataAlignment - used % kDataAlignment) % kDataAlignment), ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes)
    throw FormatError("header is over 100 MB");
  std::string header(8, '\0');
  const uint64_t size = text.size();
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(size >> (8 * i));
  return header + text;
}

}  // namespace

int safetensors_dtype_bits(std::string_view dtype) noexcept {
  for (const DTypeRow& row : kDTypes)
    if (row.name == dtype) return row.bits;
  return 0;
}

int64_t safetensors_bytes(std::string_view dtype, std::span<const int64_t> shape) {
  int64_t bits = safetensors_dtype_bits(dtype);
  if (bits == 0) throw FormatError("unknown dtype \"" + std::string(dtype) + "\"");
  for (int64_t n : shape) {
    if (n < 0) throw FormatError("shape has a negative dimension " + std::to_string(n));
    if (__builtin_mul_overflow(bits, n, &bits)) throw FormatError("shape overflows");
  }
  if (bits % 8 != 0) throw FormatError("shape ends inside a byte");
  return bits / 8;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = indexed::MappedFile(path);
  const std::span<const std::byte> all = file.file_.bytes();
  if (all.size() < 8)
    throw FormatError(path + ": " + std::to_string(all.size()) + " bytes: no safetensors file");
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < 8; ++i) header_bytes |= static_cast<uint64_t>(all[i]) << (8 * i);
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes) || header_bytes > all.size() - 8)
    throw FormatError(path + ": header of " + std::to_string(header_bytes) +
                      " bytes, the file has " + std::to_string(all.size()) +
                      ": no safetensors file, or unfinished");
  const char* text = reinterpret_cast<const char*>(all.data()) + 8;
  if (header_bytes == 0 || *text != '{') throw FormatError(path + ": header does not start with {");
  HeaderEvents events;
  if (!json::sax_parse(text, text + header_bytes, &events))
    throw FormatError(path + ": " + events.why);
  file.data_start_ = static_cast<int64_t>(header_bytes) + 8;
  file.tensors_ = std::move(events.tensors);
  file.metadata_ = std::move(events.metadata);
  check_tiling(file.tensors_, static_cast<int64_t>(all.size()) - file.data_start_, path);
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.by_name_.emplace(file.tensors_[i].name, i);
  return file;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw FormatError(path_ + ": no tensor \"" + std::string(name) + "\"");
  return *entry;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const noexcept {
  return file_.bytes().subspan(static_cast<size_t>(data_start_ + entry.begin),
                               static_cast<size_t>(entry.bytes()));
}

void SafetensorsFile::release(const TensorEntry& entry, int64_t begin, int64_t end) const noexcept {
  file_.release(static_cast<size_t>(data_start_ + entry.begin + begin),
                static_cast<size_t>(end - begin));
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     indexed::Existing existing)
    : path_(path), tensors_(std::move(tensors)), out_(path, existing) {
  write_header(metadata);
}

SafetensorsWriter::SafetensorsWriter(const indexed::UnnamedFile& file,
                                     std::vector<TensorEntry> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(file.name), tensors_(std::move(tensors)), out_(file) {
  write_header(metadata);
}

void SafetensorsWriter::write_header(const std::map<std::string, std::string>& metadata) {
  std::string header;
  try {
    header = make_header(tensors_, metadata);
  } catch (const FormatError& e) {
    throw FormatError(path_ + ": " + e.what());
  } catch (const json::exception&) {
    throw FormatError(path_ + ": a tensor name or metadata string is not UTF-8");
  }
  data_start_ = static_cast<int64_t>(header.size());
  out_.write(std::as_bytes(std::span<const char>(header)));
  out_.flush();
  skip_whole_tensors();
}

void SafetensorsWriter::skip_whole_tensors() noexcept {
  while (current_ < tensors_.size() && written_ == tensors_[current_].end) ++current_;
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (current_ == tensors_.size() || tensors_[current_].name != name)
    throw std::logic_error(path_ + ": tensor \"" + std::string(name) + "\" is not next");
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (count > tensors_[current_].end - written_)
    throw std::logic_error(path_ + ": tensor \"" + std::string(name) +
                           "\" has more bytes than its shape");
  out_.write(bytes);
  written_ += count;
  skip_whole_tensors();
}

void SafetensorsWriter::write_at(size_t i, int64_t at, std::span<const std::byte> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (at < 0 || count > tensors_.at(i).bytes() - at)
    throw std::logic_error(path_ + ": tensor \"" + tensors_[i].name +
                           "\" has more bytes than its shape");
  const int64_t place = data_start_ + tensors_[i].begin + at;
  out_.write_at(place, bytes);
  out_.begin_writing_back(place, count);
  placed_ += count;
}

int64_t SafetensorsWriter::file_bytes() const noexcept {
  return data_start_ + (tensors_.empty() ? 0 : tensors_.back().end);
}

int SafetensorsWriter::sync() {
  out_.sync();
  return out_.fd();
}

void SafetensorsWriter::commit() {
  const int64_t wanted = tensors_.empty() ? 0 : tensors_.back().end;
  if (placed_ > 0 && placed_ != wanted)
    throw std::logic_error(path_ + ": " + std::to_string(placed_) + " of " +
                           std::to_string(wanted) + " bytes are there");
  if (placed_ == 0 && current_ != tensors_.size())
    throw std::logic_error(path_ + ": tensor \"" + tensors_[current_].name + "\" is not whole");
  out_.commit();
}

}  // namespace trainer
