// SPDX-License-Identifier: MIT
// Reading and editing a dynamic ELF file: see elf_file.h. All offsets are checked against the
// file's size before they are used.
#include "packaging/elf_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

namespace packaging {
namespace {

constexpr uint64_t kPage = 0x1000;
constexpr uint16_t kIndexMask = 0x7fff;  // the highest bit of a versym hides the symbol

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The hash of the System V ABI, by which the loader compares versions.
uint32_t elf_hash(const std::string& name) {
  uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    const uint32_t high = hash & 0xf0000000;
    hash ^= high >> 24;
    hash &= ~high;
  }
  return hash;
}

template <class T>
void append_struct(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void ElfFile::fail(const std::string& reason) const {
  throw std::runtime_error(path_.string() + ": " + reason);
}

template <class T>
T* ElfFile::at(uint64_t offset, uint64_t count) {
  return const_cast<T*>(static_cast<const ElfFile*>(this)->at<T>(offset, count));
}

template <class T>
const T* ElfFile::at(uint64_t offset, uint64_t count) const {
  if (offset > bytes_.size() || (bytes_.size() - offset) / sizeof(T) < count)
    fail("byte " + std::to_string(offset) + ": points beyond the end of the file");
  return reinterpret_cast<const T*>(bytes_.data() + offset);
}

std::optional<ElfFile> ElfFile::read(const std::filesystem::path& path) {
  ElfFile file;
  file.path_ = path;
  std::ifstream in(path, std::ios::binary);
  char magic[SELFMAG] = {};
  if (!in.read(magic, SELFMAG) || std::memcmp(magic, ELFMAG, SELFMAG) != 0) return std::nullopt;
  in.seekg(0);
  file.bytes_.assign(std::istreambuf_iterator<char>(in), {});
  file.header_ = *file.at<Elf64_Ehdr>(0);
  const Elf64_Ehdr& header = file.header_;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    file.fail("not a 64-bit little-endian ELF file");
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) return std::nullopt;
  const auto* segments = file.at<Elf64_Phdr>(header.e_phoff, header.e_phnum);
  file.segments_.assign(segments, segments + header.e_phnum);
  const auto* sections = file.at<Elf64_Shdr>(header.e_shoff, header.e_shnum);
  file.sections_.assign(sections, sections + header.e_shnum);
  for (const Elf64_Phdr& segment : file.segments_) {
    if (segment.p_type != PT_DYNAMIC) continue;
    file.dynamic_offset_ = segment.p_offset;
    file.dynamic_entries_ = segment.p_filesz / sizeof(Elf64_Dyn);
  }
  if (file.dynamic_entries_ == 0) return std::nullopt;
  file.read_versions();
  return file;
}

uint64_t ElfFile::offset_of(uint64_t address) const {
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz)
      return address - segment.p_vaddr + segment.p_offset;
  }
  fail("address " + std::to_string(address) + " lies in no segment");
}

uint64_t ElfFile::dynamic(int64_t tag) const {
  const auto* entries = at<Elf64_Dyn>(dynamic_offset_, dynamic_entries_);
  for (uint64_t i = 0; i < dynamic_entries_ && entries[i].d_tag != DT_NULL; ++i) {
    if (entries[i].d_tag == tag) return entries[i].d_un.d_val;
  }
  return 0;
}

std::string ElfFile::string_at(uint64_t place) const {
  const uint64_t begin = offset_of(dynamic(DT_STRTAB)) + place;
  const size_t end = bytes_.find('\0', begin);
  if (place >= dynamic(DT_STRSZ) || end == std::string::npos) fail("a name outside of .dynstr");
  return bytes_.substr(begin, end - begin);
}

std::string ElfFile::soname() const {
  const uint64_t name = dynamic(DT_SONAME);
  return name ? string_at(name) : path_.filename().string();
}

