// SPDX-License-Identifier: MIT
// Files of extracted pages: names, sizes, bzip2.

#include "tools/wiki/page_files.h"

#include <bzlib.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace wiki {

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
  const std::filesystem::path path = std::filesystem::path(options_.folder) /
                                     (page_file_name(file) + (options_.compress ? ".bz2" : ""));
  std::filesystem::create_directories(path.parent_path());
  output_ = std::make_unique<indexed::OutputFile>(path.string(), options_.existing);
}

/// Marks the folder before its first file, unless that file is from a finished run and is kept.
void PageFiles::begin_folder() {
  namespace fs = std::filesystem;
  const fs::path mark = fs::path(options_.folder) / kUnfinished;
  if (fs::exists(mark)) {
    if (options_.existing == indexed::Existing::refuse) options_.existing = indexed::Existing::same;
    return;
  }
  const fs::path first = fs::path(options_.folder) / page_file_name(0);
  const bool there = fs::exists(first) || fs::exists(first.string() + ".bz2");
  if (there && options_.existing == indexed::Existing::refuse) return;  // which will refuse it
  fs::create_directories(options_.folder);
  indexed::OutputFile(mark.string(), indexed::Existing::replace).commit();
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
  if (options_.single_file.empty() && options_.folder != "-") {
    std::error_code error;  // a folder without pages has no mark
    std::filesystem::remove(std::filesystem::path(options_.folder) / kUnfinished, error);
  }
}

}  // namespace wiki
