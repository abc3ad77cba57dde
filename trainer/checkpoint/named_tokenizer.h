// The tokenizer of a root of checkpoints. A conversion puts its files into ROOT/tokenizer, training
// copies that folder to the root where it saves, and checkpoints name it by its absolute path.
// Here: the folder of the root where a checkpoint is now. Not here: the files' contents (libtok,
// convert/tokenizer_files.h).
// Source: docs/format/checkpoint.5.md, "The folder tokenizer".
//
// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <string>

namespace trainer {

/// ROOT/tokenizer of the checkpoint ROOT/iter_0001000, whether it exists or not.
std::string tokenizer_folder(const std::string& checkpoint);

/// Replaces each of `names` that is a folder "tokenizer", or a file in one, by that folder or file
/// of `folder`, if it exists there: a copied root has its own tokenizer, whatever is now at the
/// place of the original. Other names, and empty ones, stay.
/// Returns a message for the user: that the files at the named place are others, or that `folder`
/// has none and the named place is used; else empty.
/// Errors: std::system_error for files of `folder` that cannot be read.
std::string take_own_tokenizer(const std::string& folder,
                               std::initializer_list<std::string*> names);

}  // namespace trainer
