// SPDX-License-Identifier: MIT
// targets.h: mutators that know the grammar, so that an input passes the outer checks and reaches
// the readers behind them. One random choice per step, from libFuzzer's seed.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "tests/convert/foreign_bytes.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t end) { return end == 0 ? 0 : random() % end; }

uint64_t interesting(Random& random) {
  constexpr uint64_t kValues[] = {0,   1,   2,     4,        63,       64,
                                  255, 256, 65535, 1U << 20, 1U << 31, 1ULL << 40};
  const uint64_t value = kValues[below(random, std::size(kValues))];
  return random() % 4 == 0 ? ~value : value;
}

/// Some bits or bytes changed, taken out or put in.
std::string mutate_bytes(std::string bytes, Random& random) {
  for (size_t n = 1 + below(random, 3); n > 0; --n) {
    const size_t at = below(random, bytes.size() + 1);
    switch (below(random, 5)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, below(random, 16));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(random, bytes.size() + 1), below(random, 32)));
        break;
      default:
        const std::string number = foreign::little(interesting(random), 1 << below(random, 4));
        bytes.replace(at, std::min(number.size(), bytes.size() - at), number);
    }
  }
  return bytes;
}

// --- pickles -------------------------------------------------------------------------------------

/// Bytes of the opcode at the front of `rest`, arguments included.
size_t opcode_bytes(std::string_view rest) {
  const auto size_in = [&](size_t bytes) {
    uint64_t size = 0;
    for (size_t i = 0; i < bytes && 1 + i < rest.size(); ++i)
      size |= static_cast<uint64_t>(static_cast<uint8_t>(rest[1 + i])) << (8 * i);
    return static_cast<size_t>(
        std::min<uint64_t>(1 + bytes + std::min<uint64_t>(size, 1U << 30), rest.size()));
  };
  switch (static_cast<uint8_t>(rest[0])) {
    case 'X':
    case 'B':
    case 'T':
    case 0x8b:
      return size_in(4);
    case 0x8c:
    case 'C':
    case 'U':
    case 0x8a:
      return size_in(1);
    case 0x8d:
    case 0x8e:
    case 0x96:
      return size_in(8);
    case 'G':
    case 0x95:
      return std::min<size_t>(9, rest.size());
    case 'J':
    case 'j':
    case 'r':
      return std::min<size_t>(5, rest.size());
    case 'M':
      return std::min<size_t>(3, rest.size());
    case 'K':
    case 'h':
    case 'q':
    case 0x80:
      return std::min<size_t>(2, rest.size());
    case 'c': {
      const size_t first = rest.find('\n');
      const size_t second = first == rest.npos ? first : rest.find('\n', first + 1);
      return second == rest.npos ? rest.size() : second + 1;
    }
    default:
      return 1;
  }
}

