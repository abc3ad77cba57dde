// SPDX-License-Identifier: MIT
// Files of extracted pages: names, sizes, bzip2.

#include "tools/wiki/page_files.h"

#include <bzlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace wiki {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPacked = ".bz2";

/// Names in `folder` that page_file_name gives, packed or not, in order.
std::vector<std::string> page_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;  // a folder that cannot be listed is an error where a file is written
  for (const auto& letters : fs::directory_iterator(folder, none)) {
    for (const auto& file : fs::directory_iterator(letters.path(), none)) {
      std::string name = (letters.path().filename() / file.path().filename()).string();
      if (page_file_number(name) && !file.is_directory(none)) names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse(const fs::path& file) {
  throw std::system_error(EEXIST, std::generic_category(),
                          file.string() + ": not replaced without --force");
}

}  // namespace

std::optional<int64_t> page_file_number(std::string_view name) {
  constexpr size_t kMostLetters = 10;
  if (name.ends_with(kPacked)) name.remove_suffix(kPacked.size());
  const size_t letters = std::min(name.find('/'), name.size());
  const std::string_view digits = name.substr(name.size() - std::min<size_t>(name.size(), 2));
  if (letters > kMostLetters || digits.find_first_not_of("0123456789") != digits.npos)
    return std::nullopt;
  int64_t folder = 0;
  for (const char c : name.substr(0, letters)) folder = folder * 26 + (c - 'A');
  if (folder < 0 || digits.size() < 2) return std::nullopt;
  const int64_t file = folder * 100 + (digits[0] - '0') * 10 + (digits[1] - '0');
  return page_file_name(file) == name ? std::optional(file) : std::nullopt;
}

std::string page_file_name(int64_t file) {
  constexpr int64_t kFilesPerFolder = 100;
  int64_t folder = file / kFilesPerFolder;
  std::string letters;
  while (letters.size() < 2 || folder > 0) {
    letters.insert(letters.begin(), static_cast<char>('A' + folder % 26));
    folder /= 26;
  }
  const int64_t number = file % kFilesPerFolder;
  return letters + "/wiki_" + (number < 10 ? "0" : "") + std::to_string(number);
}

std::string bzip2_packed(std::string_view bytes) {
  constexpr int kLevel = 9;
  std::string out(bytes.size() + bytes.size() / 100 + 700, '\0');
  unsigned size = static_cast<unsigned>(out.size());
  const int status = BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(bytes.data()),
                                              static_cast<unsigned>(bytes.size()), kLevel, 0, 0);
  if (status != BZ_OK) throw std::bad_alloc();
  out.resize(size);
  return out;
}

std::vector<Portion> PageFiles::plan(const std::vector<std::string>& lines) {
  constexpr size_t kPackedTogether = 800'000;  // a block of bzip2
  const size_t most = options_.compress ? kPackedTogether : std::string::npos;
  std::vector<Portion> portions;
  size_t left = 0;
  for (const std::string& line : lines) left += line.size();
  for (const std::string& line : lines) {
    const int64_t size = static_cast<int64_t>(line.size());
    const bool one_sink = options_.folder == "-" || !options_.single_file.empty();
    const bool full = !one_sink && planned_bytes_ > 0 &&
                      (options_.file_bytes == 0 || planned_bytes_ + size > options_.file_bytes);
    if (full) {
      ++planned_file_;
      planned_bytes_ = 0;
    }
    planned_bytes_ += size;
    if (portion_.file != planned_file_ || portion_.bytes.size() >= most) end_portion(portions);
    portion_.file = planned_file_;
    if (portion_.bytes.empty() && one_sink && !options_.compress) portion_.bytes.reserve(left);
    portion_.bytes += line;
  }
  if (!options_.compress) end_portion(portions);
  return portions;
}

void PageFiles::end_portion(std::vector<Portion>& portions) {
  if (!portion_.bytes.empty()) portions.push_back(std::move(portion_));
  portion_ = {};
}

void PageFiles::open(int64_t file) {
  open_file_ = file;
  if (!options_.single_file.empty()) {
    output_ = std::make_unique<indexed::OutputFile>(options_.single_file, options_.existing);
    output_->write(options_.head);
    return;
  }
  if (file == 0) begin_folder();
  if (output_) output_->commit();
  output_.reset();
  const fs::path path =
      fs::path(options_.folder) / page_file_name(file).append(options_.compress ? kPacked : "");
  fs::create_directories(path.parent_path());
  output_ = std::make_unique<indexed::OutputFile>(path.string(), options_.existing);
}

void PageFiles::refuse_earlier() const {
  if (!in_folder() || options_.existing != indexed::Existing::refuse) return;
  if (fs::exists(fs::path(options_.folder) / kUnfinished)) return;
  const std::vector<std::string> earlier = page_files_in(options_.folder);
  if (!earlier.empty()) refuse(fs::path(options_.folder) / earlier.front());
}

/// Marks the folder before its first file.
void PageFiles::begin_folder() {
  const fs::path mark = fs::path(options_.folder) / kUnfinished;
  if (fs::exists(mark)) {
    if (options_.existing == indexed::Existing::refuse) options_.existing = indexed::Existing::same;
    return;
  }
  refuse_earlier();  // another run may have written meanwhile
  fs::create_directories(options_.folder);
  indexed::OutputFile(mark.string(), indexed::Existing::replace).commit();
}

/// Whether this run wrote the file.
bool PageFiles::is_own(std::string_view name) const {
  return *page_file_number(name) <= open_file_ && name.ends_with(kPacked) == options_.compress;
}

/// Readers of the folder would take an earlier run's files, too.
void PageFiles::remove_surplus() const {
  const fs::path folder(options_.folder);
  for (const std::string& name : page_files_in(folder)) {
    if (is_own(name)) continue;
    if (options_.existing != indexed::Existing::replace) refuse(folder / name);
    fs::remove(folder / name);
    std::error_code others;  // the folder stays while other files are in it
    fs::remove((folder / name).parent_path(), others);
  }
}

void PageFiles::write(const std::vector<Portion>& portions) {
  for (const Portion& portion : portions) {
    bytes_written_ += static_cast<int64_t>(portion.bytes.size());
    if (options_.single_file.empty() && options_.folder == "-") {
      if (std::fwrite(portion.bytes.data(), 1, portion.bytes.size(), stdout) !=
          portion.bytes.size()) {
        throw std::system_error(errno, std::generic_category(), "standard output");
      }
      continue;
    }
    if (portion.file != open_file_) open(portion.file);
    output_->write(portion.bytes);
  }
}

void PageFiles::finish() {
  std::vector<Portion> rest;
  end_portion(rest);
  for (Portion& portion : rest) portion.bytes = bzip2_packed(portion.bytes);
  write(rest);
  if (!options_.single_file.empty()) {
    if (!output_) open(0);
    output_->write(options_.tail);
  }
  if (output_) output_->commit();
  output_.reset();
  if (!in_folder()) return;
  remove_surplus();
  std::error_code error;  // a folder without pages has no mark
  fs::remove(fs::path(options_.folder) / kUnfinished, error);
}

}  // namespace wiki
