// SPDX-License-Identifier: MIT
// torch_file.h: recognises the container, finds the storages, copies strided views.
#include "convert/torch_file.h"

#include <algorithm>
#include <cstring>

#include "libindexed/format.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

constexpr int64_t kMaxPickleBytes = int64_t{1} << 30;
constexpr int64_t kStorageBytes = 128;  // budget for an entry of storages_
constexpr std::string_view kZipMagic("PK\x03\x04", 4);
// The pickled magic number with which the stream form begins.
constexpr std::string_view kLegacyMagic(
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Copies a strided block, dimension by dimension; the innermost contiguous run at once.
void gather(const std::byte* source, const PickledTensor& t, size_t dimension, int64_t element,
            std::byte*& out) {
  if (dimension == t.shape.size()) {
    std::memcpy(out, source, static_cast<size_t>(element));
    out += element;
    return;
  }
  if (dimension + 1 == t.shape.size() && t.stride[dimension] == 1) {
    const size_t bytes = static_cast<size_t>(t.shape[dimension] * element);
    std::memcpy(out, source, bytes);
    out += bytes;
    return;
  }
  for (int64_t i = 0; i < t.shape[dimension]; ++i)
    gather(source + i * t.stride[dimension] * element, t, dimension + 1, element, out);
}

}  // namespace

int64_t element_bytes(const PickledTensor& tensor) noexcept {
  return tensor.dtype == "C128" ? 16 : trainer::safetensors_dtype_bits(tensor.dtype) / 8;
}

void TorchFile::fail(const std::string& why) const {
  throw indexed::FormatError(path_ + ": " + why);
}

TorchFile::TorchFile(const std::string& path, Checksums checksums)
    : path_(path),
      checksums_(checksums),
      file_(std::make_shared<indexed::MappedFile>(path)),
      bytes_(file_->bytes()),
      budget_(std::make_shared<Budget>(path)) {
  const std::string_view head = text_of(bytes_.first(std::min<size_t>(bytes_.size(), 512)));
  if (head.starts_with(kZipMagic)) {
    open_zip();
  } else if (head.starts_with(kLegacyMagic)) {
    open_legacy();
  } else if (head.starts_with("PYTORCH1") ||
             (head.size() >= 262 && head.substr(257, 5) == "ustar")) {
    fail("a torch file of before 2018: save it again with a current torch");
  } else {
    fail("not a file of torch.save: starts with neither a zip header nor its magic number");
  }
}

TorchFile::TorchFile(std::shared_ptr<const indexed::MappedFile> file, size_t begin, size_t size,
                     const std::string& name, Checksums checksums)
    : path_(name),
      checksums_(checksums),
      file_(std::move(file)),
      begin_(begin),
      bytes_(file_->bytes().subspan(begin, size)),
      budget_(std::make_shared<Budget>(name)) {
  open_zip();
}

void TorchFile::open_zip() {
  zip_ = std::make_unique<ZipArchive>(bytes_, path_, *budget_);
  if (zip_->members().empty()) fail("an empty zip archive");
  const std::string& first = zip_->members().front().name;
  const size_t slash = first.find('/');
  if (slash == std::string::npos) fail("zip member \"" + first + "\" is in no folder");
  const std::string folder = first.substr(0, slash + 1);
  if (zip_->find(folder + "constants.pkl") != nullptr)
    fail("a TorchScript program, not a checkpoint");
  const ZipMember* pickle = zip_->find(folder + "data.pkl");
  if (pickle == nullptr) fail("no record " + folder + "data.pkl: not a file of torch.save");
  if (zip_->find(folder + "version") == nullptr)
    fail("no record " + folder + "version: unfinished file");
  if (const ZipMember* order = zip_->find(folder + "byteorder"))
    if (text_of(zip_->inflate(*order, 64)) != "little") fail("big-endian data is not supported");
  if (!pickle->deflated && checksums_ == Checksums::require && !zip_->intact(*pickle))
    fail("record data.pkl does not have its checksum: damaged");
  if (pickle->deflated)
    pickle_ = std::make_unique<Pickle>(zip_->inflate(*pickle, kMaxPickleBytes), path_, budget_);
  else
    pickle_ = std::make_unique<Pickle>(zip_->stored(*pickle), path_, budget_);
  for (const PickledTensor& tensor : pickle_->tensors()) {
    budget_->spend(kStorageBytes + static_cast<int64_t>(3 * tensor.storage_key.size()));
    const ZipMember* member = zip_->find(folder + "data/" + tensor.storage_key);
    if (member == nullptr) fail("no record data/" + tensor.storage_key);
    zip_->stored(*member);  // refuses a compressed one
    add_storage(tensor, {member->place, member->bytes, member});
  }
}

