# Another project can use the installed libraries: find_package(gristmill) is all that it says, and
# the C++ standard comes with the targets; both libraries, one program that encodes, writes a
# dataset and reads it back.
. "$(dirname "$0")/prelude"
build=$(dirname "$(dirname "$(command -v bpe-tokenize)")")
[ -f "$build/cmake_install.cmake" ] || { echo "skipped: no build that can be installed"; exit 77; }
cmake --install "$build" --prefix "$PWD/installed" --component development >log 2>&1 || cat log
mkdir project
cat >project/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES CXX)
find_package(gristmill REQUIRED)
add_executable(consumer consumer.cc)
target_link_libraries(consumer PRIVATE gristmill::tok gristmill::indexed)
END
cat >project/consumer.cc <<'END'
#include <fstream>
#include <iostream>
#include <iterator>

#include <libindexed/builder.h>
#include <libindexed/dataset.h>
#include <libtok/tokenizer.h>

std::string read(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

int main(int, char** argv) {
  const auto tokenizer = tok::Tokenizer::from_gpt2(read(argv[1]), read(argv[2]));
  {
    indexed::IndexedDatasetBuilder builder("made", {.dtype = indexed::DType::uint16});
    builder.add_document(std::span<const int32_t>(tokenizer.encode("a document of somebody else")));
    builder.finish();
  }
  const auto data = indexed::IndexedDataset::open("made");
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < data.sequence(0).size(); ++i)
    ids.push_back(static_cast<int32_t>(data.sequence(0)[i]));
  std::cout << tokenizer.decode(ids) << "\n";
}
END
flags=
sanitizer=$(sed -n 's/^SANITIZE:[^=]*=//p' "$build/CMakeCache.txt")
[ -z "$sanitizer" ] || flags=-fsanitize=$sanitizer
cmake -S project -B out -DCMAKE_PREFIX_PATH="$PWD/installed" -DCMAKE_CXX_FLAGS="$flags" \
  >log 2>&1 || cat log
cmake --build out >log 2>&1 || cat log
out/consumer "$GOLDEN/tools/vocab.json" "$GOLDEN/tools/merges.txt"
# On a system with another ICU, which names its functions otherwise, it says so at the start.
config=$(find installed -name gristmill-config.cmake)
sed -i 's/STREQUAL "[0-9]*"/STREQUAL "66"/; s/built for ICU [0-9]*/built for ICU 66/' "$config"
cmake -S project -B other -DCMAKE_PREFIX_PATH="$PWD/installed" 2>&1 | tr -s ' \n' ' ' |
  grep -o 'its libraries.*here is\|build them here'
