// SPDX-License-Identifier: MIT
// torch_writer.h: writes opcodes, and a ZIP archive of stored members: with checksums, sizes in the
// local headers, data at multiples of 64, 64-bit records only if a number needs them.
#include "convert/torch_writer.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "convert/crc32.h"
#include "convert/tensor_blocks.h"
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

// Members whose sizes are known before their bytes: each gets its place first, and they are filled
// in any order. Headers, which contain checksums, and the directory are written last.
class ZipWriter {
 public:
  explicit ZipWriter(indexed::OutputFile& out) : out_(out) {}

  /// The next member; its number.
  size_t add(const std::string& name, int64_t size) {
    Member member{name, end_, static_cast<uint64_t>(size)};
    const int64_t fixed = end_ + 30 + static_cast<int64_t>(name.size()) + (member.big() ? 20 : 0);
    member.pad = static_cast<uint64_t>((kAlignment - (fixed + 4) % kAlignment) % kAlignment);
    member.data = fixed + 4 + static_cast<int64_t>(member.pad);
    end_ = member.data + size;
    members_.push_back(std::move(member));
    return members_.size() - 1;
  }

  /// Bytes of a member; any number of threads.
  void write(size_t member, int64_t at, std::span<const std::byte> bytes) {
    const int64_t place = members_[member].data + at;
    out_.write_at(place, bytes);
    out_.begin_writing_back(place, static_cast<int64_t>(bytes.size()));
  }

  void set_checksum(size_t member, uint32_t crc) { members_[member].crc = crc; }

  /// A small member, whole.
  void add(const std::string& name, std::string_view text) {
    const size_t member = add(name, static_cast<int64_t>(text.size()));
    write(member, 0, std::as_bytes(std::span(text)));
    set_checksum(member, crc32(0, std::as_bytes(std::span(text))));
  }

  void finish() {
    std::string directory;
    for (const Member& member : members_) {
      out_.write_at(member.place, std::as_bytes(std::span<const char>(header(member))));
      list(directory, member);
    }
    const uint64_t start = static_cast<uint64_t>(end_), count = members_.size();
    const std::string end = directory + end_records(start, directory.size(), count);
    out_.write_at(end_, std::as_bytes(std::span<const char>(end)));
  }

 private:
  struct Member {
    std::string name;
    int64_t place = 0;  ///< of the header
    uint64_t size = 0;
    uint64_t pad = 0;
    int64_t data = 0;  ///< of the first byte
    uint32_t crc = 0;
    bool big() const { return size >= kIn64; }
  };

  static std::string header(const Member& member) {
    std::string extra;
    if (member.big()) {
      put(extra, 1, 2);
      put(extra, 16, 2);
      put(extra, member.size, 8);
      put(extra, member.size, 8);
    }
    extra += "FB";
    put(extra, member.pad, 2);
    extra.append(member.pad, 'Z');
    std::string out;
    put(out, 0x04034b50, 4);
    fields(out, member);
    put(out, member.name.size(), 2);
    put(out, extra.size(), 2);
    return out + member.name + extra;
  }

  static std::string end_records(uint64_t start, uint64_t size, uint64_t count) {
    std::string end;
    if (start >= kIn64 || size >= kIn64 || count >= 0xffff) {
      put(end, 0x06064b50, 4);
      put(end, 44, 8);
      put(end, 0x031e, 2);
      put(end, 45, 2);
      put(end, 0, 8);
      for (const uint64_t value : {count, count, size, start}) put(end, value, 8);
      put(end, 0x07064b50, 4);
      put(end, 0, 4);
      put(end, start + size, 8);
      put(end, 1, 4);
    }
    put(end, 0x06054b50, 4);
    put(end, 0, 4);
    put(end, std::min<uint64_t>(count, 0xffff), 2);
    put(end, std::min<uint64_t>(count, 0xffff), 2);
    put(end, std::min<uint64_t>(size, kIn64), 4);
    put(end, std::min<uint64_t>(start, kIn64), 4);
    put(end, 0, 2);
    return end;
  }

