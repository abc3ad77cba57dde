// SPDX-License-Identifier: MIT
// A dynamic ELF file in memory, as far as versions of symbols need it: its dynamic symbols with the
// versions that they ask for or carry, and the edits that lower-glibc makes. 64-bit, little-endian.
//
// Terms are the ELF specification's and its GNU extension's (Linux Standard Base, "Symbol
// Versioning"): verneed lists the versions that a file asks of each library, verdef those that it
// defines, versym gives each symbol the index of its version.
#pragma once

#include <elf.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace packaging {

/// A version that a file asks of a library.
struct Need {
  std::string library;  ///< DT_SONAME of the library: "libc.so.6"
  std::string version;  ///< "GLIBC_2.14"
  uint16_t flags = 0;
  auto operator<=>(const Need&) const = default;
};

/// A dynamic symbol; `index` is its place in .dynsym.
struct Symbol {
  std::string name;
  int64_t index = 0;
  uint16_t version = 0;  ///< into needs() or definitions()
  bool defined = false;
};

/// One file, read whole.
/// Errors: std::runtime_error with path and reason: not a file that this class can read or edit.
class ElfFile {
 public:
  /// Nothing, if the file is no dynamic ELF file.
  static std::optional<ElfFile> read(const std::filesystem::path& path);

  std::vector<Symbol> symbols() const;
  const std::map<uint16_t, Need>& needs() const { return needs_; }
  const std::map<uint16_t, std::string>& definitions() const { return definitions_; }
  std::string soname() const;

  /// Lets a symbol ask for another version than it does.
  void ask(const Symbol& symbol, const Need& need);
  /// Drops the versions that no symbol asks for, and writes the file again: strings and verneed lie
  /// in a new segment at its end. The libraries of all versions are listed as needed.
  /// State: the file is replaced by rename; unchanged on failure.
  void write();

 private:
  template <class T>
  T* at(uint64_t offset, uint64_t count = 1);
  template <class T>
  const T* at(uint64_t offset, uint64_t count = 1) const;
  uint64_t offset_of(uint64_t address) const;
  uint64_t dynamic(int64_t tag) const;
  std::string string_at(uint64_t place) const;
  void read_versions();
  void set_dynamic(int64_t tag, uint64_t value);
  void add_needed(uint64_t name);
  void move_section(uint32_t type, uint64_t old_address, uint64_t address, uint64_t offset,
                    uint64_t size, uint32_t info);
  void append(const std::string& strings, const std::string& verneed, uint64_t libraries);
  [[noreturn]] void fail(const std::string& reason) const;

  std::filesystem::path path_;
  std::string bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
  uint64_t dynamic_offset_ = 0;
  uint64_t dynamic_entries_ = 0;
  std::map<uint16_t, Need> needs_;
  std::map<uint16_t, std::string> definitions_;
};

}  // namespace packaging
