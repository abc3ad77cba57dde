// See neox_files.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/neox_files.h"

#include <string>
#include <vector>

#include "tools/cli/text.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

void take_neox(TrainConfig& config, Given& given, cli::Console& console) {
  if (config.neox_config.empty()) return;
  std::vector<NamedText> files;
  for (const std::string& path : config.neox_config) files.push_back({path, read_text_file(path)});
  std::vector<std::string> remarks;
  const std::vector<std::string> idle = apply_neox(config, given, files, remarks);
  for (const std::string& remark : remarks) console.note(remark);
  if (!idle.empty())
    console.note(cli::concat(cli::join(config.neox_config, ", "),
                             ": no effect here: ", cli::join(idle, ", ")));
  config.neox_config.clear();
}

}  // namespace trainer
