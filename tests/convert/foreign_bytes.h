// SPDX-License-Identifier: MIT
// Files of other programs, put together by hand: opcodes of a pickle, a zip archive of stored
// members, a torch.save file. For tests that need one no honest program writes, and for the
// mutators of tests/fuzz.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace foreign {

/// `value` in `bytes` bytes, the lowest first.
inline std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
  return out;
}

// --- opcodes -------------------------------------------------------------------------------------

/// PROTO 2, the body, STOP.
inline std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }
inline std::string text(const std::string& s) { return "X" + little(s.size(), 4) + s; }
inline std::string number(uint64_t value) { return "\x8a\x08" + little(value, 8); }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string put(uint32_t slot) { return "r" + little(slot, 4); }
inline std::string get(uint32_t slot) { return "j" + little(slot, 4); }
inline std::string times(size_t count, const std::string& piece) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}
/// A tuple or list of what `items` push.
inline std::string tuple(const std::string& items) { return "(" + items + "t"; }
inline std::string list(const std::string& items) { return "](" + items + "e"; }
/// A dict of what `pairs` push: key, value, key, value, ...
inline std::string dict(const std::string& pairs) { return "}(" + pairs + "u"; }
inline std::string call(const std::string& callable, const std::string& arguments) {
  return callable + tuple(arguments) + "R";
}
/// The storage `key` of `elements` floats.
inline std::string storage(const std::string& key, uint64_t elements) {
  return tuple(text("storage") + global("torch", "FloatStorage") + text(key) + text("cpu") +
               number(elements)) +
         "Q";
}
/// A float tensor over all of a storage.
inline std::string tensor(const std::string& key, uint64_t elements) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              storage(key, elements) + number(0) + tuple(number(elements)) + tuple(number(1)) +
                  "\x89" + call(global("collections", "OrderedDict"), ""));
}

// --- containers ----------------------------------------------------------------------------------

/// A member of a zip archive; fields can be given false values.
struct Member {
  std::string name;
  std::string bytes;
  int64_t header = -1;  ///< the offset in the directory; -1: the true one
};

/// The record that ends an archive.
inline std::string zip_end(uint64_t members, uint64_t directory_bytes, uint64_t directory) {
  return "PK\x05\x06" + little(0, 4) + little(members, 2) + little(members, 2) +
         little(directory_bytes, 4) + little(directory, 4) + little(0, 2);
}

/// Members, directory, end record.
inline std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const Member& member : members) {
    const auto* bytes = reinterpret_cast<const Bytef*>(member.bytes.data());
    const std::string sums = little(crc32(0, bytes, static_cast<uInt>(member.bytes.size())), 4) +
                             little(member.bytes.size(), 4) + little(member.bytes.size(), 4) +
                             little(member.name.size(), 2) + little(0, 2);
    const uint64_t place = member.header < 0 ? out.size() : static_cast<uint64_t>(member.header);
    directory += "PK\x01\x02" + little(20, 2) + little(20, 2) + little(0, 8) + sums +
                 little(0, 10) + little(place, 4) + member.name;
    out += "PK\x03\x04" + little(20, 2) + little(0, 8) + sums + member.name + member.bytes;
  }
  return out + directory + zip_end(members.size(), directory.size(), out.size());
}

/// A file of torch.save: the pickle, and storages by key.
inline std::string torch_file(const std::string& pickle,
                              const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<Member> members = {{"archive/data.pkl", pickle}, {"archive/version", "3\n"}};
  for (const auto& [key, bytes] : storages) members.push_back({"archive/data/" + key, bytes});
  return zip(members);
}

}  // namespace foreign
