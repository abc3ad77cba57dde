// SPDX-License-Identifier: MIT
// Bodies of templates by title. The first 64 MiB of them stay in memory; the others (a large wiki
// has a gigabyte) are in an unnamed temporary file and are read when they are called; the system's
// page cache keeps those that are called often. The index in memory has some 60 bytes per title.
// Not here: the expansion (templates.h). May include POSIX.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace wiki {

/// Bodies of templates by title. Built by one thread, then read by any number.
class TemplateStore {
 public:
  /// `folder` is for the temporary file, if one is needed; bodies beyond `most_in_memory` bytes go
  /// there.
  explicit TemplateStore(std::string folder = ".", size_t most_in_memory = 64 << 20);
  TemplateStore(TemplateStore&& other) noexcept;
  TemplateStore& operator=(TemplateStore&&) = delete;
  ~TemplateStore();

  /// Stores what transclusion shows of `text`: <includeonly> and <onlyinclude> are kept,
  /// <noinclude> and comments removed. `title` may have its namespace ("Template:Lang"). A text
  /// "#REDIRECT [[...]]" is a redirect. Of several with the same title the last one is kept. Titles
  /// longer than MediaWiki allows are ignored.
  /// Errors: std::system_error of the temporary file.
  void add(std::string_view title, std::string_view text);

  /// Calls of `title` are calls of `target`.
  void add_redirect(std::string_view title, std::string_view target);

  /// Body of the template that `name` calls, redirects followed. `name` without namespace means the
  /// template namespace. Errors: std::system_error of the temporary file.
  std::optional<std::string> find(std::string_view name) const;

  bool has(std::string_view name) const { return place_of(name).has_value(); }
  size_t size() const { return places_.size(); }
  /// Bytes in the temporary file.
  int64_t bytes_in_file() const { return end_ - static_cast<int64_t>(kept_.size()); }

  /// Name of the template namespace in this wiki ("Шаблон"); English "Template" always works too.
  void set_namespace(std::string_view local_name) { local_prefix_ = std::string(local_name) + ":"; }

 private:
  // A record is the title, then the body or the redirect's target.
  struct Place {
    int64_t offset;
    uint32_t size;
    uint32_t title_size : 31;
    uint32_t redirect : 1;
  };
  std::string normalized(std::string_view name) const;
  void put(const std::string& title, std::string_view rest, bool redirect);
  std::optional<Place> place_of(std::string_view name) const;
  std::string bytes(int64_t offset, size_t size) const;

  std::string folder_;
  size_t most_in_memory_;
  std::unordered_map<uint64_t, Place> places_;  // by hash of the title
  std::string kept_;
  int64_t end_ = 0;  // of all records: of kept_, then of the file
  int fd_ = -1;
  std::string local_prefix_ = "Template:";
};

/// The part of a template's source that its callers see.
std::string transcluded_part(std::string_view text);

/// `text` without <!-- comments -->.
std::string without_comments(std::string_view text);

}  // namespace wiki
