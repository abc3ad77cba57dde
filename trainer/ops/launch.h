// How a backend defines an operation: two functions in the backend's namespace,
//   void launch(Backend& backend, const Args& args);                         arguments are checked
//   int64_t scratch_bytes(Backend& backend, const Args& args);      0 where none is wanted
// and, at the end of their file, `template struct ops::Launch<Backend, Args>;`. Included by these
// files alone. May include: operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/operation.h"

namespace ops {

template <class Backend, Operation Args>
void Launch<Backend, Args>::run(Backend& backend, const Args& args) {
  args.check(backend.device());
  launch(backend, args);
}

namespace by_argument {
/// Finds the backend's function, which the member of the same name would hide.
template <class Backend, class Args>
int64_t scratch(Backend& backend, const Args& args) {
  return scratch_bytes(backend, args);
}
}  // namespace by_argument

template <class Backend, Operation Args>
int64_t Launch<Backend, Args>::scratch_bytes(Backend& backend, const Args& args) {
  return by_argument::scratch(backend, args);
}

}  // namespace ops