void TorchFile::add_storage(const PickledTensor& tensor, const Storage& storage) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.storage_elements, element_bytes(tensor), &bytes) ||
      bytes > storage.bytes || storage.bytes - bytes >= element_bytes(tensor))
    fail("storage " + tensor.storage_key + " has " + std::to_string(storage.bytes) +
         " bytes, expected " + std::to_string(tensor.storage_elements) + " elements of " +
         tensor.dtype);
  storages_.emplace(tensor.storage_key, storage);
}

// Magic, protocol, system, object, keys: five pickles; then each storage, a count in front.
void TorchFile::open_legacy() {
  const std::span<const std::byte> all = bytes_;
  size_t position = 0;
  const auto next = [&] {
    auto pickle = std::make_unique<Pickle>(all.subspan(position), path_, budget_);
    position += static_cast<size_t>(pickle->size_bytes());
    return pickle;
  };
  next();
  if (next()->root().integer() != 1001) fail("a torch file of an unknown protocol, expected 1001");
  const std::unique_ptr<Pickle> system = next();
  if (system->root().find("little_endian").integer() != 1) fail("big-endian data is not supported");
  pickle_ = next();
  const std::unique_ptr<Pickle> keys = next();
  if (!keys->root().is(Kind::list)) fail("the list of storages is missing");
  std::unordered_map<std::string_view, const PickledTensor*> users;
  for (const PickledTensor& tensor : pickle_->tensors()) {
    budget_->spend(2 * kStorageBytes + static_cast<int64_t>(3 * tensor.storage_key.size()));
    users.emplace(tensor.storage_key, &tensor);
  }
  for (int64_t i = 0; i < keys->root().size(); ++i) {
    const std::string_view text = keys->root().item(i).text();
    budget_->spend(kStorageBytes + static_cast<int64_t>(2 * text.size()));
    const std::string key(text);
    if (all.size() - position < 8) fail("storage " + key + " is missing: unfinished file");
    uint64_t count = 0;
    for (size_t b = 0; b < 8; ++b) count |= static_cast<uint64_t>(all[position + b]) << (8 * b);
    position += 8;
    const auto user = users.find(key);
    if (user == users.end()) fail("storage " + key + " belongs to no tensor");
    const uint64_t element = static_cast<uint64_t>(element_bytes(*user->second));
    if (count > (all.size() - position) / element)
      fail("storage " + key + " leaves the file: unfinished file");
    const int64_t bytes = static_cast<int64_t>(count * element);
    if (!storages_.emplace(key, Storage{static_cast<int64_t>(position), bytes, nullptr}).second)
      fail("storage " + key + " stands twice");
    position += static_cast<size_t>(bytes);
  }
  if (position != all.size()) fail("bytes follow the last storage: foreign file");
  for (const PickledTensor& tensor : pickle_->tensors()) {
    const auto found = storages_.find(tensor.storage_key);
    if (found == storages_.end()) fail("storage " + tensor.storage_key + " is missing");
    add_storage(tensor, found->second);
  }
}

const std::byte* TorchFile::checked_storage(const PickledTensor& tensor) const {
  const Storage& storage = storages_.at(tensor.storage_key);
  if (storage.member != nullptr && checksums_ == Checksums::require) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!verified_.contains(tensor.storage_key)) {
      const auto let_go = [this](size_t place, size_t size) {
        file_->release(begin_ + place, size);
      };
      if (!zip_->intact(*storage.member, let_go))
        fail("record data/" + tensor.storage_key +
             " does not have its checksum: damaged, or written without checksums "
             "(--ignore-checksums)");
      verified_.insert(tensor.storage_key);
    }
  }
  return bytes_.data() + storage.place;
}

void TorchFile::read_rows(const PickledTensor& tensor, int64_t first, int64_t count,
                          std::byte* out) const {
  if (tensor.elements() == 0) return;
  const int64_t element = element_bytes(tensor);
  const std::byte* source = checked_storage(tensor) + tensor.offset * element;
  if (tensor.shape.empty()) {
    std::memcpy(out, source, static_cast<size_t>(element));
    return;
  }
  if (tensor.contiguous()) {
    const int64_t row = tensor.elements() / tensor.shape[0] * element;
    std::memcpy(out, source + first * row, static_cast<size_t>(count * row));
    return;
  }
  for (int64_t i = first; i < first + count; ++i)
    gather(source + i * tensor.stride[0] * element, tensor, 1, element, out);
}

void TorchFile::release(const PickledTensor& tensor) const noexcept {
  const Storage& storage = storages_.at(tensor.storage_key);
  file_->release(begin_ + static_cast<size_t>(storage.place), static_cast<size_t>(storage.bytes));
}

}  // namespace convert
