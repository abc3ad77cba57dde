// SPDX-License-Identifier: MIT
// torch_writer.h: writes opcodes, and a ZIP archive of stored members: with checksums, sizes in the
// local headers, data at multiples of 64, 64-bit records only if a number needs them.
#include "convert/torch_writer.h"

#include <zlib.h>

#include <bit>

#include "libindexed/format.h"

namespace convert {
namespace {

constexpr int64_t kAlignment = 64;
constexpr uint64_t kIn64 = 0xffffffff;

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string_view storage_class(const std::string& dtype) {
  constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
      {"F64", "DoubleStorage"}, {"F32", "FloatStorage"},     {"F16", "HalfStorage"},
      {"I64", "LongStorage"},   {"BF16", "BFloat16Storage"}, {"I32", "IntStorage"},
      {"I16", "ShortStorage"},  {"I8", "CharStorage"},       {"U8", "ByteStorage"},
      {"BOOL", "BoolStorage"}};
  for (const auto& [name, torch_name] : kClasses)
    if (name == dtype) return torch_name;
  throw indexed::FormatError("dtype " + dtype + " has no storage class in torch");
}

// Members written one after another; the directory at the end.
class ZipWriter {
 public:
  explicit ZipWriter(indexed::OutputFile& out) : out_(out) {}

  void add(const std::string& name, std::span<const std::byte> data) {
    uLong crc = ::crc32(0, nullptr, 0);
    for (size_t at = 0; at < data.size();) {
      const size_t step = std::min<size_t>(data.size() - at, size_t{1} << 30);
      crc = ::crc32(crc, reinterpret_cast<const Bytef*>(data.data()) + at, static_cast<uInt>(step));
      at += step;
    }
    const uint64_t place = static_cast<uint64_t>(out_.size()), size = data.size();
    const bool big = size >= kIn64;
    std::string extra;
    if (big) {
      put(extra, 1, 2);
      put(extra, 16, 2);
      put(extra, size, 8);
      put(extra, size, 8);
    }
    const int64_t data_at = static_cast<int64_t>(place + 30 + name.size() + extra.size() + 4);
    const uint64_t pad = static_cast<uint64_t>((kAlignment - data_at % kAlignment) % kAlignment);
    extra += "FB";
    put(extra, pad, 2);
    extra.append(pad, 'Z');
    std::string header;
    put(header, 0x04034b50, 4);
    fields(header, big, crc, size);
    put(header, name.size(), 2);
    put(header, extra.size(), 2);
    out_.write(header + name + extra);
    if (!data.empty()) out_.write(data);
    list(name, crc, size, place);
  }

  void finish() {
    const uint64_t start = static_cast<uint64_t>(out_.size());
    std::string end;
    if (start >= kIn64 || directory_.size() >= kIn64 || count_ >= 0xffff) {
      put(end, 0x06064b50, 4);
      put(end, 44, 8);
      put(end, 0x031e, 2);
      put(end, 45, 2);
      put(end, 0, 8);
      for (const uint64_t value : {count_, count_, uint64_t{directory_.size()}, start})
        put(end, value, 8);
      put(end, 0x07064b50, 4);
      put(end, 0, 4);
      put(end, start + directory_.size(), 8);
      put(end, 1, 4);
    }
    put(end, 0x06054b50, 4);
    put(end, 0, 4);
    put(end, std::min<uint64_t>(count_, 0xffff), 2);
    put(end, std::min<uint64_t>(count_, 0xffff), 2);
    put(end, std::min<uint64_t>(directory_.size(), kIn64), 4);
    put(end, std::min<uint64_t>(start, kIn64), 4);
    put(end, 0, 2);
    out_.write(directory_ + end);
  }

 private:
  // What local header and directory share: version, flags, method, date, checksum, sizes.
  static void fields(std::string& out, bool big, uLong crc, uint64_t size) {
    put(out, big ? 45 : 20, 2);
    put(out, 0x0800, 2);  // names are UTF-8
    put(out, 0, 2);       // stored
    put(out, 0, 2);
    put(out, 0x0021, 2);  // 1980-01-01
    put(out, crc, 4);
    put(out, big ? kIn64 : size, 4);
    put(out, big ? kIn64 : size, 4);
  }

