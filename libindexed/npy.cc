// SPDX-License-Identifier: MIT
// The .npy header is a Python literal; only the form that numpy.save itself writes is accepted.
// Arrays are little-endian in the file and read in place, so a big-endian machine is refused at
// compile time.
#include "libindexed/npy.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>

#include "libindexed/format.h"
#include "libindexed/message.h"

namespace indexed {

static_assert(std::endian::native == std::endian::little, "IndexArray reads elements in place");

namespace {

struct TypeRow {
  IndexType type;
  std::string_view descr;
  int64_t bytes;
};
constexpr TypeRow kTypes[] = {{IndexType::u1, "|u1", 1},
                              {IndexType::i2, "<i2", 2},
                              {IndexType::i4, "<i4", 4},
                              {IndexType::u4, "<u4", 4},
                              {IndexType::i8, "<i8", 8}};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void expect(std::string_view word) {
    if (!text_.starts_with(word)) {
      throw FormatError(message(path_, ": header is not that of a plain integer array"));
    }
    text_.remove_prefix(word.size());
  }

  bool take(std::string_view word) {
    const bool here = text_.starts_with(word);
    if (here) text_.remove_prefix(word.size());
    return here;
  }

  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) expect("a number");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }

 private:
  std::string_view text_;
  const std::string& path_;
};

}  // namespace

int64_t index_type_size(IndexType type) noexcept { return kTypes[static_cast<size_t>(type)].bytes; }

IndexArray::IndexArray(IndexType type, int64_t rows, int64_t columns)
    : type_(type), rows_(rows), columns_(columns) {
  const int64_t row_bytes = (columns == 0 ? 1 : columns) * index_type_size(type);
  if (rows > std::numeric_limits<int64_t>::max() / row_bytes) throw std::bad_array_new_length();
  owned_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows * row_bytes));
  data_ = owned_.get();
}

std::span<const std::byte> IndexArray::bytes() const noexcept {
  return {data_, static_cast<size_t>(size() * index_type_size(type_))};
}

std::string IndexArray::header() const {
  std::string text =
      message("{'descr': '", kTypes[static_cast<size_t>(type_)].descr,
              "', 'fortran_order': False, 'shape': (", rows_, columns_ == 0 ? "," : ", ");
  if (columns_ != 0) text += std::to_string(columns_);
  text += "), }";
  const size_t fixed = kMagic.size() + 2 + 2;
  const size_t whole = (fixed + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  // numpy leaves room for a first dimension of 21 digits, which never needs a second block of 64
  // beyond 128.
  text.resize(std::max(whole, 2 * kAlignment) - fixed - 1, ' ');
  text += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(text.size() & 255);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

void IndexArray::write(OutputFile& file) const {
  file.write(header());
  file.write(bytes());
}

bool IndexArray::equals_file(const std::string& path) const {
  const MappedFile file(path, MappedFile::Access::sequential);
  const std::string head = header();
  const std::span<const std::byte> want = bytes();
  const std::span<const std::byte> have = file.bytes();
  return have.size() == head.size() + want.size() &&
         std::memcmp(have.data(), head.data(), head.size()) == 0 &&
         (want.empty() || std::memcmp(have.data() + head.size(), want.data(), want.size()) == 0);
}

IndexArray IndexArray::open(const std::string& path) {
  IndexArray array;
  array.file_ = MappedFile(path, MappedFile::Access::normal, MappedFile::Refuse::cuts);
  const std::span<const std::byte> file = array.file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < 10 || !text.starts_with(kMagic) || text[6] != 1 || text[7] != 0) {
    throw FormatError(message(path, ": not a .npy file of version 1.0"));
  }
  const size_t length =
      static_cast<unsigned char>(text[8]) + size_t{256} * static_cast<unsigned char>(text[9]);
  const size_t begin = 10 + length;
  if (text.size() < begin) throw FormatError(message(path, ": cut short inside its header"));
  HeaderReader reader(text.substr(10, length), path);
  reader.expect("{'descr': '");
  bool known = false;
  for (const TypeRow& row : kTypes) {
    if (!known && reader.take(row.descr)) array.type_ = row.type, known = true;
  }
  reader.expect("', 'fortran_order': False, 'shape': (");
  if (!known) reader.expect("a known type");
  array.rows_ = reader.number();
  reader.expect(",");
  if (reader.take(" ")) array.columns_ = reader.number();
  reader.expect("), }");
  const auto data_bytes = static_cast<int64_t>(text.size() - begin);
  const int64_t columns = array.columns_ == 0 ? 1 : array.columns_;
  const int64_t row_bytes = columns > 1000 ? 0 : columns * index_type_size(array.type_);
  if (row_bytes == 0 || data_bytes % row_bytes != 0 || data_bytes / row_bytes != array.rows_) {
    throw FormatError(message(path, ": ", data_bytes, " bytes of data do not fit shape (",
                              array.rows_, ", ", array.columns_, "): cut short or damaged"));
  }
  if (begin % 8 != 0) throw FormatError(message(path, ": data at byte ", begin, " is not aligned"));
  array.data_ = file.data() + begin;
  return array;
}

}  // namespace indexed
