// SPDX-License-Identifier: MIT
// zip_archive.h: end records, central directory, local headers; every offset is checked before it
// is used.
#include "convert/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "libindexed/format.h"

namespace convert {
namespace {

constexpr uint64_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kCentralBytes = 46,
                  kLocalBytes = 30;
constexpr int64_t kMaxComment = 65535, kMaxMembers = 1'000'000, kMaxName = 4096;
constexpr uint64_t kIn64 = 0xffffffff;
// A deflated pickle grows 5 to 20-fold; a bomb a thousandfold.
constexpr int64_t kMaxGrowth = 64, kFreeGrowth = int64_t{1} << 20;
constexpr int64_t kMapBytes = 64;  // budget for an entry of by_name_

bool leaves_archive(const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find('\0') != std::string::npos) return true;
  for (size_t at = name.find(".."); at != std::string::npos; at = name.find("..", at + 1)) {
    const bool starts = at == 0 || name[at - 1] == '/';
    const bool ends = at + 2 == name.size() || name[at + 2] == '/';
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace

void ZipArchive::fail(const std::string& why) const {
  throw indexed::FormatError(path_ + ": zip: " + why);
}

uint64_t ZipArchive::number(int64_t position, int bytes) const {
  const int64_t size = static_cast<int64_t>(file_.size());
  if (position < 0 || position > size - bytes) fail("a record leaves the file: unfinished file");
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(file_[static_cast<size_t>(position + i)]) << (8 * i);
  return value;
}

ZipArchive::ZipArchive(std::span<const std::byte> file, std::string path, Budget& budget)
    : file_(file), path_(std::move(path)), budget_(budget) {
  read_directory();
}

void ZipArchive::read_directory() {
  const int64_t size = static_cast<int64_t>(file_.size());
  int64_t end = size - kEndBytes;
  const int64_t lowest = std::max<int64_t>(0, end - kMaxComment);
  while (end >= lowest && number(end, 4) != kEnd) --end;
  if (end < lowest) fail("no end record: unfinished file, or not a checkpoint");
  uint64_t count = number(end + 10, 2), bytes = number(end + 12, 4), start = number(end + 16, 4);
  if (end >= kLocatorBytes && number(end - kLocatorBytes, 4) == kEnd64Locator) {
    const uint64_t end64 = number(end - kLocatorBytes + 8, 8);
    if (end64 > static_cast<uint64_t>(size - kEnd64Bytes) ||
        number(static_cast<int64_t>(end64), 4) != kEnd64)
      fail("the 64-bit end record is not where it should be");
    count = number(static_cast<int64_t>(end64) + 32, 8);
    bytes = number(static_cast<int64_t>(end64) + 40, 8);
    start = number(static_cast<int64_t>(end64) + 48, 8);
  }
  if (count > static_cast<uint64_t>(kMaxMembers))
    fail(std::to_string(count) + " members, at most a million");
  if (start > static_cast<uint64_t>(size) || bytes > static_cast<uint64_t>(size) - start)
    fail("the directory leaves the file");
  if (count > bytes / static_cast<uint64_t>(kCentralBytes))
    fail(std::to_string(count) + " members in a directory of " + std::to_string(bytes) + " bytes");
  int64_t position = static_cast<int64_t>(start);
  const int64_t directory_end = position + static_cast<int64_t>(bytes);
  for (uint64_t i = 0; i < count; ++i) read_member(position, directory_end);
  if (position != directory_end) fail("the directory is longer than its members");
  refuse_overlaps(static_cast<int64_t>(start));
}

// Members that share bytes would make a small file a large one.
void ZipArchive::refuse_overlaps(int64_t directory) const {
  std::vector<const ZipMember*> by_place;
  for (const ZipMember& member : members_) by_place.push_back(&member);
  std::sort(by_place.begin(), by_place.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
  for (size_t i = 0; i < by_place.size(); ++i) {
    const int64_t next = i + 1 < by_place.size() ? by_place[i + 1]->header : directory;
    if (by_place[i]->place + by_place[i]->stored_bytes > next)
      fail("member \"" + by_place[i]->name + "\" lies over what follows it");
  }
}

void ZipArchive::read_member(int64_t& position, int64_t end) {
  if (position > end - kCentralBytes || number(position, 4) != kCentralHeader)
    fail("the directory is damaged");
  const uint64_t flags = number(position + 8, 2), method = number(position + 10, 2);
  ZipMember member;
  member.crc32 = static_cast<uint32_t>(number(position + 16, 4));
  uint64_t stored = number(position + 20, 4), bytes = number(position + 24, 4);
  const int64_t name_bytes = static_cast<int64_t>(number(position + 28, 2));
  const int64_t extra_bytes = static_cast<int64_t>(number(position + 30, 2));
  const int64_t comment_bytes = static_cast<int64_t>(number(position + 32, 2));
  uint64_t header = number(position + 42, 4);
  if (name_bytes > kMaxName || position + kCentralBytes + name_bytes + extra_bytes > end)
    fail("the directory is damaged");
  budget_.read(kCentralBytes + name_bytes + extra_bytes);
  budget_.spend(static_cast<int64_t>(2 * sizeof(ZipMember)) + 2 * name_bytes + kMapBytes);
  member.name.assign(reinterpret_cast<const char*>(file_.data()) + position + kCentralBytes,
                     static_cast<size_t>(name_bytes));
  int64_t extra = position + kCentralBytes + name_bytes;
  const int64_t extra_end = extra + extra_bytes;
  while (extra + 4 <= extra_end) {
    const uint64_t id = number(extra, 2);
    int64_t field = extra + 4;
    const int64_t next = field + static_cast<int64_t>(number(extra + 2, 2));
    if (next > extra_end) fail("member \"" + member.name + "\" has a damaged extra field");
    for (uint64_t* value : {&bytes, &stored, &header})
      if (id == 1 && *value == kIn64 && field + 8 <= next) {
        *value = number(field, 8);
        field += 8;
      }
    extra = next;
  }
  if ((flags & 1) != 0) fail("member \"" + member.name + "\" is encrypted");
  if (method != 0 && method != 8)
    fail("member \"" + member.name + "\" is packed by method " + std::to_string(method) +
         ", expected stored");
  const uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (leaves_archive(member.name)) fail("member name \"" + member.name + "\" leaves the archive");
  if (stored > most || bytes > most || header > most || (method == 0 && stored != bytes))
    fail("member \"" + member.name + "\" has impossible sizes");
  member.stored_bytes = static_cast<int64_t>(stored);
  member.bytes = static_cast<int64_t>(bytes);
  member.deflated = method == 8;
  locate(member, static_cast<int64_t>(header));
  if (!by_name_.emplace(member.name, members_.size()).second)
    fail("member \"" + member.name + "\" stands twice");
  members_.push_back(std::move(member));
  position = extra_end + comment_bytes;
}

// The local header has its own lengths of name and extra field, from which the place of the bytes
// follows.
void ZipArchive::locate(ZipMember& member, int64_t header) const {
  if (number(header, 4) != kLocalHeader)
    fail("member \"" + member.name + "\" is not where the directory says");
  member.header = header;
  member.place = header + kLocalBytes + static_cast<int64_t>(number(header + 26, 2)) +
                 static_cast<int64_t>(number(header + 28, 2));
  const int64_t size = static_cast<int64_t>(file_.size());
  if (member.place > size || member.stored_bytes > size - member.place)
    fail("member \"" + member.name + "\" leaves the file");
}

const ZipMember* ZipArchive::find(const std::string& name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &members_[found->second];
}

std::span<const std::byte> ZipArchive::stored(const ZipMember& member) const {
  if (member.deflated)
    fail("member \"" + member.name + "\" is compressed, expected stored: save it again with torch");
  return file_.subspan(static_cast<size_t>(member.place), static_cast<size_t>(member.bytes));
}

std::vector<std::byte> ZipArchive::inflate(const ZipMember& member, int64_t limit) const {
  if (member.bytes > limit)
    fail("member \"" + member.name + "\" has " + std::to_string(member.bytes) + " bytes, at most " +
         std::to_string(limit));
  const std::byte* source = file_.data() + member.place;
  if (!member.deflated) return std::vector<std::byte>(source, source + member.bytes);
  if (member.bytes > kFreeGrowth && member.bytes / kMaxGrowth > member.stored_bytes)
    fail("member \"" + member.name + "\" grows from " + std::to_string(member.stored_bytes) +
         " to " + std::to_string(member.bytes) + " bytes, at most " + std::to_string(kMaxGrowth) +
         " times");
  std::vector<std::byte> out(static_cast<size_t>(member.bytes));
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("zlib does not start");
  // Both counts fit: `limit` is at most 1 GiB, and deflate cannot grow data beyond 32 bits here.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(source));
  stream.avail_in = static_cast<uInt>(std::min<int64_t>(member.stored_bytes, UINT32_MAX));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = ::inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  const uLong crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(out.data()), static_cast<uInt>(out.size()));
  if (!whole || crc != member.crc32) fail("member \"" + member.name + "\" is damaged");
  return out;
}

bool ZipArchive::intact(const ZipMember& member,
                        const std::function<void(size_t place, size_t size)>& done) const {
  constexpr int64_t kStep = 16 << 20;
  uLong crc = ::crc32(0, nullptr, 0);
  for (int64_t at = 0; at < member.stored_bytes; at += kStep) {
    const size_t size = static_cast<size_t>(std::min(kStep, member.stored_bytes - at));
    const size_t place = static_cast<size_t>(member.place + at);
    crc =
        ::crc32(crc, reinterpret_cast<const Bytef*>(file_.data()) + place, static_cast<uInt>(size));
    if (done) done(place, size);
  }
  return crc == member.crc32;
}

}  // namespace convert
