// SPDX-License-Identifier: MIT
// The tensors of a state dict that torch.save wrote, as sources to be read later. The callers
// (megatron_source.h, hf_folder.h) interpret the names.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "convert/tensor_source.h"
#include "convert/torch_file.h"

namespace convert {

/// Every tensor below `value` of `file` under its keys joined by dots. Weights are dicts of text
/// keys, tensors and nothing else, extra state excepted.
/// Errors: indexed::FormatError naming an entry that is not a tensor, a file whose tensors are more
/// than eight times its own size (several may share a storage, like tied embeddings), or one that
/// exceeds its budget.
std::map<std::string, TensorSource> torch_weights(const std::shared_ptr<TorchFile>& file,
                                                  Value value);

}  // namespace convert