  // What local header and directory share: version, flags, method, date, checksum, sizes.
  static void fields(std::string& out, const Member& member) {
    put(out, member.big() ? 45 : 20, 2);
    put(out, 0x0800, 2);  // names are UTF-8
    put(out, 0, 2);       // stored
    put(out, 0, 2);
    put(out, 0x0021, 2);  // 1980-01-01
    put(out, member.crc, 4);
    put(out, member.big() ? kIn64 : member.size, 4);
    put(out, member.big() ? kIn64 : member.size, 4);
  }

  static void list(std::string& directory, const Member& member) {
    const uint64_t place = static_cast<uint64_t>(member.place);
    const bool big = member.big(), far = place >= kIn64;
    std::string extra;
    if (big || far) {
      put(extra, 1, 2);
      put(extra, (big ? 16U : 0U) + (far ? 8U : 0U), 2);
      if (big) put(extra, member.size, 8);
      if (big) put(extra, member.size, 8);
      if (far) put(extra, place, 8);
    }
    put(directory, 0x02014b50, 4);
    put(directory, 0x031e, 2);
    fields(directory, member);
    put(directory, member.name.size(), 2);
    put(directory, extra.size(), 2);
    put(directory, 0, 2);  // comment
    put(directory, 0, 2);  // disk
    put(directory, 0, 2);
    put(directory, 0, 4);
    put(directory, far ? kIn64 : place, 4);
    directory += member.name + extra;
  }

  indexed::OutputFile& out_;
  std::vector<Member> members_;
  int64_t end_ = 0;
};

// Writes the tensors as members from `first` on, summed as they pass: each block for itself, joined
// when all have passed.
void write_storages(ZipWriter& zip, size_t first, const std::vector<TensorSource>& tensors,
                    const std::function<void(int64_t done, int64_t total)>& progress) {
  int64_t total = 0, done = 0;
  std::vector<std::vector<uint32_t>> sums(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    total += tensors[i].bytes();
    sums[i].resize(static_cast<size_t>((tensors[i].bytes() + kBlockBytes - 1) / kBlockBytes));
  }
  std::mutex mutex;  // of done, and of who is told
  for_each_block(tensors, [&](const TensorBlock& block) {
    refuse_not_finite(tensors[block.tensor], block.at, block.bytes);
    sums[block.tensor][static_cast<size_t>(block.at / kBlockBytes)] = crc32(0, block.bytes);
    zip.write(first + block.tensor, block.at, block.bytes);
    const std::lock_guard<std::mutex> lock(mutex);
    done += static_cast<int64_t>(block.bytes.size());
    if (progress) progress(done, total);
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint32_t crc = 0;
    for (size_t block = 0; block < sums[i].size(); ++block) {
      const int64_t at = static_cast<int64_t>(block) * kBlockBytes;
      crc = crc32_joined(crc, sums[i][block], std::min(kBlockBytes, tensors[i].bytes() - at));
    }
    zip.set_checksum(first + i, crc);
  }
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
                      const std::function<void(int64_t done, int64_t total)>& progress,
                      const std::function<void()>& before_naming) {
  indexed::OutputFile out(path, existing);
  ZipWriter zip(out);
  const std::vector<TensorSource> tensors = builder.tensors();
  zip.add("archive/data.pkl", std::move(builder).finish());
  zip.add("archive/byteorder", "little");
  constexpr size_t kFirst = 2;
  for (size_t i = 0; i < tensors.size(); ++i)
    zip.add("archive/data/" + std::to_string(i), tensors[i].bytes());
  write_storages(zip, kFirst, tensors, progress);
  zip.add("archive/version", "3\n");
  zip.finish();
  out.sync();
  if (before_naming) before_naming();
  out.commit();
}

}  // namespace convert