  void list(const std::string& name, uLong crc, uint64_t size, uint64_t place) {
    const bool big = size >= kIn64, far = place >= kIn64;
    std::string extra;
    if (big || far) {
      put(extra, 1, 2);
      put(extra, (big ? 16U : 0U) + (far ? 8U : 0U), 2);
      if (big) put(extra, size, 8);
      if (big) put(extra, size, 8);
      if (far) put(extra, place, 8);
    }
    put(directory_, 0x02014b50, 4);
    put(directory_, 0x031e, 2);
    fields(directory_, big, crc, size);
    put(directory_, name.size(), 2);
    put(directory_, extra.size(), 2);
    put(directory_, 0, 2);  // comment
    put(directory_, 0, 2);  // disk
    put(directory_, 0, 2);
    put(directory_, 0, 4);
    put(directory_, far ? kIn64 : place, 4);
    directory_ += name + extra;
    ++count_;
  }

  indexed::OutputFile& out_;
  std::string directory_;
  uint64_t count_ = 0;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

}  // namespace

PickleBuilder& PickleBuilder::none() {
  bytes_ += 'N';
  return *this;
}

PickleBuilder& PickleBuilder::boolean(bool value) {
  bytes_ += value ? '\x88' : '\x89';
  return *this;
}

PickleBuilder& PickleBuilder::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    put(bytes_, static_cast<uint64_t>(value), 1);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J';
    put(bytes_, static_cast<uint64_t>(value), 4);
  } else {
    bytes_ += '\x8a';
    put(bytes_, 8, 1);
    put(bytes_, static_cast<uint64_t>(value), 8);
  }
  return *this;
}

PickleBuilder& PickleBuilder::pair(int64_t first, int64_t second) {
  integer(first).integer(second);
  bytes_ += '\x86';
  return *this;
}

PickleBuilder& PickleBuilder::real(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  bytes_ += 'G';
  for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift);
  return *this;
}

PickleBuilder& PickleBuilder::text(std::string_view value) {
  bytes_ += 'X';
  put(bytes_, value.size(), 4);
  bytes_ += value;
  return *this;
}

PickleBuilder& PickleBuilder::global(std::string_view module, std::string_view name) {
  bytes_ += 'c';
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
  return *this;
}

// _rebuild_tensor_v2((storage id), offset, shape, stride, requires_grad, hooks)
PickleBuilder& PickleBuilder::tensor(const TensorSource& source) {
  global("torch._utils", "_rebuild_tensor_v2");
  bytes_ += "((";
  text("storage").global("torch", storage_class(source.dtype));
  text(std::to_string(tensors_.size())).text("cpu").integer(source.elements());
  bytes_ += "tQ";
  integer(0);
  bytes_ += '(';
  for (const int64_t n : source.shape) integer(n);
  bytes_ += "t(";
  int64_t stride = source.elements();
  for (const int64_t n : source.shape) integer(stride = n == 0 ? 1 : stride / n);
  bytes_ += 't';
  boolean(false).global("collections", "OrderedDict");
  bytes_ += ")RtR";
  tensors_.push_back(source);
  return *this;
}

PickleBuilder& PickleBuilder::begin_dict() {
  bytes_ += "}(";
  return *this;
}

PickleBuilder& PickleBuilder::begin_ordered_dict() {
  global("collections", "OrderedDict");
  bytes_ += ")R(";
  return *this;
}

PickleBuilder& PickleBuilder::end_dict() {
  bytes_ += 'u';
  return *this;
}

PickleBuilder& PickleBuilder::begin_namespace() {
  global("argparse", "Namespace");
  bytes_ += ")\x81}(";
  return *this;
}

PickleBuilder& PickleBuilder::begin_attributes() {
  global("collections", "OrderedDict");
  bytes_ += ")R}(";
  return *this;
}

PickleBuilder& PickleBuilder::end_object() {
  bytes_ += "ub";
  return *this;
}

std::string PickleBuilder::finish() && {
  bytes_ += '.';
  return std::move(bytes_);
}

void write_torch_file(const std::string& path, PickleBuilder builder, indexed::Existing existing,
                      const std::function<void(int64_t done, int64_t total)>& progress) {
  indexed::OutputFile out(path, existing);
  ZipWriter zip(out);
  const std::vector<TensorSource> tensors = builder.tensors();
  int64_t total = 0, done = 0;
  for (const TensorSource& source : tensors) total += source.bytes();
  zip.add("archive/data.pkl", bytes_of(std::move(builder).finish()));
  zip.add("archive/byteorder", bytes_of("little"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    zip.add("archive/data/" + std::to_string(i), tensors[i].load());
    done += tensors[i].bytes();
    if (progress) progress(done, total);
  }
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
  out.commit();
}

}  // namespace convert
