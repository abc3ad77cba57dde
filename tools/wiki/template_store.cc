// SPDX-License-Identifier: MIT
// Records of templates, in memory and beyond that in a file; the body of a template's page.

#include "tools/wiki/template_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <system_error>
#include <utility>

#include "tools/wiki/dump.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr size_t kLongestTitle = 512;  // bytes; MediaWiki's are at most 255 without the namespace

// Removes every <name ...>...</name>, or with `keep_inner` only the tags.
std::string without_element(std::string_view text, std::string_view name, bool keep_inner) {
  std::string out;
  size_t at = 0;
  int depth = 0;
  while (at < text.size()) {
    const size_t next = std::min(text.find('<', at), text.size());
    if (depth == 0 || keep_inner) out.append(text, at, next - at);
    at = next;
    if (at == text.size()) break;
    const Tag tag = parse_tag(text, at);
    if (tag.length == 0 || tag.name != name) {
      if (depth == 0 || keep_inner) out.push_back('<');
      ++at;
      continue;
    }
    if (!tag.self_closing) depth = std::max(0, depth + (tag.closing ? -1 : 1));
    at += tag.length;
  }
  return out;
}

// A file that is removed when it is closed.
int open_nameless(const std::string& folder) {
  std::string path = (std::filesystem::path(folder) / "wiki-extract-XXXXXX").string();
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

}  // namespace

std::string without_comments(std::string_view text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = std::min(text.find("<!--", at), text.size());
    out.append(text, at, begin - at);
    if (begin == text.size()) break;
    const size_t end = text.find("-->", begin + 4);
    at = end == std::string_view::npos ? text.size() : end + 3;
  }
  return out;
}

std::string transcluded_part(std::string_view text) {
  std::string plain = without_comments(text);
  if (const size_t begin = plain.find("<onlyinclude>"); begin != std::string::npos) {
    std::string only;
    size_t at = begin;
    while (at != std::string::npos) {
      const size_t inner = at + std::string_view("<onlyinclude>").size();
      const size_t end = std::min(plain.find("</onlyinclude>", inner), plain.size());
      only.append(plain, inner, end - inner);
      at = plain.find("<onlyinclude>", end);
    }
    return only;
  }
  return without_element(without_element(plain, "noinclude", false), "includeonly", true);
}

TemplateStore::TemplateStore(std::string folder, size_t most_in_memory)
    : folder_(std::move(folder)), most_in_memory_(most_in_memory) {}

TemplateStore::TemplateStore(TemplateStore&& other) noexcept
    : folder_(std::move(other.folder_)),
      most_in_memory_(other.most_in_memory_),
      places_(std::move(other.places_)),
      kept_(std::move(other.kept_)),
      end_(other.end_),
      fd_(std::exchange(other.fd_, -1)),
      local_prefix_(std::move(other.local_prefix_)) {}

TemplateStore::~TemplateStore() {
  if (fd_ >= 0) ::close(fd_);
}

std::string TemplateStore::normalized(std::string_view name) const {
  std::string key(trim(name));
  std::replace(key.begin(), key.end(), '_', ' ');
  const auto strip = [&key](std::string_view prefix) {
    if (fold_case(std::string_view(key).substr(0, prefix.size())) == fold_case(prefix))
      key.erase(0, prefix.size());
  };
  strip(local_prefix_);
  strip("Template:");
  return upper_first(trim(key));
}

void TemplateStore::put(const std::string& title, std::string_view rest, bool redirect) {
  if (title.size() > kLongestTitle || (redirect && rest.size() > kLongestTitle)) return;
  if (rest.size() > std::numeric_limits<uint32_t>::max() / 2) return;
  const std::string record = title + std::string(rest);
  places_[std::hash<std::string>()(title)] = {
      .offset = end_,
      .size = static_cast<uint32_t>(record.size()),
      .title_size = static_cast<uint32_t>(title.size()) & 0x7FFFFFFF,
      .redirect = redirect ? 1u : 0u};
  end_ += static_cast<int64_t>(record.size());
  if (fd_ < 0 && kept_.size() + record.size() <= most_in_memory_) {
    kept_ += record;
    return;
  }
  if (fd_ < 0) fd_ = open_nameless(folder_);
  if (fd_ < 0) fd_ = open_nameless(std::filesystem::temp_directory_path().string());
  std::string_view left = record;
  while (fd_ >= 0 && !left.empty()) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written < 0 && errno != EINTR) break;
    left.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  if (fd_ < 0 || !left.empty())
    throw std::system_error(errno, std::generic_category(),
                            "temporary file for templates in " + folder_);
}

std::string TemplateStore::bytes(int64_t offset, size_t size) const {
  if (offset < static_cast<int64_t>(kept_.size()))
    return kept_.substr(static_cast<size_t>(offset), size);
  offset -= static_cast<int64_t>(kept_.size());
  std::string bytes(size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        ::pread(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (got == 0 || (got < 0 && errno != EINTR))
      throw std::system_error(got == 0 ? EIO : errno, std::generic_category(),
                              "temporary file for templates in " + folder_);
    done += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return bytes;
}

void TemplateStore::add(std::string_view title, std::string_view text) {
  if (const std::optional<std::string> target = redirect_target(text))
    return add_redirect(title, *target);
  put(normalized(title), transcluded_part(text), false);
}

void TemplateStore::add_redirect(std::string_view title, std::string_view target) {
  put(normalized(title), normalized(target), true);
}

std::optional<TemplateStore::Place> TemplateStore::place_of(std::string_view name) const {
  constexpr int kLongestChain = 4;
  if (name.size() > kLongestTitle) return std::nullopt;
  std::string title = normalized(name);
  for (int i = 0; i < kLongestChain; ++i) {
    const auto found = places_.find(std::hash<std::string>()(title));
    if (found == places_.end()) return std::nullopt;
    const Place& place = found->second;
    if (bytes(place.offset, place.title_size) != title) return std::nullopt;
    if (place.redirect == 0) return place;
    title = bytes(place.offset + place.title_size, place.size - place.title_size);
  }
  return std::nullopt;
}

std::optional<std::string> TemplateStore::find(std::string_view name) const {
  const std::optional<Place> place = place_of(name);
  if (!place) return std::nullopt;
  return bytes(place->offset + place->title_size, place->size - place->title_size);
}

}  // namespace wiki