void ElfFile::read_versions() {
  if (const uint64_t address = dynamic(DT_VERNEED)) {
    uint64_t place = offset_of(address);
    for (uint64_t i = dynamic(DT_VERNEEDNUM); i > 0; --i) {
      const Elf64_Verneed library = *at<Elf64_Verneed>(place);
      uint64_t aux = place + library.vn_aux;
      for (int k = 0; k < library.vn_cnt; ++k) {
        const Elf64_Vernaux version = *at<Elf64_Vernaux>(aux);
        needs_[version.vna_other] = {.library = string_at(library.vn_file),
                                     .version = string_at(version.vna_name),
                                     .flags = version.vna_flags};
        aux += version.vna_next;
      }
      place += library.vn_next;
    }
  }
  if (const uint64_t address = dynamic(DT_VERDEF)) {
    uint64_t place = offset_of(address);
    for (uint64_t i = dynamic(DT_VERDEFNUM); i > 0; --i) {
      const Elf64_Verdef version = *at<Elf64_Verdef>(place);
      const Elf64_Verdaux name = *at<Elf64_Verdaux>(place + version.vd_aux);
      definitions_[version.vd_ndx] = string_at(name.vda_name);
      place += version.vd_next;
    }
  }
}

std::vector<Symbol> ElfFile::symbols() const {
  std::vector<Symbol> all;
  const uint64_t versions = dynamic(DT_VERSYM);
  if (versions == 0) return all;
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_DYNSYM) continue;
    const uint64_t count = section.sh_size / sizeof(Elf64_Sym);
    const auto* entries = at<Elf64_Sym>(section.sh_offset, count);
    const auto* indices = at<uint16_t>(offset_of(versions), count);
    for (uint64_t i = 1; i < count; ++i) {
      all.push_back({.name = string_at(entries[i].st_name),
                     .index = static_cast<int64_t>(i),
                     .version = static_cast<uint16_t>(indices[i] & kIndexMask),
                     .defined = entries[i].st_shndx != SHN_UNDEF});
    }
  }
  return all;
}

void ElfFile::ask(const Symbol& symbol, const Need& need) {
  uint16_t index = 0, highest = VER_NDX_GLOBAL;
  for (const auto& [known, other] : needs_) {
    highest = std::max(highest, known);
    if (other.library == need.library && other.version == need.version) index = known;
  }
  for (const auto& [known, name] : definitions_) highest = std::max(highest, known);
  if (index == 0) {
    index = static_cast<uint16_t>(highest + 1);
    needs_[index] = need;
  }
  auto* indices = at<uint16_t>(offset_of(dynamic(DT_VERSYM)));
  indices[symbol.index] = index;
}

void ElfFile::set_dynamic(int64_t tag, uint64_t value) {
  auto* entries = at<Elf64_Dyn>(dynamic_offset_, dynamic_entries_);
  for (uint64_t i = 0; i < dynamic_entries_; ++i) {
    if (entries[i].d_tag == tag) entries[i].d_un.d_val = value;
  }
}

// Linkers leave a few empty entries at the end of the dynamic section; the last one ends it.
void ElfFile::add_needed(uint64_t name) {
  auto* entries = at<Elf64_Dyn>(dynamic_offset_, dynamic_entries_);
  uint64_t i = 0;
  while (i < dynamic_entries_ && entries[i].d_tag != DT_NULL) ++i;
  if (i + 1 >= dynamic_entries_) fail("no empty entry is left in the dynamic section");
  entries[i].d_tag = DT_NEEDED;
  entries[i].d_un.d_val = name;
}

void ElfFile::move_section(uint32_t type, uint64_t old_address, uint64_t address, uint64_t offset,
                           uint64_t size, uint32_t info) {
  for (Elf64_Shdr& section : sections_) {
    if (section.sh_type != type || section.sh_addr != old_address) continue;
    section.sh_addr = address;
    section.sh_offset = offset;
    section.sh_size = size;
    if (info != 0) section.sh_info = info;
  }
}

