// SPDX-License-Identifier: MIT
// See quarantine.h.
#include "tools/extract/quarantine.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "tools/cli/flags.h"

namespace extract {

Quarantine::Quarantine(std::string path, indexed::Existing existing, std::string_view format)
    : path_(std::move(path)), existing_(existing), mark_(format == "nul" ? '\0' : '\n') {
  if (path_ == "-") throw cli::UsageError("--quarantine -: expected the name of a file");
  if (!path_.empty()) indexed::refuse_bad_target(path_, existing_);
}

void Quarantine::keep(std::string_view piece, bool ends) {
  if (!file_) file_.emplace(path_, existing_);
  file_->write(piece);
  if (ends && !piece.ends_with(mark_)) file_->write({&mark_, 1});
}

void Quarantine::remove_earlier() const {
  if (path_.empty() || file_ || existing_ != indexed::Existing::replace) return;
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT)
    throw std::system_error(errno, std::generic_category(), path_);
}

void Quarantine::finish() {
  if (file_)
    file_->commit();
  else
    remove_earlier();
}

}  // namespace extract
