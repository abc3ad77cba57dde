// SPDX-License-Identifier: MIT
// See quarantine.h.
#include "tools/extract/quarantine.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"

namespace extract {

Quarantine::Quarantine(QuarantineOptions options) : options_(std::move(options)) {
  const std::string& path = options_.path;
  if (path == "-") throw cli::UsageError("--quarantine -: expected the name of a file");
  if (path.empty()) return;
  indexed::refuse_bad_target(path, options_.existing);
  target_ = indexed::target_of(path);
  earlier_ = identity_of(target_);
}

std::optional<Quarantine::Identity> Quarantine::identity_of(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return Identity{info.st_dev, info.st_ino};
}

void Quarantine::keep(std::string_view piece, bool ends) {
  if (!file_) file_.emplace(options_.path, options_.existing);
  file_->write(piece);
  const char mark = options_.format == "nul" ? '\0' : '\n';
  if (ends && !piece.ends_with(mark)) file_->write({&mark, 1});
}

indexed::OutputFile* Quarantine::file() {
  if (file_) return &*file_;
  if (options_.existing == indexed::Existing::same && identity_of(target_))
    indexed::refuse_bad_target(options_.path, indexed::Existing::refuse);
  return nullptr;
}

void Quarantine::finish() {
  if (indexed::OutputFile* const kept = file()) kept->commit();
}

void Quarantine::remove_earlier(cli::Console& console) {
  if (file_ || !earlier_ || options_.existing != indexed::Existing::replace) return;
  if (identity_of(target_) != earlier_) return;  // one of the outputs, by now
  if (options_.named) {
    console.note(cli::concat(options_.path, ": of an earlier run, left as it is: this run has ",
                             "nothing to quarantine"));
  } else if (target_ != options_.path) {
    indexed::OutputFile(target_, indexed::Existing::replace).commit();
  } else if (::unlink(target_.c_str()) != 0 && errno != ENOENT) {
    throw std::system_error(errno, std::generic_category(), options_.path);
  }
}

}  // namespace extract
