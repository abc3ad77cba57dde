// SPDX-License-Identifier: MIT
// Room: tools/stream. Reporting and counting of refused records.
#include "tools/stream/policy.h"

#include "tools/cli/fields.h"
#include "tools/cli/text.h"

namespace stream {
namespace {

/// At most this many places of one kind are printed; the others are only counted. -v prints them
/// all.
constexpr int64_t kPrintedPlaces = 100;

/// While the input is read, a share is checked only from this many documents on.
constexpr int64_t kShareSample = 10000;

}  // namespace

cli::Group<PolicyOptions> policy_group() {
  using P = PolicyOptions;
  return {"Bad records",
          {{.name = "on-error",
            .value = "WHAT",
            .help = "What to do with a bad record: stop the run, skip and count it, or skip it and "
                    "keep it unchanged in the --quarantine file.",
            .field = cli::choice(&P::on_error, {"stop", "skip", "quarantine"})},
           {.name = "max-errors",
            .value = "N|P%",
            .help = "Stop when more than N records, or more than P percent of them, are bad.",
            .field = {cli::Arity::one,
                      [](P& p, const cli::Values& v) {
                        const bool share = v[0].ends_with('%');
                        const std::string_view number =
                            std::string_view(v[0]).substr(0, v[0].size() - (share ? 1 : 0));
                        if (share)
                          cli::parse_real(number, 0, 100);
                        else
                          cli::parse_integer(number, 0, cli::kMaxInteger);
                        p.max_errors = v[0];
                      },
                      [](const P& p) {
                        return p.max_errors.empty() ? cli::Values{} : cli::Values{p.max_errors};
                      }}},
           {.name = "quarantine",
            .value = "FILE",
            .help = "Where --on-error quarantine keeps bad records; written only if there are any.",
            .field = cli::text(&P::quarantine)}}};
}

cli::Group<PolicyOptions> stop_or_skip_group(std::string_view title) {
  cli::Group<PolicyOptions> group = policy_group();
  group.title = title;
  std::erase_if(group.flags,
                [](const cli::Flag<PolicyOptions>& flag) { return flag.name == "quarantine"; });
  cli::Flag<PolicyOptions>& on_error = group.flags.front();
  on_error.help = "What a bad record does: stop the run, or be skipped and counted.";
  on_error.field = cli::choice(&PolicyOptions::on_error, {"stop", "skip"});
  return group;
}

ErrorPolicy::ErrorPolicy(const PolicyOptions& options, cli::Console& console,
                         std::function<void(std::string_view, bool)> keep)
    : noun_(options.noun),
      stop_(options.on_error == "stop"),
      quarantine_(options.on_error == "quarantine"),
      console_(console),
      keep_(std::move(keep)) {
  if (!options.quarantine.empty() && !quarantine_) {
    throw cli::UsageError(
        cli::concat("--quarantine needs --on-error quarantine, not ", options.on_error));
  }
  if (options.max_errors.ends_with('%')) {
    max_share_ =
        cli::parse_real(
            std::string_view(options.max_errors).substr(0, options.max_errors.size() - 1), 0, 100) /
        100;
  } else if (!options.max_errors.empty()) {
    max_count_ = cli::parse_integer(options.max_errors, 0, cli::kMaxInteger);
  }
}

void ErrorPolicy::refuse(const std::string& place, std::string_view what, Reason reason) {
  const std::string message = cli::concat(place, ": ", what);
  if (stop_) throw RecordError(message);
  ++skipped_;
  const int64_t count = ++by_reason_[static_cast<size_t>(reason)];
  if (count <= kPrintedPlaces || console_.verbose()) {
    console_.note(message);
  } else if (count == kPrintedPlaces + 1) {
    console_.note(
        cli::concat("more with ", name_of(reason), ": counted, not printed; -v prints all"));
  }
  check_limit(false);
}

void ErrorPolicy::check_limit(bool at_end) const {
  const bool too_many = max_count_ >= 0 && skipped_ > max_count_;
  const bool too_large =
      max_share_ >= 0 && (at_end || documents_ >= kShareSample) &&
      static_cast<double>(skipped_) > max_share_ * static_cast<double>(documents_);
  if (too_many || too_large) {
    throw RecordError(cli::concat(cli::with_commas(skipped_), " of ",
                                  cli::counted(documents_, noun_),
                                  " are bad: more than --max-errors allows"));
  }
}

/// `name:line:byte`, all in the whole input. `line` counts from begin_, `offset` in the chunk.
std::string ErrorPolicy::place(const Chunk& chunk, const std::string& name, int64_t line,
                               size_t offset) {
  if (unread_ < 0) unread_ = count_ends(name, begin_, chunk.framing);
  return cli::concat(name, ":", unread_ + line + 1, ":",
                     chunk.offset + static_cast<int64_t>(offset) + 1);
}

/// A piece of a record over the cap: the first piece is reported, the last one ends the line.
void ErrorPolicy::take_long(const Chunk& chunk, const std::string& name) {
  if (!in_long_record_) {
    ++documents_;
    refuse(place(chunk, name, line_, 0),
           cli::concat("the record is longer than ",
                       cli::show_size(static_cast<int64_t>(chunk.text().size())),
                       " bytes: shorten it or raise --max-line"),
           Reason::too_long);
  }
  in_long_record_ = !chunk.record_ends;
  if (chunk.record_ends) ++line_;
  if (quarantine_ && keep_) keep_(chunk.text(), chunk.record_ends);
}

void ErrorPolicy::take(const Chunk& chunk, const std::string& name, const ChunkReport& report) {
  if (chunk.first) {
    line_ = 0;
    begin_ = chunk.begin;
    unread_ = begin_ > 0 ? -1 : 0;
  }
  lines_before_ = line_;
  if (chunk.over_cap) return take_long(chunk, name);
  documents_ += report.documents;
  for (const Refusal& refusal : report.refusals) {
    refuse(place(chunk, name, line_ + refusal.line, refusal.complaint.offset),
           refusal.complaint.what, refusal.complaint.reason);
    if (quarantine_ && keep_) keep_(chunk.text().substr(refusal.begin, refusal.size), true);
  }
  line_ += report.lines;
}

void ErrorPolicy::take(int64_t documents, std::span<const PlacedRefusal> refusals) {
  documents_ += documents;
  for (const PlacedRefusal& refusal : refusals) {
    refuse(refusal.place, refusal.what, refusal.reason);
  }
}

void ErrorPolicy::finish() {
  check_limit(true);
  if (skipped_ == 0) return;
  std::string kinds;
  for (size_t i = 0; i < by_reason_.size(); ++i) {
    if (by_reason_[i] == 0) continue;
    kinds += cli::concat(kinds.empty() ? "" : ", ", cli::with_commas(by_reason_[i]), " ",
                         name_of(static_cast<Reason>(i)));
  }
  console_.note(cli::concat("skipped ", cli::with_commas(skipped_), " of ",
                            cli::counted(documents_, noun_), ": ", kinds));
}

}  // namespace stream
