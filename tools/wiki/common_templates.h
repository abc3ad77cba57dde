// SPDX-License-Identifier: MIT
// What a reader sees of the templates that stand inside sentences, for dumps without their
// definitions: {{lang|grc|anarchia}} shows anarchia, {{convert|5|km}} shows 5 kilometres.
// Everything else shows nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wiki {

/// Text of a template call, given what stands between its braces ("convert|5|km"), in which inner
/// templates have been replaced already; empty where the template is none of the known ones.
std::string common_template_text(std::string_view call);

/// The measure that {{convert}} shows first. `values`: its positional `arguments`.
std::string converted(std::string_view arguments, const std::vector<std::string_view>& values);

}  // namespace wiki
