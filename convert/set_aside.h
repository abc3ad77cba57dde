// SPDX-License-Identifier: MIT
// Room: convert. The names that a model has in its root while another one takes its place: they are
// set aside together, and either go, or come back if an error comes in between. Not here: which
// names these are (megatron_target.h, trainer_source.h, tokenizer_files.h).
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace convert {

/// Names set aside below ROOT/.replaced, which no save removes: after a kill the old model is there
/// until the next conversion.
class SetAside {
 public:
  /// Changes nothing yet.
  explicit SetAside(const std::string& root);
  /// Without keep(): removes what was made, and gives back every name that was set aside, as far as
  /// the disk allows; the rest stays in ROOT/.replaced.
  ~SetAside();
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

  /// Sets `path`, below the root, aside if there is one; of a link the link itself. What a killed
  /// conversion had set aside is removed first. Errors: std::system_error.
  void take(const std::filesystem::path& path);

  /// Makes a folder, and those above it. Errors: std::system_error.
  void make_folders(const std::filesystem::path& path);

  /// Gives a finished file its name. Errors: std::system_error.
  void name(const std::filesystem::path& file, const std::filesystem::path& path);

  /// A file of this name, where there is none, is about to be made.
  void expect(const std::filesystem::path& path);

  /// The new model is complete: removes what was set aside, as far as the disk allows.
  void keep() noexcept;

 private:
  void give_back() noexcept;

  std::filesystem::path root_, aside_;
  bool used_ = false;
  /// In the order of events: a name that was made, and where the old one is; "" if there was none.
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> names_;
};

}  // namespace convert