// The new segment takes the entry of a note that other notes repeat (PT_GNU_PROPERTY) or that the
// loader does not need. Entries of loaded segments have to ascend, so it must be after them all.
void ElfFile::append(const std::string& strings, const std::string& verneed, uint64_t libraries) {
  uint64_t end = 0;
  size_t last_load = 0, entry = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].p_type == PT_LOAD) {
      end = std::max(end, segments_[i].p_vaddr + segments_[i].p_memsz);
      last_load = i;
    } else if (segments_[i].p_type == PT_GNU_PROPERTY ||
               (segments_[i].p_type == PT_NOTE &&
                (entry == 0 || segments_[entry].p_type != PT_GNU_PROPERTY))) {
      entry = i;
    }
  }
  if (entry <= last_load) fail("no note after the loaded segments, whose entry could be used");
  const uint64_t address = round_up(end, kPage), offset = round_up(bytes_.size(), kPage);
  const uint64_t old_strings = dynamic(DT_STRTAB), old_verneed = dynamic(DT_VERNEED);
  const uint64_t size = verneed.size() + strings.size();
  segments_[entry] = {.p_type = PT_LOAD,
                      .p_flags = PF_R,
                      .p_offset = offset,
                      .p_vaddr = address,
                      .p_paddr = address,
                      .p_filesz = size,
                      .p_memsz = size,
                      .p_align = kPage};
  set_dynamic(DT_VERNEED, address);
  set_dynamic(DT_VERNEEDNUM, libraries);
  set_dynamic(DT_STRTAB, address + verneed.size());
  set_dynamic(DT_STRSZ, strings.size());
  move_section(SHT_GNU_verneed, old_verneed, address, offset, verneed.size(),
               static_cast<uint32_t>(libraries));
  move_section(SHT_STRTAB, old_strings, address + verneed.size(), offset + verneed.size(),
               strings.size(), 0);
  std::copy(segments_.begin(), segments_.end(), at<Elf64_Phdr>(header_.e_phoff, segments_.size()));
  std::copy(sections_.begin(), sections_.end(), at<Elf64_Shdr>(header_.e_shoff, sections_.size()));
  bytes_.resize(offset);
  bytes_ += verneed + strings;
}

void ElfFile::write() {
  std::set<uint16_t> used;
  for (const Symbol& symbol : symbols()) used.insert(symbol.version);
  std::map<std::string, std::map<uint16_t, Need>> libraries;
  for (const auto& [index, need] : needs_) {
    if (used.contains(index)) libraries[need.library][index] = need;
  }
  std::set<std::string> listed;
  const auto* entries = at<Elf64_Dyn>(dynamic_offset_, dynamic_entries_);
  for (uint64_t i = 0; i < dynamic_entries_ && entries[i].d_tag != DT_NULL; ++i) {
    if (entries[i].d_tag == DT_NEEDED) listed.insert(string_at(entries[i].d_un.d_val));
  }
  std::string strings = bytes_.substr(offset_of(dynamic(DT_STRTAB)), dynamic(DT_STRSZ));
  const auto add_string = [&strings](const std::string& text) {
    const auto place = static_cast<uint32_t>(strings.size());
    strings.append(text.c_str(), text.size() + 1);
    return place;
  };
  std::string verneed;
  size_t left = libraries.size();
  for (const auto& [library, versions] : libraries) {
    const uint32_t name = add_string(library);
    if (!listed.contains(library)) add_needed(name);
    const auto aux_bytes = static_cast<uint32_t>(versions.size() * sizeof(Elf64_Vernaux));
    const auto next = static_cast<uint32_t>(sizeof(Elf64_Verneed)) + aux_bytes;
    append_struct(verneed, Elf64_Verneed{.vn_version = VER_NEED_CURRENT,
                                         .vn_cnt = static_cast<uint16_t>(versions.size()),
                                         .vn_file = name,
                                         .vn_aux = sizeof(Elf64_Verneed),
                                         .vn_next = --left > 0 ? next : 0});
    size_t versions_left = versions.size();
    for (const auto& [index, need] : versions) {
      append_struct(
          verneed,
          Elf64_Vernaux{.vna_hash = elf_hash(need.version),
                        .vna_flags = need.flags,
                        .vna_other = index,
                        .vna_name = add_string(need.version),
                        .vna_next = --versions_left > 0 ? uint32_t{sizeof(Elf64_Vernaux)} : 0});
    }
  }
  append(strings, verneed, libraries.size());
  const std::filesystem::path partial = path_.string() + ".tmp";
  std::ofstream out(partial, std::ios::binary);
  out.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  out.close();
  if (!out) fail("cannot be written");
  std::filesystem::permissions(partial, std::filesystem::status(path_).permissions());
  std::filesystem::rename(partial, path_);
}

}  // namespace packaging
