// How a backend defines an operation: two functions in the backend's namespace,
//   void launch(Backend& backend, const Args& args);            the arguments have been checked
//   int64_t scratch_bytes(Backend& backend, const Args& args);  0 when it needs none
// and, at the end of the same file, `template struct ops::Launch<Backend, Args>;`. Only those files
// include this. May include: operation.h.
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

template <class Backend, Operation Args>
int64_t Launch<Backend, Args>::scratch(Backend& backend, const Args& args) {
  return scratch_bytes(backend, args);
}

}  // namespace ops