std::vector<std::string> opcodes_of(std::string_view rest) {
  std::vector<std::string> opcodes;
  while (!rest.empty()) {
    const size_t bytes = std::max<size_t>(1, opcode_bytes(rest));
    opcodes.emplace_back(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
  return opcodes;
}

std::string new_opcode(Random& random) {
  constexpr const char* kImports[][2] = {{"collections", "OrderedDict"},
                                         {"builtins", "set"},
                                         {"builtins", "getattr"},
                                         {"builtins", "bytes"},
                                         {"torch", "Size"},
                                         {"torch", "device"},
                                         {"torch", "float32"},
                                         {"torch", "bfloat16"},
                                         {"torch", "FloatStorage"},
                                         {"torch.storage", "UntypedStorage"},
                                         {"torch._utils", "_rebuild_tensor_v2"},
                                         {"torch._utils", "_rebuild_tensor_v3"},
                                         {"torch._utils", "_rebuild_parameter"},
                                         {"torch._tensor", "_rebuild_from_type_v2"},
                                         {"pathlib", "PosixPath"},
                                         {"_codecs", "encode"},
                                         {"_io", "BytesIO"},
                                         {"argparse", "Namespace"},
                                         {"numpy", "dtype"},
                                         {"numpy.core.multiarray", "scalar"},
                                         {"os", "system"}};
  constexpr std::string_view kPlain =
      "(.012N)]}tleaubRsQd\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94";
  switch (below(random, 8)) {
    case 0: {
      const auto& import = kImports[below(random, std::size(kImports))];
      return foreign::global(import[0], import[1]);
    }
    case 1:
      return foreign::number(interesting(random));
    case 2:
      return "h" + foreign::little(random() % 32, 1);
    case 3:
      return "q" + foreign::little(random() % 32, 1);
    case 4: {
      constexpr const char* kTexts[] = {"storage", "0",  "cpu", "i8",    "i0",
                                        "f4",      "u0", "",    "model", "args"};
      return foreign::text(kTexts[below(random, std::size(kTexts))]);
    }
    case 5:
      return "C" + foreign::little(below(random, 9), 1) + std::string(below(random, 9), '\x7f');
    default:
      return std::string(1, kPlain[below(random, kPlain.size())]);
  }
}

std::string mutated_pickle(const std::string& input, Random& random) {
  std::vector<std::string> opcodes = opcodes_of(input);
  for (size_t n = 1 + below(random, 3); n > 0; --n) {
    const size_t at = below(random, opcodes.size() + 1), from = below(random, opcodes.size() + 1);
    const size_t count = std::min(1 + below(random, 6), opcodes.size() - from);
    switch (below(random, 6)) {
      case 0:
        opcodes.insert(opcodes.begin() + static_cast<ptrdiff_t>(at), new_opcode(random));
        break;
      case 1:
        opcodes.erase(opcodes.begin() + static_cast<ptrdiff_t>(from),
                      opcodes.begin() + static_cast<ptrdiff_t>(from + count));
        break;
      case 2: {
        const std::vector<std::string> copy(opcodes.begin() + static_cast<ptrdiff_t>(from),
                                            opcodes.begin() + static_cast<ptrdiff_t>(from + count));
        for (size_t i = 1 + below(random, 8); i > 0 && opcodes.size() < 20'000; --i)
          opcodes.insert(opcodes.begin() + static_cast<ptrdiff_t>(at), copy.begin(), copy.end());
        break;
      }
      case 3:
        if (at < opcodes.size() && from < opcodes.size()) std::swap(opcodes[at], opcodes[from]);
        break;
      case 4:
        if (at < opcodes.size()) opcodes[at] = new_opcode(random);
        break;
      default:
        if (at < opcodes.size() && opcodes[at].size() > 1)
          opcodes[at] = opcodes[at].substr(0, 1) + mutate_bytes(opcodes[at].substr(1), random);
    }
  }
  std::string out;
  for (const std::string& opcode : opcodes) out += opcode;
  return out;
}

// --- zip -----------------------------------------------------------------------------------------

uint64_t little_at(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size && at + i < bytes.size(); ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  return value;
}

/// The stored members, by their own headers.
std::vector<foreign::Member> members_of(std::string_view zip) {
  std::vector<foreign::Member> members;
  size_t at = 0;
  while (zip.substr(at, 4) == "PK\x03\x04" && at + 30 <= zip.size()) {
    const size_t bytes = little_at(zip, at + 18, 4), name = little_at(zip, at + 26, 2),
                 extra = little_at(zip, at + 28, 2), begin = at + 30 + name + extra;
    if (begin > zip.size() || bytes > zip.size() - begin) break;
    members.push_back(
        {std::string(zip.substr(at + 30, name)), std::string(zip.substr(begin, bytes))});
    at = begin + bytes;
  }
  return members;
}

std::string mutated_zip(const std::string& input, Random& random) {
  std::vector<foreign::Member> members = members_of(input);
  if (members.empty() || random() % 8 == 0) return mutate_bytes(input, random);
  foreign::Member& one = members[below(random, members.size())];
  switch (below(random, 8)) {
    case 0:
      one.bytes = mutate_bytes(one.bytes, random);
      break;
    case 1: {
      constexpr const char* kNames[] = {"../x",
                                        "/x",
                                        "archive/../../x",
                                        "a\nb",
                                        "archive/version",
                                        "archive/data/0",
                                        "archive/byteorder",
                                        ""};
      one.name = kNames[below(random, std::size(kNames))];
      break;
    }
    case 2:
      members.push_back({one.name, one.bytes, static_cast<int64_t>(below(random, input.size()))});
      break;
    case 3:
      one.header = static_cast<int64_t>(below(random, input.size()));
      break;
    default:
      for (foreign::Member& member : members)
        if (member.name.ends_with("data.pkl")) member.bytes = mutated_pickle(member.bytes, random);
  }
  std::string zip = foreign::zip(members);
  if (random() % 16 == 0) {  // an end record of zip64 in front of the usual one
    const size_t end = zip.size() - 22;
    const std::string end64 = "PK\x06\x06" + foreign::little(44, 8) + foreign::little(0, 12) +
                              foreign::little(0, 8) + foreign::little(members.size(), 8) +
                              foreign::little(interesting(random), 8) +
                              foreign::little(interesting(random), 8);
    zip.insert(end, end64 + "PK\x06\x07" + foreign::little(0, 4) + foreign::little(end, 8) +
                        foreign::little(1, 4));
  }
  return zip;
}

// --- protocol buffers ----------------------------------------------------------------------------

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}

std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest[0]);
    rest.remove_prefix(1);
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

struct ProtoField {
  uint64_t key = 0;
  std::string bytes;  ///< its value; without its length
};

/// The fields of a message; empty for bytes that are none.
std::vector<ProtoField> fields_of(std::string_view rest) {
  std::vector<ProtoField> fields;
  while (!rest.empty()) {
    const std::optional<uint64_t> key = take_varint(rest);
    if (!key) return {};
    uint64_t size = (*key & 7) == 5 ? 4 : 8;
    if ((*key & 7) == 0) {
      const std::optional<uint64_t> value = take_varint(rest);
      if (!value) return {};
      fields.push_back({*key, varint(*value)});
      continue;
    }
    if ((*key & 7) == 2) size = take_varint(rest).value_or(rest.size() + 1);
    if (size > rest.size()) return {};
    fields.push_back({*key, std::string(rest.substr(0, size))});
    rest.remove_prefix(size);
  }
  return fields;
}

std::string mutated_message(const std::string& input, Random& random, int depth) {
  std::vector<ProtoField> fields = fields_of(input);
  if (fields.empty() || random() % 32 == 0) return mutate_bytes(input, random);
  const size_t at = below(random, fields.size()), other = below(random, fields.size());
  ProtoField& one = fields[at];
  switch (below(random, 10)) {
    case 0:
      fields.erase(fields.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 1:
      fields.insert(fields.begin() + static_cast<ptrdiff_t>(at), ProtoField(fields[other]));
      break;
    case 2:
      std::swap(one.bytes, fields[other].bytes);
      break;
    case 3:
      one.key = (1 + below(random, 50)) << 3 | (one.key & 7);
      break;
    default:
      if ((one.key & 7) == 0) {
        one.bytes = varint(random() % 2 == 0 ? below(random, 8) : interesting(random));
      } else if ((one.key & 7) == 2 && depth < 2 && random() % 4 != 0) {
        one.bytes = mutated_message(one.bytes, random, depth + 1);
      } else {
        const size_t size = one.bytes.size();
        one.bytes = mutate_bytes(one.bytes, random);
        if ((one.key & 7) != 2) one.bytes.resize(size);
      }
  }
  std::string out;
  for (const ProtoField& field : fields) {
    out += varint(field.key);
    if ((field.key & 7) == 2) out += varint(field.bytes.size());
    out += field.bytes;
  }
  return out;
}

// --- JSON ----------------------------------------------------------------------------------------

using Json = nlohmann::ordered_json;

Json new_value(Random& random) {
  const Json values[] = {nullptr,
                         true,
                         false,
                         0,
                         -1,
                         1.5,
                         interesting(random),
                         "",
                         "<s>",
                         " ",
                         "▁",
                         "BPE",
                         "<unk>",
                         Json::array(),
                         Json::object(),
                         {{"content", "<s>"}, {"special", false}, {"normalized", true}}};
  return values[below(random, std::size(values))];
}

void mutate_value(Json& value, Random& random) {
  if (value.is_structured() && !value.empty() && random() % 5 != 0) {
    const auto at = std::next(value.begin(), static_cast<ptrdiff_t>(below(random, value.size())));
    return mutate_value(*at, random);
  }
  switch (below(random, 4)) {
    case 0:
      if (value.is_string()) {
        value = mutate_bytes(value.get<std::string>(), random);
        return;
      }
      break;
    case 1:
      if (value.is_array() && !value.empty()) {
        value.push_back(value[below(random, value.size())]);
        return;
      }
      break;
    case 2:
      if (value.is_array() && !value.empty()) {
        value.erase(below(random, value.size()));
        return;
      }
      break;
    default:
      break;
  }
  value = new_value(random);
}

std::string mutated_json(const std::string& input, Random& random) {
  Json tree = Json::parse(input, nullptr, false);
  if (tree.is_discarded() || random() % 16 == 0) return mutate_bytes(input, random);
  for (size_t n = 1 + below(random, 3); n > 0; --n) {
    // A member of the configuration files is as likely as each of its values.
    if (tree.is_object() && random() % 4 == 0) {
      constexpr const char* kMembers[] = {"tokenizer_class",
                                          "bos_token",
                                          "eos_token",
                                          "unk_token",
                                          "pad_token",
                                          "mask_token",
                                          "add_bos_token",
                                          "add_eos_token",
                                          "image_token",
                                          "legacy",
                                          "model_type",
                                          "added_tokens",
                                          "additional_special_tokens",
                                          "add_prefix_space",
                                          "added_tokens_decoder",
                                          "extra_special_tokens",
                                          "split_special_tokens"};
      tree[kMembers[below(random, std::size(kMembers))]] = new_value(random);
    } else {
      mutate_value(tree, random);
    }
  }
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string mutated_file(const std::string& bytes, Random& random) {
  if (bytes.starts_with("PK\x03\x04")) return mutated_zip(bytes, random);
  if (bytes.starts_with("\x80") && random() % 8 != 0) return mutated_pickle(bytes, random);
  if (bytes.starts_with("\n")) return mutated_message(bytes, random, 0);
  if (bytes.starts_with("{") || bytes.starts_with("[")) return mutated_json(bytes, random);
  return mutate_bytes(bytes, random);
}

}  // namespace

std::string mutate_pickle(const std::string& input, uint64_t seed) {
  Random random(seed);
  return mutated_pickle(input, random);
}

std::string mutate_zip(const std::string& input, uint64_t seed) {
  Random random(seed);
  return mutated_zip(input, random);
}

std::string mutate_message(const std::string& input, uint64_t seed) {
  Random random(seed);
  return mutated_message(input, random, 0);
}

std::string mutate_json(const std::string& input, uint64_t seed) {
  Random random(seed);
  return mutated_json(input, random);
}

std::string mutate_folder(const std::string& input, uint64_t seed) {
  Random random(seed);
  Files files = unpack(input);
  if (files.empty()) return mutate_bytes(input, random);
  const size_t at = below(random, files.size()), other = below(random, files.size());
  switch (below(random, 12)) {
    case 0:
      files.erase(files.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 1:
      files[at].second = files[other].second;
      break;
    case 2:
      files[at].first = mutate_bytes(files[at].first, random);
      files[at].first.resize(std::min<size_t>(files[at].first.size(), 100));
      break;
    default:
      files[at].second = mutated_file(files[at].second, random);
  }
  return pack(files);
}

}  // namespace fuzz
