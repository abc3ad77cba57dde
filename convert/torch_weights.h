// SPDX-License-Identifier: MIT
// The tensors of a state dict that torch.save wrote, as sources to be read later. What their names
// mean is the callers': megatron_source.h, hf_folder.h.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "convert/tensor_source.h"
#include "convert/torch_file.h"

namespace convert {

/// Every tensor below `value` of `file` under its keys joined by dots. Weights are dicts of text
/// keys, tensors and nothing else, extra state excepted.
/// Errors: indexed::FormatError naming what is no tensor, a file whose tensors are more than eight
/// times its own size (several may share a storage, as tied embeddings do), or what exceeds its
/// budget.
std::map<std::string, TensorSource> torch_weights(const std::shared_ptr<TorchFile>& file,
                                                  Value value);

}  // namespace convert
